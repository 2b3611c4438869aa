"""Errors as confluent-kafka raises them, with the flags that librdkafka sets."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


class Refused(Exception):
    """The broker answers with an error."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.name())
        self.error = error


def retriable(code: int) -> KafkaError:
    """An error after which the same call may be made again."""
    return _error(code, is_retriable=True)


def abortable(code: int) -> KafkaError:
    """An error after which the transaction has to be aborted."""
    return _error(code, needs_abort=True)


def fatal(code: int) -> KafkaError:
    """An error after which the client is of no use."""
    return _error(code, is_fatal=True)


def plain(code: int) -> KafkaError:
    """An error without any flag."""
    return _error(code)


def _error(code: int, *, is_fatal: bool = False, is_retriable: bool = False, needs_abort: bool = False) -> KafkaError:
    return KafkaError(code, "simulated", is_fatal, is_retriable, needs_abort)


def fenced() -> Refused:
    """A newer producer of the same name exists, or the coordinator gave up on the transaction."""
    return Refused(fatal(KafkaError._FENCED))


def timed_out() -> KafkaException:
    """No answer came in time; what was asked for may have happened, or may still."""
    return KafkaException(retriable(KafkaError._TIMED_OUT))
