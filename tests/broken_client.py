"""librdkafka's own hook for tests: a client that takes a fatal error for granted, as after a fence."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Producer

# Where CPython keeps what an object of a C class holds: behind the count of its references and its type. The client comes first.
_HANDLE = object.__basicsize__


@cache
def _library() -> ctypes.CDLL:
    """Find the library that the binding has loaded: beside the package (Linux) or in it (macOS)."""
    package = Path(confluent_kafka.__file__).parent
    found = [*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*")]
    library = ctypes.CDLL(str(found[0]))
    library.rd_kafka_test_fatal_error.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    return library


def break_for_good(client: Consumer | Producer, code: int = KafkaError.UNKNOWN) -> None:
    """Raise a fatal error in a client, with `code` as its cause."""
    handle = ctypes.c_void_p.from_address(id(client) + _HANDLE).value
    assert 0 == _library().rd_kafka_test_fatal_error(handle, code, b"by a test")
