"""A dead letter is no end: what stands in the dlq can be sent in again, with the commands that are there."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import Run
from tests.e2e.stage import header, stage
from tests.topics import SettingsFactory


def test_what_dlq_prints_submit_takes(settings: SettingsFactory, tmp_path: Path, run: Run) -> None:
    """The callee was down, and is not any more: `dlq list --json | submit --jsonl -` has it called again, under the same id.

    A request of an upstream that nobody knows comes back as what it was, a second time, and its letter is not longer than the first.
    """
    with stage(settings, tmp_path, partitions=1, upstream={"attempts_max": 1}) as set_up:
        made, replies = set_up.settings, set_up.replies()
        letters = set_up.replies(made.topics.dead_letters)
        set_up.submit(["doc:1"], "/echo?fault=500&times=1", prefix="down")
        set_up.submit(["doc:1"], prefix="wrong", upstream="nobody")
        set_up.worker()
        letters.await_count(2)
        common = ("-b", made.kafka.bootstrap_servers)
        env = {"DISPATCHER_TOPICS__PREFIX": made.topics.prefix}
        listed = run("dlq", "list", "--json", *common, env=env)
        assert 2 == len(listed.stdout.splitlines())
        again = run("submit", "--jsonl", "-", *common, env=env, text=listed.stdout)
        assert 0 == again.returncode, again.stderr
        assert 2 == len(again.stdout.splitlines())
        told = [(header(reply, "ce_causationid"), header(reply, "dispatcher-status")) for reply in replies.await_count(4)]
        assert [("down-0", "dead"), ("wrong-0", "dead"), ("down-0", "ok"), ("wrong-0", "dead")] == told
        assert [("down-0", 500), ("down-0", 200)] == [(call["id"], call["status"]) for call in set_up.calls()]
        first, second = [letter for letter in letters.await_count(3) if header(letter, "ce_id") == "wrong-0"]
        assert (first.key, first.value, len(first.headers or ())) == (second.key, second.value, len(second.headers or ()))
