"""HTTP calls to upstreams: one request per call, one typed result, whatever the callee does.

HttpEngine (engine.py) adds address, credential and deadline to a `Call` and asks a transport for the exchange. A transport
(transport_aiohttp.py, transport_httpx.py) wraps one client library; both pass the same hostile suite, tests/contract.
"""

from dispatcher.adapters.http.engine import HttpEngine, open_engine

__all__ = ["HttpEngine", "open_engine"]
