r"""Takes known secrets out of a text, in every form in which they travel: as they are, percent-encoded, base64, escaped, in parts.

What is escaped, and how, is each encoder's own affair: in JSON PHP writes a slash as `\/`, Gson an equals sign as `\u003d`, Go an
ampersand as `\u0026`, templates write `&#x2F;`; and a reader of the JSON has the secret again. So every character but letters and digits is
looked for in all of these ways, mixed as they come.

Pure, and in the core, since logs, replies, dead letters and the command line all need it. What is not known here is caught by
shape where it has one (`Bearer …`, `Basic …`, `user:password@host`).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from html.entities import html5
from urllib.parse import quote, quote_plus

MASK = "***"
# Shorter values are no secrets, and masking them would make every text unreadable ("true", "1").
_MIN_CHARS = 4
_ENCODING = ("utf-8", "surrogateescape")
# From this length on, the middle of a secret's base64 form is long enough to be found inside the base64 of a longer text.
_MIN_INNER_BYTES = 9
# The lines of a PEM key are 64 characters long, the last one may be short: that one alone says nothing.
_MIN_LINE_CHARS = 16
_SHAPES = re.compile(
    r"(?P<scheme>\b(?:bearer|basic)(?:\s|%20|\+)+)[A-Za-z0-9._~+/=%-]{8,}"
    r"|(?P<url>\b[a-z][a-z0-9+.-]{1,20}://)[^\s/?#@\"']+@",
    re.IGNORECASE,
)
# How deep one encoding stands in another: JSON in JSON in JSON doubles its backslashes, HTML and percent-encoding double the sign. Bounded,
# since a callee may send a million of them.
_BACKSLASHES = r"\\{1,7}"
_AMPERSAND = r"&(?:amp;){0,2}"
_PERCENT = r"%(?:25){0,2}"
# Escapes of JSON, Python and JavaScript that are a letter.
_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_NOT_ESCAPED = re.compile(r"[A-Za-z0-9]+")
_SCHEME = re.compile(r"\s*(?:bearer|basic|token|digest|apikey)\s+(\S.*)", re.IGNORECASE | re.DOTALL)


class Redactor:
    """Callable on a text: gives it back with every known secret masked. Immutable, so any thread may call it."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        secrets = tuple(secrets)
        forms = {form for secret in secrets for part in _parts(secret) for form in _forms(part)}
        # The longest first: a form that holds another one must not be cut in two.
        ordered = sorted((form for form in forms if len(form) >= _MIN_CHARS), key=lambda form: (-len(form), form))
        self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        plain = {plain for secret in secrets for part in _parts(secret) for plain in (part, *_base64_forms(part.encode(*_ENCODING)))}
        # Each with the longest stretch of it that nobody escapes: most texts do not hold that, and it is found in no time.
        self._escaped = tuple(
            (max(_NOT_ESCAPED.findall(text), key=len, default=""), re.compile("".join(map(_escaped, text))))
            for text in sorted(plain, key=lambda text: (-len(text), text))
            if len(text) >= _MIN_CHARS and not _NOT_ESCAPED.fullmatch(text)
        )

    def __call__(self, text: str) -> str:
        """Give the text back, masked: what is known, and what has the shape of a secret."""
        return _SHAPES.sub(_masked, self.known(text))

    def known(self, text: str) -> str:
        """Mask known secrets only. For a callee's answer: its own words must stay, even where they look like a secret.

        Took 9 ms for 1 MiB and one secret, 91 ms for twenty: hand such answers the secret of their call, not all of them.
        """
        for stretch, pattern in self._escaped:
            if stretch in text:
                text = pattern.sub(MASK, text)
        return text if self._pattern is None else self._pattern.sub(MASK, text)

    def __repr__(self) -> str:
        return "Redactor()"


def _masked(match: re.Match[str]) -> str:
    """Mask what a shape holds, and keep what tells a reader what it was."""
    return f"{match['scheme']}{MASK}" if match["scheme"] else f"{match['url']}{MASK}@"


def _parts(secret: str) -> Iterator[str]:
    """Yield what of a secret is secret by itself: all of it, the token behind its scheme, a Basic pair's password, a key's lines."""
    text = secret.strip()
    yield text
    with_scheme = _SCHEME.fullmatch(text)
    if with_scheme:
        yield with_scheme[1].strip()
        yield from _pair(with_scheme[1].strip())
    for line in map(str.strip, text.splitlines()):
        if _MIN_LINE_CHARS <= len(line) < len(text) and not line.startswith("-----"):
            yield line


def _pair(token: str) -> Iterator[str]:
    """Yield user:password and the password of a Basic token; nothing when it is another kind of token."""
    try:
        pair = base64.b64decode(token, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return
    _, separator, password = pair.partition(":")
    if separator and password.isprintable():
        yield pair
        yield password


def _forms(text: str) -> Iterator[str]:
    """Yield every form in which one text may appear in another."""
    raw = text.encode(*_ENCODING)
    yield text
    for encoded in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), encoded)
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    yield repr(raw)[2:-1]
    yield from _base64_forms(raw)


def _escaped(character: str) -> str:
    """Give the pattern of one character, in every way in which an encoder may write it; none touches ASCII letters and digits."""
    if character.isascii() and character.isalnum():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    in_utf_16 = "".join(f"{_BACKSLASHES}u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    in_bytes = [f"{byte:02x}" for byte in character.encode(*_ENCODING)]
    number = ord(character)
    names = "".join(f"|{re.escape(name)}" for name, meant in html5.items() if meant == character and name.endswith(";"))
    ways = (
        rf"\\{{0,7}}{re.escape(character)}",
        in_utf_16,
        "".join(f"{_BACKSLASHES}x(?i:{byte})" for byte in in_bytes),
        "".join(f"{_PERCENT}(?i:{byte})" for byte in in_bytes),
        rf"{_AMPERSAND}(?:#0{{0,5}}{number};|#[xX]0{{0,5}}(?i:{number:x});{names})",
    )
    letter = f"|{_BACKSLASHES}{_LETTERS[character]}" if character in _LETTERS else ""
    return f"(?:{'|'.join(ways)}{letter})"


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield base64 of the secret alone, and the stretches that stay the same wherever in a longer text it stands."""
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(raw).decode()
        yield whole
        yield whole.rstrip("=")
        if len(raw) < _MIN_INNER_BYTES:
            continue
        for shift in range(3):
            # `shift` foreign bytes stand before it in its first group of three; what they and the bytes behind it touch is left out.
            padded = encode(bytes(shift) + raw).decode().rstrip("=")
            first = -(-shift * 8 // 6)
            last = (shift + len(raw)) * 8 // 6
            yield padded[first:last]
