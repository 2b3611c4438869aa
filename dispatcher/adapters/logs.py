"""JSON lines on stderr: one `event` name per thing, keys only as a hash, and no secret in any form.

Redaction is the last step before a line is written, so that nothing can be added behind it. structlog's global configuration is left
alone: the package is also a library in other people's programs. What the standard library's loggers say (librdkafka's lines,
asyncio's "exception was never retrieved") takes the same way out.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import secrets as chance
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, TextIO, cast

import orjson
import structlog
from structlog.typing import FilteringBoundLogger

from dispatcher.core.redaction import Redactor
from dispatcher.core.repetition import Repetition
from dispatcher.settings import Settings

# The fields that stand first in a line, in this order; others follow as given. A key never stands there, only its `key_hash`.
_ORDER = (
    "ts",
    "level",
    "event",
    "request_id",
    "correlation_id",
    "trace_id",
    "topic",
    "partition",
    "offset",
    "key_hash",
    "upstream",
    "attempt",
    "outcome",
    "http_status",
    "duration_ms",
    "error_type",
)
_KEY_HASH_CHARS = 12
# Deeper than any value that we log; what is below is named, not shown.
_MAX_DEPTH = 8
# The name of librdkafka's logger; the client factory names the same one.
_KAFKA = "dispatcher.kafka"
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Output:
    """Where lines go and what is kept out of them: one per process, set by `configure` at start, read by every thread."""

    def __init__(self) -> None:
        self.redact = Redactor()
        self.key_secret = chance.token_bytes(32)
        self.stream: TextIO | None = None  # None: whatever sys.stderr is at the moment
        self.logger = _logger(logging.INFO)


def configure(
    settings: Settings,
    secrets: Mapping[str, str] | Iterable[str] = (),
    *,
    stream: TextIO | None = None,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Set the level, the secrets to keep out, and the secret under which keys are hashed. Call it once, before threads start.

    `secrets` are values that must never appear (`resolve_secrets`, `known_secrets`); those inside the settings are known anyway.
    Afterwards the standard library's loggers come out here too: warnings of all, of librdkafka at the level of the settings. A line
    that librdkafka repeats is written once in ten seconds (of `now`), and then says how often it was `repeated`.
    """
    values = list(secrets.values()) if isinstance(secrets, Mapping) else list(secrets)
    _OUT.redact = Redactor(values + settings.secret_values())
    if settings.logs.key_secret is not None:
        _OUT.key_secret = settings.logs.key_secret.get_secret_value().encode()
    _OUT.stream = stream
    level = _LEVELS[settings.logs.level]
    _OUT.logger = _logger(level)
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _FromLibraries)]:
        root.removeHandler(old)
    root.addHandler(_FromLibraries(level, now))
    logging.getLogger(_KAFKA).setLevel(level)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _thread_died


def logger() -> FilteringBoundLogger:
    """Give the logger: `logger().info("call_ended", upstream=..., key=record.key)`. Ask for it after `configure`, not at import.

    A level that is off costs one empty call.
    """
    return _OUT.logger


def kafka_logger() -> logging.Logger:
    """Give the standard logger that Kafka clients take as `logger=`; its lines become `kafka_client` events."""
    return logging.getLogger(_KAFKA)


def key_hash(key: bytes) -> str:
    """Name a key without telling it: 12 hex of an HMAC-SHA256. Equal in all processes that share `logs.key_secret`."""
    return hmac.new(_OUT.key_secret, key, hashlib.sha256).hexdigest()[:_KEY_HASH_CHARS]


def _logger(level: int) -> FilteringBoundLogger:
    """Make the logger of one level."""
    return cast(
        "FilteringBoundLogger",
        structlog.wrap_logger(
            _Sink(),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
                structlog.processors.format_exc_info,
                _hashed,
                _redacted_line,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(level),
            cache_logger_on_first_use=False,
        ).bind(),
    )


def _hashed(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401 - structlog's signature
    """Put a hash in place of a key, however it was handed in: a partition key may be an API key."""
    key = event.pop("key", None)
    if key is not None:
        event["key_hash"] = key_hash(key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogateescape"))
    return event


def _redacted_line(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:  # noqa: ANN401 - as above
    """Mask every text in the event, then write it as one line of JSON: nothing can come in behind the mask."""
    ordered = {name: event[name] for name in _ORDER if name in event} | dict(event)
    plain = _plain(ordered, _OUT.redact, 0)
    try:
        return orjson.dumps(plain).decode() + "\n"
    except TypeError:  # a lone surrogate, a number beyond 64 bits: the standard library writes those
        return json.dumps(plain) + "\n"


def _plain(value: Any, redact: Redactor, depth: int) -> Any:  # noqa: ANN401 - a log takes anything
    """Rebuild a value from JSON's types, every text in it masked."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return redact(bytes(value).decode("utf-8", "backslashreplace"))
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(_plain(str(name), redact, depth)): _plain(below, redact, depth + 1) for name, below in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [_plain(below, redact, depth + 1) for below in value]
    try:
        return redact(f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else str(value))
    except Exception:  # noqa: BLE001 - whatever an object's own __str__ raises, the line is written
        return f"<{type(value).__name__}>"


class _FromLibraries(logging.Handler):
    """Brings the standard library's log records into our lines. `logging` lets one thread in at a time."""

    def __init__(self, level: int, now: Callable[[], float]) -> None:
        super().__init__(level)
        self._now = now
        self._repetition = Repetition()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record. librdkafka's have three arguments: facility, client and text."""
        level = "error" if record.levelno >= logging.ERROR else "warning" if record.levelno >= logging.WARNING else record.levelname.lower()
        write = getattr(_OUT.logger, level if level in _LEVELS else "debug")
        failure = record.exc_info if record.exc_info and record.exc_info[0] is not None else None
        if record.name == _KAFKA and isinstance(record.args, tuple) and len(record.args) == 3:
            facility, client, text = record.args
            # At level debug somebody wants to see each one.
            repeated = self._repetition.heard(f"{client} {text}", self._now()) if record.levelno > logging.DEBUG else 0
            if repeated is not None:
                count = {"repeated": repeated} if repeated else {}
                write("kafka_client", facility=facility, client=client, message=text, **count)
        elif record.name == _KAFKA or record.levelno >= logging.WARNING:
            write("library_log", logger=record.name, message=record.getMessage(), exc_info=failure)


class _Sink:
    """The end of the chain: hands finished lines to the process's output of the moment."""

    def msg(self, line: str) -> None:
        """Write one line by one call, so that lines of threads do not mix. A reader that went away must not stop the work."""
        with contextlib.suppress(OSError, ValueError):
            stream = _OUT.stream or sys.stderr
            stream.write(line)
            stream.flush()

    debug = info = warning = error = critical = exception = log = msg


def _thread_died(died: threading.ExceptHookArgs) -> None:
    """Log the end of a thread; Python's own words would go to stderr with whatever the exception holds."""
    if died.exc_value is not None:
        name = died.thread.name if died.thread is not None else None
        _OUT.logger.error("thread_died", thread=name, error_type=died.exc_type.__name__, exc_info=died.exc_value)


_OUT = _Output()
