"""Work that several wait for, and turns."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from dispatcher import DispatcherError
from dispatcher.client.shared import Shared, Turns


async def test_whoever_gives_up_does_not_take_it_from_the_others() -> None:
    """One waiter is cancelled, the other gets the result."""
    gate = asyncio.Event()

    async def work() -> int:
        await gate.wait()
        return 7

    shared = Shared(work())
    first, second = asyncio.create_task(shared.result()), asyncio.create_task(shared.result())
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert await second == 7
    assert first.cancelled()
    assert await shared.result() == 7


async def test_the_end_of_the_client_is_an_error_and_no_cancellation() -> None:
    """A task that nobody cancelled is not cancelled because a client was closed."""
    shared = Shared(asyncio.Event().wait())
    waiting = asyncio.create_task(shared.result())
    await asyncio.sleep(0)
    shared.cancel()
    with pytest.raises(DispatcherError, match="closed"):
        await waiting


async def test_turns_go_in_order_and_none_is_lost() -> None:
    """Never more than so many at once, first come first served, also where some give up while they wait or just as their turn comes."""
    turns, order, inside, most = Turns(2), [], 0, 0

    async def one(number: int) -> None:
        nonlocal inside, most
        async with turns.turn():
            inside += 1
            most = max(most, inside)
            order.append(number)
            try:
                await asyncio.sleep(0)
            finally:
                inside -= 1

    tasks = [asyncio.create_task(one(number)) for number in range(20)]
    await asyncio.sleep(0)
    tasks[5].cancel()
    tasks[0].add_done_callback(lambda _: tasks[2].cancel())
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
    assert most == 2
    assert order == [number for number in range(20) if number in order]
    assert set(range(20)) - set(order) <= {2, 5}
    for number in (100, 101, 102):
        await one(number)


async def test_a_closed_client_has_no_turns_left_to_wait_for() -> None:
    """Those who wait hear of it."""
    turns = Turns(0)
    waiting = asyncio.create_task(turns.turn().__aenter__())
    await asyncio.sleep(0)
    turns.close()
    with pytest.raises(DispatcherError, match="closed"):
        await waiting


async def test_those_who_gave_up_are_forgotten() -> None:
    """Not only when a turn comes free: all may be held for an hour."""
    turns = Turns(1)
    async with turns.turn():
        tasks = [asyncio.create_task(turns.turn().__aenter__()) for _ in range(5)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert len(turns._waiting) == 0
    async with turns.turn():
        assert turns._free == 0


async def test_giving_up_while_the_client_is_closed_makes_no_turn() -> None:
    """There are never more turns than were given."""
    turns = Turns(1)
    async with turns.turn():
        waiting = asyncio.create_task(turns.turn().__aenter__())
        await asyncio.sleep(0)
        turns.close()
        waiting.cancel()
        await asyncio.wait({waiting})
        assert turns._free == 0
    assert turns._free == 1
