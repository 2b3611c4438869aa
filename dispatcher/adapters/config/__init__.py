"""Settings from flags, `-X`, the environment and a file, in this precedence, over the defaults of the model.

Each source becomes a layer of values by path; later layers cover earlier ones; what results is checked once by the frozen model.
Written by hand and not with pydantic-settings, which would accept mistyped top-level variables in silence, knows neither librdkafka's
dotted names nor where a value came from, and prints what it was given when it is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from pydantic import ValidationError

from dispatcher.adapters.config.credentials import known_secrets, resolve_secrets
from dispatcher.adapters.config.faults import config_error
from dispatcher.adapters.config.layers import Layer, from_environment, from_file, from_flags, from_properties
from dispatcher.adapters.config.schema import Path, fields, row_model
from dispatcher.adapters.config.shown import Shown, describe
from dispatcher.settings import Settings

__all__ = ["Loaded", "Shown", "describe", "known_secrets", "load", "load_with_sources", "resolve_secrets"]

# A credential has one of them: a higher layer that gives one takes the place of another one below.
_ALTERNATIVES = frozenset({"value", "value_env", "value_file"})


class Loaded(NamedTuple):
    """The settings, and where each value that is not a default came from: a file's path, a variable, `-X` or `flag`."""

    settings: Settings
    sources: Mapping[Path, str]


def load(*, file: FilePath | None, flags: Mapping[str, Any], properties: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """Load the settings: flag > `-X` > environment > file > default.

    `flags` maps dotted names to values; `properties` are `NAME=VALUE` as given to `-X`. Raises ConfigError, which names the
    setting, what it must be and where the value came from, and never the value.
    """
    return load_with_sources(file=file, flags=flags, properties=properties, environ=environ).settings


def load_with_sources(*, file: FilePath | None, flags: Mapping[str, Any], properties: Sequence[str], environ: Mapping[str, str]) -> Loaded:
    """Load the settings as `load` does, and keep where each came from."""
    base = from_file(file)
    rows = sorted({path[:2] for path in base if row_model(fields(Settings)[path[0]]) is not None})
    merged: Layer = {}
    for layer in (base, from_environment(environ, rows), from_properties(properties), from_flags(flags)):
        _cover(merged, layer)
    sources = {path: given.source for path, given in merged.items()}
    try:
        settings = Settings.model_validate(_nested(merged), strict=True)
    except ValidationError as failure:
        raise config_error(failure, sources) from None
    return Loaded(settings, sources)


def _cover(merged: Layer, layer: Layer) -> None:
    """Lay one layer over those below it."""
    for path in layer:
        if path[0] == "credentials" and path[-1] in _ALTERNATIVES:
            for other in _ALTERNATIVES - {p[-1] for p in layer if p[:-1] == path[:-1]}:
                merged.pop((*path[:-1], other), None)
    merged |= layer


def _nested(merged: Layer) -> dict[str, Any]:
    """Build the tables that the model checks. Shorter paths come first, so that an empty row does not cover a full one."""
    tree: dict[str, Any] = {}
    for path in _by_length(merged):
        table = tree
        for name in path[:-1]:
            table = table.setdefault(name, {})
        value = merged[path].value
        table[path[-1]] = dict(value) if isinstance(value, dict) else value
    return tree


def _by_length(paths: Iterable[Path]) -> list[Path]:
    """Sort shorter paths first; within one length the order of the sources stays."""
    return sorted(paths, key=len)
