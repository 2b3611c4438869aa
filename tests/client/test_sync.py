"""Where a client may be used, and that nobody is left waiting when it is closed; without Kafka."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from dispatcher import Call, Dispatcher, DispatcherError, Settings, SyncDispatcher
from dispatcher.client import sync

SETTINGS = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})
WITHIN_S = 60

FORK = """
import asyncio, os
from dispatcher import Call, Dispatcher, DispatcherError, Settings, SyncDispatcher
settings = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})

def told(work):
    try:
        work()
    except DispatcherError as error:
        print(error.message, flush=True)

with SyncDispatcher(settings) as client:
    child = os.fork()
    if child == 0:
        for work in (
            lambda: client.ask(Call("u"), key="k", timeout=1),
            lambda: client.submit(Call("u"), key="k"),
            lambda: client.wait("x", timeout=1),
            lambda: client.replies(),
            client.close,
        ):
            told(work)
        os._exit(0)
    os.waitpid(child, 0)

async def main():
    async with Dispatcher(settings) as client:
        replies = client.replies()
        begun = asyncio.create_task(anext(replies))
        await asyncio.sleep(0)
        child = os.fork()
        if child == 0:
            for work in (client.wait("x", timeout=1), anext(replies), replies.aclose(), client.close()):
                try:
                    await work
                except DispatcherError as error:
                    print(error.message, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        begun.cancel()

asyncio.run(main())
"""


def test_a_client_does_not_survive_a_fork() -> None:
    """Its threads are not there: one sentence in the child instead of a wait for ever, also for who reads replies that were asked for.

    The parent's goes on, and the child may close its copy.
    """
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, cwd=root, timeout=2 * WITHIN_S, check=False)
    assert done.stdout.splitlines() == ["this client was opened before the process was forked"] * 6, done.stderr


def test_a_client_belongs_to_one_event_loop() -> None:
    """Another loop gets a sentence, whatever it asks for."""
    client = Dispatcher(SETTINGS)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    first.run_until_complete(client.__aenter__())
    work = (
        lambda: client.ask(Call("u"), key="k", timeout=1),
        lambda: client.submit(Call("u"), key="k"),
        lambda: client.wait("x", timeout=1),
        client.close,
    )
    for each in work:
        with pytest.raises(DispatcherError, match="belongs to another event loop"):
            second.run_until_complete(each())
    first.run_until_complete(client.close())
    first.close()
    second.close()


def test_what_is_begun_while_the_client_closes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the close has looked for what is open, and before the loop stops: whoever waits for it hears that the client is closed."""
    client = SyncDispatcher(SETTINGS).__enter__()
    begun: list[Future[Any]] = []
    finish = sync._finish

    async def late() -> None:
        await finish()
        begun.append(client._begin(asyncio.Event().wait()))

    monkeypatch.setattr(sync, "_finish", late)
    client.close()
    with pytest.raises(DispatcherError, match="closed"):
        client._result(begun[0])


@pytest.mark.parametrize("is_closed", [True, False])
def test_what_comes_after_the_loop_s_end_ends_too(is_closed: bool) -> None:  # noqa: FBT001 - pytest's
    """Somebody had looked whether the client is open, and only then came to hand over its work."""
    client, loop, over = SyncDispatcher(SETTINGS), asyncio.new_event_loop(), threading.Thread()
    over.start()
    over.join()
    client._loop, client._thread = loop, over
    if is_closed:
        loop.close()
    with pytest.raises(DispatcherError, match="closed"):
        client.wait("x")
    loop.close()
    assert client._open == {}
