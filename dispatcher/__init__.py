"""The dispatcher: agents' calls, one after another per key, in order, over Apache Kafka.

Public names only. `__version__` is the version of the installed distribution. The client is imported when it is first named: a program
that only wants the version loads neither Kafka nor pydantic.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from dispatcher.errors import (
    AskTimeout,
    BrokerError,
    CallFailed,
    ConfigError,
    DispatcherError,
    OwnLane,
    RefusedError,
    ReplyGone,
    SubmitUnknown,
    WaitTimeout,
)

if TYPE_CHECKING:
    from dispatcher.client import Call, DeadLetter, Dispatcher, Receipt, Reply, Request, SyncDispatcher, serving
    from dispatcher.settings import Settings

try:
    __version__ = version("dispatcher")
except PackageNotFoundError:  # a checkout on the path, not installed
    __version__ = "0+unknown"

__all__ = [
    "AskTimeout",
    "BrokerError",
    "Call",
    "CallFailed",
    "ConfigError",
    "DeadLetter",
    "Dispatcher",
    "DispatcherError",
    "OwnLane",
    "Receipt",
    "RefusedError",
    "Reply",
    "ReplyGone",
    "Request",
    "Settings",
    "SubmitUnknown",
    "SyncDispatcher",
    "WaitTimeout",
    "__version__",
    "serving",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute may be anything
    """Import what belongs to the client when somebody asks for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module("dispatcher.settings" if name == "Settings" else "dispatcher.client"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
