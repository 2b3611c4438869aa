"""Redaction: a secret is found in every form in which it travels, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.redaction import MASK, Redactor

CANARY = 'sk-canary/7f+Q2="x\\y'
SECRETS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=60)


@pytest.mark.parametrize(
    "form",
    [
        CANARY,
        quote(CANARY, safe=""),
        quote(CANARY, safe="").lower().replace("sk-canary%2f7f%2bq2", "sk-canary%2f7f%2bQ2"),
        quote_plus(CANARY),
        urlencode({"key": CANARY}),
        json.dumps({"error": CANARY}),
        repr(CANARY),
        repr(CANARY.encode()),
        base64.b64encode(CANARY.encode()).decode(),
        base64.urlsafe_b64encode(CANARY.encode()).decode().rstrip("="),
    ],
)
def test_every_form_of_a_known_secret_is_masked(form: str) -> None:
    """As it is, percent-encoded, in JSON, in a repr, in base64."""
    masked = Redactor([f"Bearer {CANARY}"])(f"before {form} after")
    assert MASK in masked
    assert "canary" not in masked
    assert base64.b64encode(CANARY.encode()).decode()[:12] not in masked
    assert masked.startswith("before ")
    assert masked.endswith(" after")


# Base64 as tokens are, and what encoders escape.
AWKWARD = "sk/canary+dEf<9>&gHiJ'kLm/12==nOpQ="


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(AWKWARD.replace("/", r"\/"), id="PHP"),
        pytest.param("".join(rf"\u{ord(c):04x}" if c in "=<>&'" else c for c in AWKWARD), id="Gson"),
        pytest.param("".join(rf"\u{ord(c):04X}" if c in "<>&" else c for c in AWKWARD), id="escape-HTML-capitals"),
        pytest.param("".join(rf"\x{ord(c):02x}" if not c.isalnum() else c for c in AWKWARD), id="JavaScript"),
        pytest.param(html.escape(AWKWARD), id="HTML"),
        pytest.param("".join(f"&#x{ord(c):X};" if c in "/='<>&" else c for c in AWKWARD), id="HTML-hexadecimal"),
        pytest.param("".join(f"&#{ord(c):03d};" if c in "/='<>&" else c for c in AWKWARD), id="HTML-decimal"),
        pytest.param(html.escape(html.escape(AWKWARD)), id="HTML-twice"),
        pytest.param(quote(quote(AWKWARD, safe="/")), id="percent-twice"),
        pytest.param(json.dumps({"in": json.dumps({"it": html.escape(AWKWARD)}).replace("/", r"\/")}), id="JSON-in-JSON"),
        pytest.param(base64.b64encode(b"?>" + AWKWARD.encode()).decode().replace("/", r"\/").replace("+", r"\u002b"), id="base64-in-JSON"),
    ],
)
def test_a_secret_is_found_as_any_encoder_escapes_it(form: str) -> None:
    """A callee that echoes a request writes it as its own JSON or HTML library does, and whoever reads that has the secret again."""
    masked = Redactor([f"Bearer {AWKWARD}"]).known(f'{{"echo":"Bearer {form}"}}')
    assert masked.startswith('{"echo":"')
    assert MASK in masked
    for part in ("canary", "nOpQ", "kLm", base64.b64encode(AWKWARD.encode()).decode()[8:20]):
        assert part not in masked


@given(secret=SECRETS, slashes=st.integers(0, 5000))
def test_what_is_left_of_an_answer_is_its_own(secret: str, slashes: int) -> None:
    """Signs that begin an escape are not eaten where no secret follows, however many there are."""
    text = "\\" * slashes + "&amp;" * slashes + "%25" * slashes
    assert text == Redactor([f"q{secret}q"]).known(text)


@given(secret=SECRETS, before=st.text(max_size=20), after=st.text(max_size=20))
def test_a_secret_in_any_surroundings_is_masked(secret: str, before: str, after: str) -> None:
    """Wherever it stands, what was written around it cannot bring it back."""
    assert secret not in Redactor([secret])(f"{before}{secret}{after}") or secret in f"{before}{MASK}{after}"


@given(
    secret=st.binary(min_size=12, max_size=40).map(lambda raw: "k" + raw.hex()),
    before=st.binary(max_size=7),
    after=st.binary(max_size=7),
)
def test_a_secret_inside_a_longer_base64_text_is_masked(secret: str, before: bytes, after: bytes) -> None:
    """`Basic` credentials and base64 bodies hold secrets at any offset; what stays of the text does not decode to the secret."""
    masked = Redactor([secret])(base64.b64encode(before + secret.encode() + after).decode())
    assert MASK in masked
    head, _, tail = masked.partition(MASK)
    assert len(head) <= (len(before) + 2) * 4 / 3 + 2
    assert len(tail) <= (len(after) + 2) * 4 / 3 + 4


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        ("basic dXNlcjpwYXNzd29yZA==", "basic ***"),
        ("https://user:password@host/x", "https://***@host/x"),
        ("https://host/a@b", "https://host/a@b"),
        ("the bearer of this", "the bearer of this"),
    ],
)
def test_unknown_secrets_are_known_by_their_shape(text: str, masked: str) -> None:
    """A caller's own key in a callee's error text is not in our settings; a scheme before it gives it away."""
    assert masked == Redactor()(text)


def test_parts_of_a_secret_are_secrets() -> None:
    """The token behind its scheme, the password of a Basic pair, the lines of a private key."""
    basic = base64.b64encode(b"user:pass-canary").decode()
    pem = "-----BEGIN PRIVATE KEY-----\nMIICanaryLine0123456789\nMIICanaryLine9876543210\n-----END PRIVATE KEY-----\n"
    redact = Redactor([f"Basic {basic}", "Bearer tok-canary", pem])
    for part in ("pass-canary", "user:pass-canary", "tok-canary", "MIICanaryLine9876543210"):
        assert "anary" not in redact(f"<{part}>")
    assert redact("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


def test_an_answer_keeps_its_own_words() -> None:
    """In a callee's answer only what is known is masked: a text about `Bearer abcdefgh` is the answer that was paid for."""
    text = "use Bearer abcdefgh12345, not sk-canary"
    assert Redactor(["sk-canary"]).known(text) == "use Bearer abcdefgh12345, not ***"
    assert Redactor().known(text) == text


def test_short_values_are_no_secrets() -> None:
    """Masking every `1` or `abc` would make logs unreadable and hide nothing."""
    assert Redactor(["abc", "", "1"])("abc 1") == "abc 1"


def test_the_longer_of_two_secrets_wins() -> None:
    """One secret that begins another one leaves nothing of the longer one behind."""
    assert Redactor(["canary", "canary-and-more"])("x canary-and-more x") == "x *** x"


def test_a_redactor_does_not_print_its_secrets() -> None:
    """Its repr may end in a log."""
    assert "canary" not in repr(Redactor(["sk-canary"]))
