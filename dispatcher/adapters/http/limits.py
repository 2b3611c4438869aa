"""Limits of the HTTP transports that nobody needs to set."""

from __future__ import annotations

# Idle connections are closed before the callee does it: uvicorn and Node close theirs after 5 s, and a request that crosses
# with the closing is ambiguous.
IDLE_MAX_S = 4.0
# One response header. Servers and proxies commonly stop at 8-16 KiB for all of them; httpx's parser takes 100 KiB for the head.
HEADER_MAX_BYTES = 64 * 1024
# Response headers. Some gateways send hundreds (one per limit and model); aiohttp's own default is 128.
HEADERS_MAX = 2000
# For how long the addresses of a host are believed; aiohttp's default.
ADDRESSES_MAX_AGE_S = 10.0
# Connections that one call may find spoiled, with nothing sent on any, before it says so: a kept one, a new one, and one to spare.
CONNECTIONS_TRIED_MAX = 3
