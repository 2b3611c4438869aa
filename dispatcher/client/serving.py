"""Which lane waits for the code that runs now: a callee that asks for something in that very lane would wait for itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from dispatcher.core.lanes import lane_name
from dispatcher.core.messages.glance import number
from dispatcher.errors import OwnLane


@dataclass(frozen=True, slots=True)
class Served:
    """The request whose call is being answered. `topic` is None where the worker did not say it.

    `lane` is the name of its key's lane; None: all keys of the partition are one lane.
    """

    topic: str | None
    partition: int
    offset: int
    lane: str | None = None


_SERVED: ContextVar[tuple[Served, ...]] = ContextVar("dispatcher_served", default=())


@contextmanager
def serving(headers: Mapping[str, str]) -> Iterator[None]:
    """Say that a worker's call with these HTTP headers is being answered: inside, `ask` and `wait` refuse its own lane (OwnLane).

    For the handler of a service that workers call and that uses the dispatcher itself. Without the fencing headers it does nothing.
    With `Dispatcher-Lane`, which workers send that have a lane for each key, the lane is that key's; else it is the partition.
    Holds for this task, and for tasks and threads that copy its context.
    """
    served = _served({name.lower(): text for name, text in headers.items()})
    token = _SERVED.set((*_SERVED.get(), served) if served is not None else _SERVED.get())
    try:
        yield
    finally:
        _SERVED.reset(token)


def refuse_own_lane(
    topic: str, partition: int, offset: int | None = None, *, key: bytes | None = None, siblings: Collection[str] = ()
) -> None:
    """Raise OwnLane where the lane of `key` in `topic`/`partition` waits for us; `offset` is a request that stands there already.

    `siblings`: the request topics, where there are several: a lane spans them, and offsets in two of them say nothing of each other.
    Where the key is not known any lane of the partition may be meant: rather a refusal too many than a callee that waits for itself.
    """
    for served in _SERVED.get():
        is_same, is_sibling = served.topic in {None, topic}, topic in siblings and served.topic in siblings
        behind = offset is None or not is_same or offset >= served.offset
        other = served.lane is not None and key is not None and lane_name.lane_name(key) != served.lane
        if served.partition == partition and (is_same or is_sibling) and behind and not other:
            raise _own_lane(topic, partition, served, is_known=key is not None)


def _own_lane(topic: str, partition: int, served: Served, *, is_known: bool) -> OwnLane:
    if served.lane is None:
        return OwnLane(
            f"this code answers a call of the lane {topic}/{partition} and may not wait for another one of it",
            "the lane goes on only when this call ends: submit without waiting, or use a key of another partition",
        )
    may_be = "" if is_known else "what may be "
    return OwnLane(
        f"this code answers a call of a key's lane in {topic}/{partition} and may not wait for {may_be}another one of it",
        "the lane goes on only when this call ends: submit without waiting, or use another key"
        + ("" if is_known else "; a receipt says which key it is"),
    )


def _served(headers: Mapping[str, str]) -> Served | None:
    partition, offset = number(headers.get("dispatcher-partition")), number(headers.get("dispatcher-offset"))
    if partition is None or offset is None:
        return None
    return Served(headers.get("dispatcher-topic"), partition, offset, headers.get(lane_name.HEADER.lower()))
