"""Tokens and money on the broker: from the callee's answer to the reply, the metrics and `dispatcher usage`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dispatcher.client.submitter import Submitter, stamp
from dispatcher.core.messages.submission import request
from tests.e2e.conftest import Run
from tests.e2e.stage import Stage, by_request, header, stage, value
from tests.topics import SettingsFactory

MODELS = {
    "m-1": {"usd_per_million": 2},
    "m-2": {"input_usd_per_million": 1, "output_usd_per_million": 10, "cache_read_usd_per_million": 0.1},
}
CACHED = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 800}}


def submit(of: Stage, name: str, key: str, body: dict[str, Any], path: str = "/echo") -> None:
    """Have the callee answer with this body."""
    content = json.dumps({"upstream": "sample", "path": path, "body": body}).encode()
    with Submitter(of.settings) as submitter:
        submitter.submit(request(key, content, stamp(request_id=name)))


def rows(run: Run, of: Stage, by: str, *arguments: str) -> list[dict[str, Any]]:
    """What `dispatcher usage` prints."""
    environ = {"DISPATCHER_TOPICS__PREFIX": of.settings.topics.prefix}
    done = run("usage", "--by", by, "--json", *arguments, "-b", of.settings.kafka.bootstrap_servers, env=environ)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_an_answer_used_is_told_everywhere_once(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """Priced in the reply, counted in metrics, summed up by key and model; a duplicate costs nothing, and nobody's price is null."""
    usage = {"reference_model": "m-2"}
    with stage(settings, tmp_path, partitions=1, models=MODELS, usage=usage) as set_up:
        submit(set_up, "flat", "doc:1", {"model": "m-1-2026-01-31", "usage": {"input_tokens": 700_000, "output_tokens": 300_000}})
        submit(set_up, "cached", "doc:2", {"model": "m-2", "usage": CACHED})
        submit(set_up, "unknown", "doc:2", {"model": "who", "usageMetadata": {"promptTokenCount": 5, "thoughtsTokenCount": 2}})
        submit(set_up, "none", "doc:2", {"model": "m-1"})
        submit(set_up, "error", "doc:2", {"model": "m-1", "usage": {"prompt_tokens": 9}, "error": {"code": 400, "message": "x"}})
        submit(set_up, "cached", "doc:2", {"model": "m-2", "usage": CACHED})
        worker = set_up.worker()
        records = set_up.replies().await_count(6)
        assert value(records[-1])["duplicate"]
        assert "usage" not in value(records[-1])
        used: dict[str, Any] = {name: value(record).get("usage") for name, record in by_request(records[:-1]).items()}
        told = {"input_tokens": 1000, "output_tokens": 100, "cache_read_tokens": 800}
        assert {"model": "m-2", **told, "cost_usd": "0.00128", "savings_usd": "0"} == used["cached"]
        assert ("2", "1.7", None) == (used["flat"]["cost_usd"], used["flat"]["savings_usd"], used["none"])
        assert {"model": "who", "input_tokens": 5, "output_tokens": 2, "reasoning_tokens": 2, "cost_usd": None} == used["unknown"]
        assert ("error", "0.000018") == (header(records[-2], "dispatcher-status"), used["error"]["cost_usd"])
        by_key = {row["key"]: (row["replies"], row["cost_usd"], row["unpriced"]) for row in rows(run, set_up, "key")}
        assert {"doc:1": (1, "2", 0), "doc:2": (3, "0.001298", 1)} == by_key
        by_model = {row["model"]: row["cost_usd"] for row in rows(run, set_up, "model", "-k", "doc:2")}
        assert {"m-2": "0.00128", "m-1": "0.000018", "who": None} == by_model
        metrics = worker.get("/metrics").text
        for line in (
            'dispatcher_tokens_total{kind="cache_read",model="m-2",upstream="sample"} 800.0',
            'dispatcher_cost_usd_total{model="m-1",upstream="sample"} 2.000018',
            'dispatcher_price_unknown_total{model="other",upstream="sample"} 1.0',
        ):
            assert line in metrics
