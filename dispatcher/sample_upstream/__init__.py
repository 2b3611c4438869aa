"""The sample upstream: a callee for the demo and the tests, which answers like a chat API, fails on demand, and witnesses every call.

It is no part of the dispatcher's own work: nothing in `core` or `adapters` knows it. `history` judges one lane, `witness` all calls,
`behaviour` says how long and how wrong, `server` speaks HTTP.
"""

from __future__ import annotations

from dispatcher.sample_upstream.behaviour import Timing
from dispatcher.sample_upstream.server import Options, SampleUpstream, running
from dispatcher.sample_upstream.witness import Visit, Witness

__all__ = ["Options", "SampleUpstream", "Timing", "Visit", "Witness", "running"]
