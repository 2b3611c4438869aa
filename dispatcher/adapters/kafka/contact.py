"""Blocking questions to Kafka that a person can interrupt."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from dispatcher.adapters.kafka.faults import error_of

# Python hears Ctrl-C only between two calls of librdkafka. As long as no connection stands, a call that ends early loses nothing.
SLICE_S = 0.5

_Answer = TypeVar("_Answer")


def contact(ask: Callable[[float], _Answer], timeout_s: float) -> _Answer:
    """Ask, each time for at most some seconds, until there is an answer or `timeout_s` have passed: then the last KafkaException.

    `ask` gets the seconds that it may take. Without a connection it gets short slices; a broker that was asked and did not answer in
    time is given longer and longer.
    """
    end = time.monotonic() + timeout_s
    slice_s = SLICE_S
    while True:
        left_s = end - time.monotonic()
        try:
            # Never 0, which librdkafka may take for "no wait" or "for ever".
            return ask(max(0.05, min(slice_s, left_s)))
        except KafkaException as failure:
            error = error_of(failure)
            code = error.code() if error is not None else None
            if code not in {KafkaError._TRANSPORT, KafkaError._TIMED_OUT} or left_s <= slice_s:
                raise
            if code == KafkaError._TIMED_OUT:
                slice_s *= 2
