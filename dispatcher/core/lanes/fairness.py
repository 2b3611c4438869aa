"""Start-time fair queueing: who is next where many share one server, however much each of them has queued.

P. Goyal, H. M. Vin, H. Cheng: Start-time Fair Queueing: A Scheduling Algorithm for Integrated Services Packet Switching Networks, SIGCOMM
1996, section 2. Its flows are the agents of a lane, its packets are requests, its server is the lane: each request counts as one, however
long its calls take, since that is not known before. The rules, v(t) is the virtual time:

    start tag   S(j) = max(v(at its arrival), F(j - 1))        F(0) = 0
    finish tag  F(j) = S(j) + 1 / weight
    served in the order of start tags; v(t) is the start tag of what is in service, and the largest finish tag when a busy period ends

While an agent has something queued its next start tag is the finish tag of its last request: so one tag per agent is enough, and what
leaves without having been served costs nobody anything.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush

# Entries of the heap that are of no use any more stay until they are as many as the others, and more than this; agents without anything
# queued, whose tags may be forgotten, likewise.
STALE_MIN = 64


class _Flow:
    """What an agent has queued, in order, and the start tag of the first of it, or of what comes next."""

    __slots__ = ("offsets", "tag", "weight")

    def __init__(self, weight: float) -> None:
        self.offsets: list[int] = []
        self.tag = 0.0
        self.weight = weight


class FairQueue:
    """Owned by one lane's queue. `weight_of` an agent is more than 0. Requests are known by their offsets.

    Within an agent requests are served in the order of their offsets. Between agents: over any time in which two have something queued,
    what was served of each, divided by its weight, differs by at most 1 / (one's weight) + 1 / (other's weight) (theorem 1). So whoever
    comes alone, while one other has thousands queued, is served next after what is in service, or is about to be.

    Of equal start tags the lower offset goes first. A step costs the logarithm of the number of agents.
    """

    __slots__ = ("_finished", "_flows", "_flows_max", "_heap", "_queued", "_weight_of", "virtual_time")

    def __init__(self, weight_of: Callable[[str], float] = lambda _: 1.0) -> None:
        self.virtual_time = 0.0
        self._weight_of = weight_of
        self._finished = 0.0  # the largest finish tag
        self._flows: dict[str, _Flow] = {}
        self._flows_max = STALE_MIN  # with more of them some may be let go
        self._heap: list[tuple[float, int, str]] = []  # start tag and offset of the first of each agent; some are of no use any more
        self._queued = 0

    def __len__(self) -> int:
        return self._queued

    def add(self, agent: str, offset: int) -> None:
        """A request is queued, each at most once."""
        flow = self._flows.get(agent)
        if flow is None:
            flow = self._flows[agent] = _Flow(self._weight_of(agent))
        if not flow.offsets:
            flow.tag = max(flow.tag, self.virtual_time)
        insort(flow.offsets, offset)
        self._queued += 1
        if flow.offsets[0] == offset:
            self._push(agent, flow)

    def remove(self, agent: str, offset: int) -> None:
        """A request that is queued leaves: it is about to be served, or will not be."""
        flow = self._flows[agent]
        place = bisect_left(flow.offsets, offset)
        assert flow.offsets[place] == offset
        del flow.offsets[place]
        self._queued -= 1
        if place == 0 and flow.offsets:
            self._push(agent, flow)

    def begin(self, agent: str) -> None:
        """A request of this agent, which has left the queue for it, is served from now on; whether it was its turn or not."""
        flow = self._flows.get(agent)
        if flow is None:
            flow = self._flows[agent] = _Flow(self._weight_of(agent))
        start = max(flow.tag, self.virtual_time) if not flow.offsets else flow.tag
        # Out of its turn it may have a later tag than others: those are not to be overtaken by whoever comes next.
        first = self._first()
        self.virtual_time = max(self.virtual_time, start if first is None else min(start, first[0]))
        flow.tag = start + 1 / flow.weight
        self._finished = max(self._finished, flow.tag)
        if flow.offsets:
            self._push(agent, flow)
        self._forget()

    def rest(self) -> None:
        """Nothing is queued, and nothing in service: a busy period has ended, and nobody owes anything."""
        if not self._queued and self._flows:
            self.virtual_time = max(self.virtual_time, self._finished)
            self._flows.clear()
            self._heap.clear()

    def next(self) -> int | None:
        """The offset whose turn it is; None where nothing is queued."""
        first = self._first()
        return None if first is None else first[1]

    def is_first(self, agent: str, offset: int) -> bool:
        """Whether nothing of this agent is queued before it."""
        flow = self._flows.get(agent)
        return flow is not None and flow.offsets[:1] == [offset]

    def firsts(self) -> Iterator[int]:
        """The first offset of each agent that has something queued."""
        return (flow.offsets[0] for flow in self._flows.values() if flow.offsets)

    def order(self) -> Iterator[int]:
        """All that is queued, in the order in which it would be served if nothing came. The queue must stay as it is meanwhile."""
        tags = [(flow.tag, flow.offsets[0], agent, 0) for agent, flow in self._flows.items() if flow.offsets]
        heapify(tags)
        while tags:
            tag, offset, agent, place = heappop(tags)
            yield offset
            flow = self._flows[agent]
            if place + 1 < len(flow.offsets):
                heappush(tags, (tag + 1 / flow.weight, flow.offsets[place + 1], agent, place + 1))

    def clear(self) -> None:
        """Forget what is queued."""
        self._flows.clear()
        self._heap.clear()
        self._queued = 0

    def _push(self, agent: str, flow: _Flow) -> None:
        heappush(self._heap, (flow.tag, flow.offsets[0], agent))

    def _first(self) -> tuple[float, int, str] | None:
        heap = self._heap
        while heap and not self._is_current(heap[0]):
            heappop(heap)
        return heap[0] if heap else None

    def _is_current(self, entry: tuple[float, int, str]) -> bool:
        tag, offset, agent = entry
        flow = self._flows.get(agent)
        return flow is not None and flow.tag == tag and flow.offsets[:1] == [offset]

    def _forget(self) -> None:
        """Let go of what is of no use: entries of the heap, and agents that would get no other tag if they were new."""
        flows = self._flows
        if len(self._heap) > 2 * len(flows) + STALE_MIN:
            self._heap = [(flow.tag, flow.offsets[0], agent) for agent, flow in flows.items() if flow.offsets]
            heapify(self._heap)
        if len(flows) > self._flows_max:
            self._flows = {agent: flow for agent, flow in flows.items() if flow.offsets or flow.tag > self.virtual_time}
            self._flows_max = 2 * len(self._flows) + STALE_MIN
