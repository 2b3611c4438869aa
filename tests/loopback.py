"""Asking our own processes on this machine, over plain HTTP."""

from __future__ import annotations

import ssl

import httpx

# `httpx.get` alone reads the certificates of all authorities each time: 25 ms of a core, twenty times a second where a test waits.
_NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def get(url: str, *, timeout_s: float = 30) -> httpx.Response:
    """Ask once, whatever the environment says of proxies. httpx's errors where nobody answers."""
    return httpx.get(url, trust_env=False, timeout=timeout_s, verify=_NO_AUTHORITIES)
