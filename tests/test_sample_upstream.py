"""The sample upstream answers, refuses, fails and witnesses as told; all through real sockets."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from dispatcher.sample_upstream import Options, Timing, running
from dispatcher.sample_upstream.server import CHAT_PATH, REQUEST_MAX_BYTES
from tests.waiting import eventually_async

DEADLINE_S = 30
AT_ONCE = Options(timing=Timing(latency_ms=0))
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "usage_hint": {"prompt_tokens": 1000, "completion_tokens": 7}}


@asynccontextmanager
async def client_of(options: Options) -> AsyncIterator[httpx.AsyncClient]:
    """Start an upstream and connect to it."""
    async with running(options) as upstream, httpx.AsyncClient(base_url=upstream.url, timeout=DEADLINE_S, trust_env=False) as client:
        yield client


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """A client of an upstream that takes no time."""
    async with client_of(AT_ONCE) as one:
        yield one


def lane(offset: int, *, partition: int = 0, epoch: int = 1, call_id: str = "") -> dict[str, str]:
    """Headers that a dispatcher sends."""
    position = {"Dispatcher-Partition": str(partition), "Dispatcher-Offset": str(offset), "Dispatcher-Epoch": str(epoch)}
    return position | {"Dispatcher-Attempt": "1", "Idempotency-Key": call_id or f"r{partition}-{offset}"}


async def summary_of(client: httpx.AsyncClient) -> dict[str, Any]:
    """What the witness says now."""
    found: dict[str, Any] = (await client.get("/witness/summary")).raise_for_status().json()
    return found


async def summary_when(client: httpx.AsyncClient, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Ask the witness until the condition holds."""
    summary: dict[str, Any] = {}

    async def holds() -> bool:
        summary.update(await summary_of(client))
        return condition(summary)

    asked: Callable[[], bool | Awaitable[bool]] = holds
    await eventually_async(asked, DEADLINE_S)
    return summary


async def test_a_chat_call_is_answered_with_its_usage(client: httpx.AsyncClient) -> None:
    """The answer has the shape of the chat API, and counts the tokens that the hint gave."""
    answer = (await client.post(CHAT_PATH, json=CHAT)).raise_for_status().json()
    assert answer["object"] == "chat.completion"
    assert answer["usage"] == {"prompt_tokens": 1000, "completion_tokens": 7, "total_tokens": 1007}
    assert answer["choices"][0]["message"]["content"].split() == ["word"] * 7
    assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("path", ["/v1/models", "/models"])
async def test_the_models_are_listed(client: httpx.AsyncClient, path: str) -> None:
    """What clients of the API ask first, with and without the version in the base URL."""
    answer = (await client.get(path)).raise_for_status().json()
    assert (answer["object"], [model["object"] for model in answer["data"]]) == ("list", ["model"])
    assert (await client.post(path)).status_code == 405


async def test_who_takes_the_wrong_path_is_told_the_right_ones(client: httpx.AsyncClient) -> None:
    """The 404 names what is served."""
    answer = await client.post("/v2/chat")
    assert answer.status_code == 404
    for path in (CHAT_PATH, "/v1/models", "/echo", "/status/", "/fault/", "/witness"):
        assert path in answer.json()["error"]["message"]


async def test_max_tokens_cuts_the_answer(client: httpx.AsyncClient) -> None:
    """As a real model does: fewer tokens, finish reason `length`."""
    answer = (await client.post(CHAT_PATH, json=CHAT | {"max_tokens": 3})).raise_for_status().json()
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (3, "length")


async def test_the_service_time_follows_the_token_counts() -> None:
    """At 100 times the speed, 1,000 prompt and 7 output tokens take 2.7 ms at least, and the witness sees that time pass."""
    timing = Timing(speed=100)
    async with client_of(Options(timing=timing)) as client:
        await client.post(CHAT_PATH, json=CHAT)
        lines = (await client.get("/witness")).text.splitlines()
    start, end = (httpx.Response(200, text=line).json() for line in lines)
    assert (start["event"], end["event"], end["outcome"], end["status"]) == ("start", "end", "answered", 200)
    assert end["t_s"] - start["t_s"] >= 0.0027 * 0.9  # a timer may round down to its tick


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"{", "not JSON"),
        (b"[]", "model"),
        (b'{"model":"m"}', "messages"),
        (b'{"model":"m","messages":[],"stream":true}', "stream"),
        (b'{"model":"m","messages":[],"usage_hint":{"prompt_tokens":-1}}', "usage_hint.prompt_tokens"),
        (b'{"model":"m","messages":[],"max_tokens":"many"}', "max_tokens"),
    ],
)
async def test_a_chat_call_of_the_wrong_shape_is_refused_with_a_sentence(client: httpx.AsyncClient, body: bytes, word: str) -> None:
    """400, in the error shape of the chat API."""
    answer = await client.post(CHAT_PATH, content=body)
    assert answer.status_code == 400
    assert word in answer.json()["error"]["message"]


@pytest.mark.parametrize(("size", "status"), [(REQUEST_MAX_BYTES - 100, 200), (REQUEST_MAX_BYTES + 1, 413)])
async def test_a_body_is_taken_up_to_what_is_said(client: httpx.AsyncClient, size: int, status: int) -> None:
    """Beyond a mebibyte, too, which is all that the server library takes by itself."""
    assert status == (await client.post("/echo", content=b'"' + b"x" * (size - 2) + b'"')).status_code


async def test_generic_endpoints_echo_and_answer_any_status(client: httpx.AsyncClient) -> None:
    """Not everything behind a dispatcher is a chat API."""
    echo = await client.post("/echo", content=b"\xff\x00", headers={"content-type": "application/octet-stream"})
    assert (echo.status_code, echo.content, echo.headers["content-type"]) == (200, b"\xff\x00", "application/octet-stream")
    assert [(await client.get(f"/status/{code}")).status_code for code in (204, 404, 529)] == [204, 404, 529]
    assert (await client.get("/v1/status/503")).status_code == 503
    assert (await client.post("/v1/fault/503")).status_code == 503
    assert (await client.get("/status/99")).status_code == 400
    assert (await client.get("/nothing")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", f"{CHAT_PATH}?fault=429&retry_after=2", {}),
        ("POST", "/fault/429?retry_after=2", {}),
        ("POST", CHAT_PATH, {"x-sample-fault": "fault=429&retry_after=2"}),
    ],
)
async def test_a_status_is_answered_on_demand(client: httpx.AsyncClient, method: str, path: str, headers: dict[str, str]) -> None:
    """By query, by path or by header: the status, with its hint in both spellings."""
    answer = await client.request(method, path, json=CHAT, headers=headers)
    assert (answer.status_code, answer.headers["retry-after"], answer.headers["retry-after-ms"]) == (429, "2", "2000")


async def test_the_milliseconds_of_a_hint_may_be_others_than_its_seconds(client: httpx.AsyncClient) -> None:
    """Who reads the wrong one of the two headers waits in vain; either may stand alone, and 0 is a number."""
    hints = {}
    for asked in ("retry_after=600&retry_after_ms=250", "retry_after_ms=0", "retry_after=0"):
        answer = await client.post(f"/fault/429?{asked}")
        hints[asked] = answer.headers.get("retry-after"), answer.headers.get("retry-after-ms")
    assert [("600", "250"), (None, "0"), ("0", "0")] == list(hints.values())


async def test_a_quota_that_is_used_up_is_a_429_of_its_own_kind(client: httpx.AsyncClient) -> None:
    """The status is that of a rate limit; the body tells them apart."""
    answer = await client.post("/fault/quota", json={})
    assert (429, "insufficient_quota") == (answer.status_code, answer.json()["error"]["code"])


async def test_a_fault_lasts_for_so_many_times_per_idempotency_key(client: httpx.AsyncClient) -> None:
    """`times=2`: the third attempt of a request succeeds, and another request starts anew."""
    path = f"{CHAT_PATH}?fault=503&times=2"
    first = [(await client.post(path, json=CHAT, headers=lane(1))).status_code for _ in range(4)]
    other = (await client.post(path, json=CHAT, headers=lane(2))).status_code
    assert (first, other) == ([503, 503, 200, 200], 503)


@pytest.mark.parametrize("query", ["fault=99", "fault=boom", "fault=503&times=x", "latency_ms=-1"])
async def test_a_fault_that_is_not_understood_is_refused(client: httpx.AsyncClient, query: str) -> None:
    """A mistyped fault must not pass for a success."""
    assert (await client.post(f"{CHAT_PATH}?{query}", json=CHAT)).status_code == 400


async def test_a_reset_arrives_as_a_reset(client: httpx.AsyncClient) -> None:
    """The connection breaks by RST, not by an orderly end."""
    with pytest.raises(httpx.ReadError) as caught:
        await client.post(f"{CHAT_PATH}?fault=reset", json=CHAT)
    causes = [caught.value]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)  # type: ignore[arg-type]
    assert any(isinstance(cause, ConnectionResetError) for cause in causes)
    assert (await summary_of(client))["endings"] == {"reset": 1}


async def test_a_truncated_answer_ends_early(client: httpx.AsyncClient) -> None:
    """The head promises more than the body gives."""
    with pytest.raises(httpx.RemoteProtocolError):
        await client.post(f"{CHAT_PATH}?fault=truncate", json=CHAT)
    assert (await summary_of(client))["endings"] == {"truncated": 1}


async def test_a_hanging_call_ends_for_the_witness_when_its_caller_leaves(client: httpx.AsyncClient) -> None:
    """The caller's time-out closes the connection; the call is not open any longer."""
    call = asyncio.create_task(client.post(f"{CHAT_PATH}?fault=hang", json=CHAT, headers=lane(1)))
    assert (await summary_when(client, lambda summary: summary["open"] == 1))["endings"] == {}
    call.cancel()
    assert (await summary_when(client, lambda summary: summary["open"] == 0))["endings"] == {"client_closed": 1}


async def test_a_caller_that_leaves_a_sleeping_call_is_seen(client: httpx.AsyncClient) -> None:
    """So a retry after a time-out does not look like an overlap."""
    call = asyncio.create_task(client.post(f"{CHAT_PATH}?latency_ms=600000", json=CHAT, headers=lane(1)))
    await summary_when(client, lambda summary: summary["open"] == 1)
    call.cancel()
    await summary_when(client, lambda summary: summary["open"] == 0)
    await client.post(CHAT_PATH, json=CHAT, headers=lane(1))
    assert (await summary_of(client))["overlaps"]["partition"] == {"same_epoch": 0, "other_epoch": 0}


async def test_two_calls_of_one_lane_at_once_are_witnessed(client: httpx.AsyncClient) -> None:
    """Per partition by the headers, per key by the query or the body's metadata."""
    call = asyncio.create_task(client.post(f"{CHAT_PATH}?fault=hang&key=apikey:a", json=CHAT, headers=lane(1)))
    await summary_when(client, lambda summary: summary["open"] == 1)
    await client.post(CHAT_PATH, json=CHAT | {"metadata": {"key": "apikey:a"}}, headers=lane(2))
    summary = await summary_of(client)
    assert summary["overlaps"] == {"partition": {"same_epoch": 1, "other_epoch": 0}, "key": {"same_epoch": 1, "other_epoch": 0}}
    assert (summary["in_flight_max"], summary["in_flight_max_by_partition"]) == (2, {"0": 2})
    call.cancel()


async def test_order_and_repetition_are_witnessed_over_the_wire(client: httpx.AsyncClient) -> None:
    """`1 2 | 1 2 3` is a crash and a new owner, in order; a younger start of the same owner first is not."""
    for epoch, offset in ((1, 1), (1, 2), (2, 1), (2, 2), (2, 3)):
        await client.post(CHAT_PATH, json=CHAT, headers=lane(offset, epoch=epoch))
    summary = await summary_of(client)
    assert (summary["out_of_order"]["partition"], summary["not_repeated"]["partition"]) == (0, 0)
    assert summary["repeated"] == {"same_epoch": 0, "other_epoch": 2}
    await client.post(CHAT_PATH, json=CHAT, headers=lane(1, epoch=2))
    summary = await summary_of(client)
    assert (summary["out_of_order"]["partition"], summary["findings"]) == (1, ["partition 0: offset 1 started after offset 3 in epoch 2"])
    assert (await client.post("/witness/reset")).status_code == 204
    assert (await summary_of(client))["calls"] == 0


async def test_a_rate_limit_holds_per_credential() -> None:
    """With one call a second, the second of a credential is told to wait; another credential is not."""
    async with client_of(Options(timing=Timing(latency_ms=0), rate_limit_per_s=0.001)) as client:
        answers = [await client.post(CHAT_PATH, json=CHAT, headers={"Authorization": who}) for who in ("a", "a", "b")]
    assert [answer.status_code for answer in answers] == [200, 429, 200]
    assert 990 <= int(answers[1].headers["retry-after"]) <= 1000


async def test_a_quota_is_of_any_second_and_of_calls_that_are_open() -> None:
    """Two in a second, and one at once: the third of a credential is told when to come again, and another one is not."""
    async with client_of(Options(timing=Timing(latency_ms=0), quota_per_s=2)) as client:
        answers = [await client.post("/echo", headers={"Authorization": who}) for who in ("a", "a", "a", "b")]
    # Where a second has passed meanwhile the third one may.
    assert [200, 200, 200] == [answer.status_code for answer in (*answers[:2], answers[3])]
    assert (answers[2].status_code, answers[2].headers.get("retry-after")) in {(429, "1"), (200, None)}
    async with client_of(Options(timing=Timing(latency_ms=0), quota_at_once=1)) as client:
        hanging = asyncio.create_task(client.post("/fault/hang", headers={"Authorization": "a"}))
        await summary_when(client, lambda summary: summary["open"] == 1)
        busy, other = [await client.post("/echo", headers={"Authorization": who}) for who in ("a", "b")]
        hanging.cancel()
        assert (429, "100", 200) == (busy.status_code, busy.headers.get("retry-after-ms"), other.status_code)
        await summary_when(client, lambda summary: summary["open"] == 0)
        assert 200 == (await client.post("/echo", headers={"Authorization": "a"})).status_code


async def test_a_fault_rate_repeats_with_its_seed_whatever_the_order() -> None:
    """The same ids fail in two runs of one seed, and other ids with another seed."""

    async def failed(seed: int, offsets: list[int]) -> set[int]:
        async with client_of(Options(timing=Timing(latency_ms=0), fault_rate=0.3, seed=seed)) as client:
            found = set()
            for offset in offsets:
                try:
                    answer = await client.post(CHAT_PATH, json=CHAT, headers=lane(offset))
                except httpx.ReadError:
                    found.add(offset)
                else:
                    found |= {offset} if answer.status_code != 200 else set()
            return found

    offsets = list(range(60))
    first = await failed(1, offsets)
    assert 5 <= len(first) <= 35
    assert first == await failed(1, offsets[::-1])
    assert first != await failed(2, offsets)


def test_the_command_prints_its_url_and_ends_with_sigterm() -> None:
    """`dispatcher sample-upstream --port 0`: one line on stdout when it listens, exit 0 on SIGTERM."""
    command = [sys.executable, "-m", "dispatcher", "sample-upstream", "--port", "0", "--latency-ms", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert httpx.get(f"{url}/witness/summary", trust_env=False).json()["calls"] == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()


async def test_an_outage_is_of_every_call_until_it_is_over(client: httpx.AsyncClient) -> None:
    """Begun and ended from outside, with any fault; nothing else begins one."""
    statuses = [(await client.post(path)).status_code for path in ("/echo", CHAT_PATH)]
    assert 204 == (await client.put("/outage", params={"fault": "503", "retry_after": "2"})).status_code
    down = [await client.post(path) for path in ("/echo", CHAT_PATH, "/status/200")]
    assert [(503, "2")] * 3 == [(answer.status_code, answer.headers["retry-after"]) for answer in down]
    assert 204 == (await client.delete("/outage")).status_code
    assert statuses == [(await client.post(path)).status_code for path in ("/echo", CHAT_PATH)]
    assert [400, 405, 405] == [
        (await client.request(method, "/outage", params=asked)).status_code
        for method, asked in (("PUT", {"fault": "x"}), ("PUT", {}), ("GET", {}))
    ]
