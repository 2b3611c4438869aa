"""The closed lists are those of the published contract."""

from __future__ import annotations

from dispatcher.core.messages.status import Reason, Status


def test_statuses_are_the_contract() -> None:
    """Readers switch over these words: none is added, renamed or lost unnoticed."""
    assert [status.value for status in Status] == ["ok", "error", "dead", "expired", "cancelled"]


def test_reasons_are_part_of_the_contract() -> None:
    """Those whose feature is built, of the closed list of dead letters, and the one of replies."""
    contract = {
        *("malformed", "unsupported_schema", "unknown_upstream", "forbidden", "unsupported_field", "wrong_partition"),
        *("attempts_exhausted", "deadline_exceeded", "outcome_unknown", "quota_exhausted", "too_large", "id_conflict", "halted_key"),
        "budget_exhausted",
        "reply_topic_forbidden",
        "reply_too_large",
    }
    assert contract == {reason.value for reason in Reason}


def test_words_print_as_themselves() -> None:
    """In headers, labels and messages a reason is its word, not its Python name."""
    assert f"{Reason.TOO_LARGE}" == "too_large"
    assert str(Status.OK) == "ok"
