"""The exception tree. Each leaf is one sentence for a person, a hint, and an exit code.

DispatcherError
├── ConfigError            2  settings, flags or arguments cannot be used
├── BrokerError            3  Kafka unreachable, refused us, or took our membership away
│   ├── BrokerAway         3  Kafka does not answer: it may be back soon
│   │   └── TopicAway      3  Kafka knows no such topic: it was deleted, or its broker is just starting
│   │       └── PartitionAway  3  it knows the topic, which has no such partition
│   └── BrokerDenied       3  a right is missing: no repetition mends it
├── WaitTimeout            4  what was waited for did not come in time
│   ├── AskTimeout         4  the request is in its topic, its reply did not come: carries the receipt
│   └── SubmitUnknown      4  no acknowledgement: the request may be in the topic, or may not
├── RefusedError           5  asked for something that would break a guarantee
│   └── OwnLane            5  a callee waits for its own lane, which waits for the callee
├── CallFailed             1  the call failed, or an item of a batch did
└── ReplyGone              1  the request was settled, and its reply is not in the reply topic any more
"""

from __future__ import annotations

from typing import Any


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


class BrokerAway(BrokerError):
    """Kafka does not answer. Whoever has time may ask again; a login or a right that is refused is no such case."""


class TopicAway(BrokerAway):
    """Kafka answers, and knows no such topic. One that is ours may be made anew; one of somebody else is gone."""


class PartitionAway(TopicAway):
    """Kafka knows the topic, which has no such partition: it was made anew with fewer."""


class BrokerDenied(BrokerError):
    """Kafka does not let this user do it."""


class WaitTimeout(DispatcherError):
    """What was waited for did not come within the time given."""

    exit_code = 4


class AskTimeout(WaitTimeout):
    """The request is in its topic and will be answered; its reply did not come in time, or cannot be waited for here.

    `receipt` (a `Receipt`; errors know no other module) is what to wait for, from any process.
    """

    def __init__(self, message: str, hint: str = "", *, receipt: Any) -> None:  # noqa: ANN401 - see above
        super().__init__(message, hint)
        self.receipt = receipt


class SubmitUnknown(WaitTimeout):
    """No acknowledgement came for a request: it may be in the topic, or may not. `request_id` is the id to submit it under again.

    Both requests are then called under one `Idempotency-Key`: a callee that knows such keys acts once. The workers themselves do not
    leave out the second one.
    """

    def __init__(self, message: str, hint: str = "", *, request_id: str | None = None) -> None:
        super().__init__(message, hint)
        self.request_id = request_id


class RefusedError(DispatcherError):
    """The request is understood and refused, since it would break a guarantee."""

    exit_code = 5


class OwnLane(RefusedError):
    """A callee asked for something in the lane whose call it is answering: that lane goes on only when the callee has answered."""


class CallFailed(DispatcherError):
    """The call itself failed, or at least one item of a batch did."""

    exit_code = 1


class ReplyGone(DispatcherError):
    """The request was settled, and its reply is not in the reply topic: retention removed it, or somebody moved the group's position."""

    exit_code = 1
