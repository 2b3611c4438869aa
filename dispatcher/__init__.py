"""The dispatcher: agents' calls, one after another per key, in order, over Apache Kafka.

Public names only. `__version__` is the version of the installed distribution.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from dispatcher.errors import BrokerError, CallFailed, ConfigError, DispatcherError, RefusedError, SubmitUnknown, WaitTimeout

try:
    __version__ = version("dispatcher")
except PackageNotFoundError:  # a checkout on the path, not installed
    __version__ = "0+unknown"

__all__ = [
    "BrokerError",
    "CallFailed",
    "ConfigError",
    "DispatcherError",
    "RefusedError",
    "SubmitUnknown",
    "WaitTimeout",
    "__version__",
]
