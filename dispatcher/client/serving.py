"""Which lane waits for the code that runs now: a callee that asks for something in that very lane would wait for itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from dispatcher.core.glance import number
from dispatcher.errors import OwnLane


@dataclass(frozen=True, slots=True)
class Served:
    """The request whose call is being answered. `topic` is None where the worker did not say it."""

    topic: str | None
    partition: int
    offset: int


_SERVED: ContextVar[tuple[Served, ...]] = ContextVar("dispatcher_served", default=())


@contextmanager
def serving(headers: Mapping[str, str]) -> Iterator[None]:
    """Say that a worker's call with these HTTP headers is being answered: inside, `ask` and `wait` refuse its own lane (OwnLane).

    For the handler of a service that workers call and that uses the dispatcher itself. Without the fencing headers it does nothing.
    Holds for this task, and for tasks and threads that copy its context.
    """
    served = _served({name.lower(): text for name, text in headers.items()})
    token = _SERVED.set((*_SERVED.get(), served) if served is not None else _SERVED.get())
    try:
        yield
    finally:
        _SERVED.reset(token)


def refuse_own_lane(topic: str, partition: int, offset: int | None = None) -> None:
    """Raise OwnLane where the lane `topic`/`partition` waits for us; `offset` is a request that stands there already."""
    for served in _SERVED.get():
        behind = offset is None or offset >= served.offset
        if served.partition == partition and served.topic in {None, topic} and behind:
            raise OwnLane(
                f"this code answers a call of the lane {topic}/{partition} and may not wait for another one of it",
                "the lane goes on only when this call ends: submit without waiting, or use a key of another partition",
            )


def _served(headers: Mapping[str, str]) -> Served | None:
    partition, offset = number(headers.get("dispatcher-partition")), number(headers.get("dispatcher-offset"))
    return None if partition is None or offset is None else Served(headers.get("dispatcher-topic"), partition, offset)
