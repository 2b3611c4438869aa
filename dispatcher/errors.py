"""The exception tree. Each leaf is one sentence for a person, a hint, and an exit code.

DispatcherError
├── ConfigError            2  settings, flags or arguments cannot be used
├── BrokerError            3  Kafka unreachable, refused us, or took our membership away
├── WaitTimeout            4  what was waited for did not come in time
│   └── SubmitUnknown      4  no acknowledgement: the request may be in the topic, or may not
├── RefusedError           5  asked for something that would break a guarantee
└── CallFailed             1  the call failed, or an item of a batch did
"""

from __future__ import annotations


class DispatcherError(Exception):
    """An error that a person reads: `message` is one sentence, `hint` says what to do about it."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(DispatcherError):
    """A setting, flag or argument cannot be used as given."""

    exit_code = 2


class BrokerError(DispatcherError):
    """Kafka cannot be reached, refused us, or took our membership away for good."""

    exit_code = 3


class WaitTimeout(DispatcherError):
    """What was waited for did not come within the time given."""

    exit_code = 4


class SubmitUnknown(WaitTimeout):
    """No acknowledgement came for a request: it may be in the topic, or may not. Submitting it again under `request_id` is safe."""

    def __init__(self, message: str, hint: str = "", *, request_id: str | None = None) -> None:
        super().__init__(message, hint)
        self.request_id = request_id


class RefusedError(DispatcherError):
    """The request is understood and refused, since it would break a guarantee."""

    exit_code = 5


class CallFailed(DispatcherError):
    """The call itself failed, or at least one item of a batch did."""

    exit_code = 1
