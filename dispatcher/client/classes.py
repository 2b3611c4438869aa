"""Which class of requests a client or a command is about, where there are classes: each has a request topic of its own."""

from __future__ import annotations

from dispatcher.errors import ConfigError
from dispatcher.settings import Settings


def of_class(settings: Settings, name: str | None) -> Settings:
    """The settings as one class has them; themselves where there are none. ConfigError where nobody says which, or there is no such one."""
    known = ", ".join(settings.classes)
    if name is None:
        if known:
            raise ConfigError(f"this is about the requests of one class, and there are {known}", "say which: --class NAME, or class_=NAME")
        return settings
    if name not in settings.classes:
        there = f"there are {known}" if known else "there are no [classes] in the settings"
        raise ConfigError(f"there is no class {name[:64]!a}", there)
    return settings.of_class(name)


def as_class(settings: Settings, name: str | None) -> Settings:
    """The settings as one class has them; those of all where nobody says which. ConfigError where there is no such one."""
    return settings if name is None else of_class(settings, name)
