"""TLS towards upstreams: only who proves the name in base_url is spoken to, on the address that was checked."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dispatcher.adapters.http import open_engine
from dispatcher.core.messages.call import Ambiguous, Answered, Call, CallResult, NotSent
from dispatcher.settings import Settings
from tests.contract.hostile import Act, HostileCallee
from tests.waiting import eventually_async

CANARY = "Bearer sk-canary-77aa"


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Make a certificate for the name localhost, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, *names, "-out", str(certificate), "-keyout", str(key)], check=True, capture_output=True)
    return certificate, key


@pytest.fixture
async def secure(certificate: tuple[Path, Path]) -> AsyncIterator[HostileCallee]:
    """Listen with that certificate on 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    callee = HostileCallee()
    await callee.listen(tls=context)
    yield callee
    await callee.stop()


async def ask(engine_name: str, base_url: str, timeout_s: float = 30) -> CallResult:
    """Make one call with a new engine."""
    settings = Settings.model_validate(
        {
            "worker": {"http_engine": engine_name},
            "credentials": {"a": {"value": CANARY}},
            "upstreams": {"up": {"base_url": base_url, "credentials": ["a"], "allow_private": True}},
        }
    )
    engine = open_engine(settings, {"a": CANARY})
    try:
        return await engine.call(Call("up", "POST", "/x", (), b"{}", "a", timeout_s))
    finally:
        await engine.close()


@pytest.mark.parametrize("engine_name", ["aiohttp", "httpx"])
async def test_a_trusted_name_is_spoken_to(
    engine_name: str, secure: HostileCallee, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate that the system trusts (here by SSL_CERT_FILE) and that has base_url's name is accepted; Host is that name."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    result = await ask(engine_name, f"https://localhost:{secure.port}")
    assert isinstance(result, Answered), result
    assert f"host: localhost:{secure.port}\r\n".encode() in secure.requests[0].lower()


@pytest.mark.parametrize("engine_name", ["aiohttp", "httpx"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_who_is_not_trusted_sees_nothing(
    engine_name: str, host: str, secure: HostileCallee, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown issuer, or a trusted one with another name, is NotSent(tls): neither request nor credential left."""
    if host == "127.0.0.1":
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    result = await ask(engine_name, f"https://{host}:{secure.port}")
    assert isinstance(result, NotSent), result
    assert result.kind == "tls"
    assert secure.requests == []


@pytest.mark.parametrize("engine_name", ["aiohttp", "httpx"])
async def test_what_takes_too_long_is_cut_off(
    engine_name: str, secure: HostileCallee, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callee that says nothing more sees the connection end: it is not asked for TLS's goodbye first."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    secure.play(Act((b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",), "hang"))
    result = await ask(engine_name, f"https://localhost:{secure.port}", 2.0)
    assert isinstance(result, Ambiguous)
    assert "timeout" == result.kind
    await eventually_async(lambda: (secure.left, secure.open) == (1, 0))
