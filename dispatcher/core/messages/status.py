"""The closed lists of how a request can end."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Terminal status of an execution, as `dispatcher-status` and in the reply value."""

    OK = "ok"
    ERROR = "error"  # the callee answered with a final error
    DEAD = "dead"  # given up; a dead letter exists
    EXPIRED = "expired"  # the deadline passed before the call
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why a dead letter was written (all but the last), or why an answered call ended as `error` (the last)."""

    MALFORMED = "malformed"
    UNSUPPORTED_SCHEMA = "unsupported_schema"
    UNKNOWN_UPSTREAM = "unknown_upstream"
    FORBIDDEN = "forbidden"
    UNSUPPORTED_FIELD = "unsupported_field"
    WRONG_PARTITION = "wrong_partition"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    OUTCOME_UNKNOWN = "outcome_unknown"  # it may have been done, and must not be done twice
    QUOTA_EXHAUSTED = "quota_exhausted"  # the callee's quota or money is used up
    BUDGET_EXHAUSTED = "budget_exhausted"  # its key, credential or agent has spent its budget of the day
    TOO_LARGE = "too_large"
    ID_CONFLICT = "id_conflict"  # another request of its key had that id
    HALTED_KEY = "halted_key"  # more than may wait stood behind a halted key
    REPLY_TOPIC_FORBIDDEN = "reply_topic_forbidden"
    REPLY_TOO_LARGE = "reply_too_large"  # the call succeeded: an `error` reply, no dead letter
