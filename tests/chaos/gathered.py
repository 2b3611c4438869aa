"""What is known of a group when a run has ended, put together from its topics, its callee and its workers' logs."""

from __future__ import annotations

import math
import time

from dispatcher.core.messages.record import Record
from tests.chaos import peer
from tests.chaos.drive import Group, Scenery
from tests.chaos.outside import History, Place, Taken
from tests.chaos.scene import Call
from tests.chaos.takeover import Served
from tests.e2e.history import at_of, lives_of, whole
from tests.e2e.stage import Worker, header

TAKEN = ("revoked", "handed_over", "lost")  # events of our workers' logs


def gathered(group: Group, scenery: Scenery) -> History:
    """Take everything in; the callee and the readers have one clock with everybody."""
    stage = group.crew.stage
    settings, by_key = stage.settings, stage.settings.worker.ordering == "key"
    requests = {(record.partition, record.offset): record for record in whole(settings, settings.topics.requests)}
    lanes = {place: f"{place[0]}/{(record.key or b'').decode()}" if by_key else str(place[0]) for place, record in requests.items()}
    letters = _letters(group)
    calls = _calls(group, lanes)
    workers = group.crew.workers
    taken = {name: _taken(worker) for name, worker in workers.items()}
    committed = stage.positions()[0]
    replies = [_place(record, "dispatcher-request-") for record in group.replies.records]
    served = _served(group, requests, calls, letters)
    fates = list(group.crew.fates.values())
    return History(lanes, replies, list(letters), calls, committed, fates, scenery.troubles, taken, served, scenery.until)


def _letters(group: Group) -> dict[Place, float]:
    """Give the dead letters' requests, and when each was written."""
    settings = group.crew.stage.settings
    topic, prefix = (peer.letters(settings), "") if group.is_peer else (settings.topics.dead_letters, "__dispatcher.errors.")
    return {_place(record, prefix): _time(record) for record in whole(settings, topic)}


def _taken(worker: Worker) -> list[Taken]:
    if isinstance(worker, peer.Peer):
        return worker.taken()
    return [(at_of(event), event["partitions"]) for how in TAKEN for event in worker.events(how)]


def _calls(group: Group, lanes: dict[Place, str]) -> list[Call]:
    wall = time.time() - time.monotonic()
    # A peer has no epochs of a partition: it tells the number of its process in their place.
    owners = {(partition, epoch): worker.name for _, partition, epoch, worker in lives_of(group.crew.workers.values())}
    calls = []
    for seen in group.crew.stage.calls():
        partition, offset, epoch = seen["partition"], seen["offset"], seen["epoch"]
        worker = f"worker{epoch}" if group.is_peer else owners[partition, epoch]
        end = wall + seen["end_s"] if "end_s" in seen else None
        ended = (wall + seen["t_s"], end, seen.get("outcome", ""), seen.get("status"))
        calls.append(Call(seen["id"], partition, offset, epoch, seen["attempt"] or 0, lanes[partition, offset], worker, *ended))
    return calls


def _served(group: Group, requests: dict[Place, Record], calls: list[Call], letters: dict[Place, float]) -> list[Served]:
    wall = time.time() - time.monotonic()
    completed: dict[Place, float] = {}
    for call in calls:
        if call.end is not None and call.is_final:
            completed.setdefault((call.partition, call.offset), call.end)
    made = dict(letters)
    seen = dict(letters)
    for record, at in reversed(group.replies.timed()):  # of several the first one counts
        place = _place(record, "dispatcher-request-")
        made[place], seen[place] = _time(record), at + wall
    never = math.inf
    return [
        Served(place[0], _time(record), completed.get(place, never), made.get(place, never), seen.get(place, never))
        for place, record in requests.items()
    ]


def _place(record: Record, prefix: str) -> Place:
    return int(header(record, f"{prefix}partition")), int(header(record, f"{prefix}offset"))


def _time(record: Record) -> float:
    return (record.timestamp_ms or 0) / 1000
