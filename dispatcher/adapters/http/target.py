"""A target is an upstream made ready for calls: everything that is the same for each of them, computed once at start."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, urlsplit

from dispatcher.core.messages.call import Answered, Call, CallResult, HeaderPairs
from dispatcher.core.redaction import Redactor
from dispatcher.errors import ConfigError
from dispatcher.settings import Settings, UpstreamSettings

# RFC 9110: a token; a field value without control characters (CR and LF would begin another header or request).
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*").fullmatch
# What may stand in a request line as it is; a fragment is no part of it.
_PATH = re.compile(r"/[!-\"$-~]*").fullmatch
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+").fullmatch

# Sent unless the message says otherwise. Identity: the body is kept as bytes, and its limit then counts what is kept.
_OURS: HeaderPairs = (("accept", "*/*"), ("accept-encoding", "identity"), ("user-agent", "dispatcher"))


# They frame the message or name the connection: the client library writes them, and a second one is how requests are smuggled.
_FRAMING = frozenset({"connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"})


@dataclass(frozen=True, slots=True)
class Target:
    """Where an upstream is and what every call to it carries. Holds resolved secrets: `credentials` does not print."""

    upstream: str  # alias, for messages
    scheme: str
    host: str  # without brackets
    port: int
    authority: str  # the Host header: as in base_url, the scheme's own port left out
    prefix: str  # path of base_url, without a slash at the end
    allow_private: bool
    connect_timeout_s: float
    first_byte_timeout_s: float | None
    idle_timeout_s: float | None
    response_max_bytes: int
    credentials: Mapping[str, tuple[str, str]] = field(repr=False)  # alias -> header name in lower case, secret
    masks: Mapping[str, Redactor] = field(repr=False)  # alias -> keeps its secret out of answers

    def path(self, call: Call) -> str | None:
        """Give the path and query to ask for, byte for byte as written, or None where it cannot stand in a request line."""
        whole = self.prefix + call.path
        return whole if _PATH(whole) and _TOKEN(call.method) else None

    def headers(self, call: Call) -> list[tuple[str, str]] | None:
        """Give the headers of a call and its credential, names in lower case, or None where one is unknown or cannot be written."""
        headers = [(name.lower(), value) for name, value in call.headers]  # aiohttp keeps the last of names that differ in case
        given = {name for name, _ in headers}
        if given & _FRAMING or not all(_TOKEN(name) and _VALUE(value) for name, value in headers):
            return None
        if call.credential is not None:
            credential = self.credentials.get(call.credential)
            if credential is None or credential[0] in given:  # two values of one: which would the callee take?
                return None
            headers.append(credential)
        headers.extend(pair for pair in _OURS if pair[0] not in given)
        return headers

    def masked(self, call: Call, result: CallResult) -> CallResult:
        """Give an answer without the secret that its call carried: callees echo requests, and answers are published."""
        mask = self.masks.get(call.credential or "")
        if mask is None or not isinstance(result, Answered):
            return result
        # Latin-1 keeps every byte, and a secret is ASCII.
        body = mask.known(result.body.decode("latin-1")).encode("latin-1")
        return replace(result, headers=tuple((name, mask.known(text)) for name, text in result.headers), body=body)


def make_target(name: str, settings: Settings, secrets: Mapping[str, str]) -> Target:
    """Make an upstream ready. Raises ConfigError where its address or a secret of its credentials cannot be used."""
    upstream = settings.upstreams[name]
    url, port = _address(name, upstream)
    credentials = {}
    for alias in upstream.credentials:
        if alias not in secrets:
            raise ConfigError(f"credential {alias} of upstream {name} has no value", "give it value, value_env or value_file")
        if not _VALUE(secrets[alias]):
            raise ConfigError(f"credential {alias} has a value that cannot stand in a header", "remove line breaks from it")
        credentials[alias] = (settings.credentials[alias].header.lower(), secrets[alias])
    host = _canonical((url.hostname or "").rstrip("."))
    literal = f"[{host}]" if ":" in host else host
    return Target(
        upstream=name,
        scheme=url.scheme,
        host=host,
        port=port,
        authority=literal if url.port is None else f"{literal}:{url.port}",
        prefix=url.path.rstrip("/"),
        allow_private=upstream.allow_private,
        connect_timeout_s=upstream.connect_timeout_s,
        first_byte_timeout_s=upstream.first_byte_timeout_s,
        idle_timeout_s=upstream.idle_timeout_s,
        response_max_bytes=upstream.response_max_bytes,
        credentials=credentials,
        masks={alias: Redactor([secret]) for alias, (_, secret) in credentials.items()},
    )


def _canonical(host: str) -> str:
    """Write an IPv4 address in the one way that every library reads alike: 127.1, 0x7f.1 and 2130706433 are 127.0.0.1."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return host


def _address(name: str, upstream: UpstreamSettings) -> tuple[SplitResult, int]:
    """Take base_url apart and give its port. Raises ConfigError where libraries could read different hosts out of it."""
    try:
        url = urlsplit(upstream.base_url)
        port = url.port or {"http": 80, "https": 443}[url.scheme]
    except (ValueError, KeyError):
        raise ConfigError(f"base_url of upstream {name} is not an address", "write http(s)://host:port/path") from None
    if not _HOST(url.hostname or ""):
        raise ConfigError(f"base_url of upstream {name} has a host that is neither an ASCII name nor an address", "write it in punycode")
    return url, port
