"""Dead letters: the original byte-identical, one bounded set of error headers, and a form for what no topic takes."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.dead_letter import DeadLetter
from dispatcher.core.messages.record import Header, Record
from dispatcher.core.messages.status import Reason
from tests.specimens import DEAD_LETTERS, record

ERRORS = "__dispatcher.errors."
NAMES = ("topic", "partition", "offset", "timestamp", "group", "delivery.count", "stage", "exception.class.name", "message", "reason")
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=50)), max_size=6).map(tuple)


def letter(of: Record, message: str = "the value is not JSON") -> DeadLetter:
    """A letter as a lane writes it for a refused record."""
    return DeadLetter(of, DEAD_LETTERS, of.partition, "g", Reason.MALFORMED, message, "decode", "malformed")


def split(headers: tuple[Header, ...]) -> tuple[tuple[Header, ...], dict[str, bytes | None]]:
    """Original and error headers; every error header stands once."""
    own = [header for header in headers if header[0].startswith(ERRORS) or header[0] == "kafka_dlt-original-topic"]
    assert len(own) == len(dict(own))
    return tuple(header for header in headers if header not in own), dict(own)


@given(st.none() | st.binary(max_size=50), st.none() | st.binary(max_size=200), HEADERS)
def test_the_original_is_byte_identical(key: bytes | None, content: bytes | None, headers: tuple[Header, ...]) -> None:
    """Key, value and headers as they came: None is not empty, duplicates and their order stay, nothing is decoded."""
    message = letter(record(content, key=key, headers=headers)).letter()
    assert (message.topic, message.partition, message.key, message.value) == (DEAD_LETTERS, 0, key, content)
    assert split(message.headers)[0] == headers


def test_the_errors_are_the_contract() -> None:
    """Where it stood, who gave up at which stage, and why."""
    full = replace(letter(record(timestamp_ms=7)), attempts=3, http_status=500, upstream="openai")
    own = split(full.letter().headers)[1]
    assert own == {
        f"{ERRORS}topic": b"dispatcher.requests",
        f"{ERRORS}partition": b"0",
        f"{ERRORS}offset": b"5",
        f"{ERRORS}timestamp": b"7",
        f"{ERRORS}group": b"g",
        f"{ERRORS}delivery.count": b"3",
        f"{ERRORS}stage": b"decode",
        f"{ERRORS}exception.class.name": b"malformed",
        f"{ERRORS}message": b"the value is not JSON",
        f"{ERRORS}reason": b"malformed",
        f"{ERRORS}http.status": b"500",
        f"{ERRORS}upstream": b"openai",
        "kafka_dlt-original-topic": b"dispatcher.requests",
    }
    assert {f"{ERRORS}{name}" for name in NAMES} <= split(letter(record()).letter().headers)[1].keys()


def test_errors_are_replaced_on_repeat() -> None:
    """Fifty times around: the same number of headers, the last cause, the original untouched."""
    headers: tuple[Header, ...] = (("a", b"1"), ("a", None), ("\u00fc", b"\xff"))
    sent = record(headers=headers)
    sizes = set()
    for number in range(50):
        message = letter(sent, f"cause {number:02}").letter()
        sent = record(headers=message.headers)
        sizes.add(message.size_bytes)
    original, own = split(sent.headers or ())
    assert original == headers
    assert own[f"{ERRORS}message"] == b"cause 49"
    assert len(sizes) == 1


@given(st.text(max_size=3000) | st.just("\udcff") | st.just("é" * 5000))
def test_errors_are_bounded(message: str) -> None:
    """Less than 4 KiB in all, whatever the texts, and always UTF-8."""
    widest = replace(record(None, topic="t" * 249, key=b"k" * 70_000), offset=2**63 - 1, partition=2**31 - 1, timestamp_ms=-(2**63))
    long = replace(
        letter(widest, message), group="ü" * 200, kind="x" * 5000, upstream="u" * 64, http_status=999, attempts=10**9, stage="publish"
    )
    for written in (long.letter(), long.cut().letter()):
        own = split(written.headers)[1]
        assert sum(len(name) + len(content or b"") for name, content in own.items()) < 4096
        assert all((content or b"").decode("utf-8") is not None for content in own.values())


def test_unreadable_headers_have_a_marker() -> None:
    """The client showed none, since a name is not UTF-8: the letter says so."""
    assert split(letter(record(headers=None)).letter().headers) == ((), split(letter(record(headers=None)).letter().headers)[1])
    assert split(letter(record(headers=None)).letter().headers)[1][f"{ERRORS}headers"] == b"unreadable"


def test_what_no_topic_takes_goes_as_its_hash_and_beginning() -> None:
    """Marked `too_large`, with length and hash, so that the original can be found and told."""
    content = b"x" * 9_000_000
    message = letter(record(content, headers=(("a", b"1"),))).cut().letter()
    original, own = split(message.headers)
    assert (message.key, message.value, original) == (b"doc:42", content[: 64 * 1024], (("a", b"1"),))
    assert own[f"{ERRORS}reason"] == b"too_large"
    assert own[f"{ERRORS}value.bytes"] == b"9000000"
    assert own[f"{ERRORS}value.sha256"] == hashlib.sha256(content).hexdigest().encode()


@given(
    st.sampled_from([None, b"", b"x" * 10, b"x" * 9_000_000]),
    st.sampled_from([None, b"k", b"k" * 9_000_000]),
    st.sampled_from([None, (), (("a", b"x" * 9_000_000),), (("a", None),) * 100_000, (("ü" * 1_000_000, b""),)]),
)
def test_a_cut_letter_fits(content: bytes | None, key: bytes | None, headers: tuple[Header, ...] | None) -> None:
    """Value, key, header values, many headers, long names: whatever is huge is cut to far below a mebibyte."""
    cut = letter(record(content, key=key, headers=headers)).cut()
    assert cut.letter().size_bytes < 512 * 1024
    assert cut.cut().letter().size_bytes < 16 * 1024
    assert cut.cut().cut() == cut.cut()
    own = split(cut.letter().headers)[1]
    assert (f"{ERRORS}key.sha256" in own) == (key is not None and len(key) > 64 * 1024)
    assert (f"{ERRORS}headers" in own) == (headers is None or len(headers) == 100_000 or (len(headers) == 1 and len(headers[0][0]) > 0))
