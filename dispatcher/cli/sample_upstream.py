"""`dispatcher sample-upstream`: the callee for trying things out, as a process of its own."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("sample-upstream")(sample_upstream)


def sample_upstream(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8080,
    speed: Annotated[float, typer.Option(min=0.001, help="How many times faster than a real model answers.")] = 1.0,
    latency_ms: Annotated[float | None, typer.Option(min=0, help="Fixed time per call, instead of one from token counts.")] = None,
    rate_limit: Annotated[float | None, typer.Option(min=0.001, help="Calls per second and credential; more get 429.")] = None,
    quota_per_s: Annotated[int | None, typer.Option(min=1, help="Calls in any second and per credential; more get 429.")] = None,
    quota_at_once: Annotated[int | None, typer.Option(min=1, help="Open calls per credential; more get 429.")] = None,
    fault_rate: Annotated[float, typer.Option(min=0, max=1, help="Share of calls that fail: 429, 500, 503 or a reset.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the fault rate.")] = 0,
    witness_events: Annotated[int, typer.Option(min=0, help="Events kept for GET /witness; 0 keeps only the summary.")] = 200_000,
) -> None:
    """Run an OpenAI-shaped upstream that fails on demand and witnesses every call; prints its URL when it listens."""
    from dispatcher.sample_upstream import Options, Timing
    from dispatcher.sample_upstream.process import serve

    serve(
        Options(
            host=host,
            port=port,
            timing=Timing(speed=speed, latency_ms=latency_ms),
            rate_limit_per_s=rate_limit,
            quota_per_s=quota_per_s,
            quota_at_once=quota_at_once,
            fault_rate=fault_rate,
            seed=seed,
            events_max=witness_events,
        )
    )
