"""A worker process: the owners made, started, watched and ended."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, NoReturn

from dispatcher.adapters.http import HttpEngine, open_engine
from dispatcher.adapters.kafka import admin, clients
from dispatcher.adapters.kafka.bulletin import Bulletin
from dispatcher.adapters.kafka.clients import GroupProtocol, GroupTimes
from dispatcher.adapters.kafka.compacted import CompactedReader
from dispatcher.adapters.kafka.membership import Membership
from dispatcher.adapters.kafka.seat import Seat
from dispatcher.adapters.kafka.sink import Sink
from dispatcher.adapters.kafka.source import Source
from dispatcher.adapters.logs import kafka_logger, logger
from dispatcher.adapters.metrics import Metrics
from dispatcher.adapters.prices import PriceList, open_price_list
from dispatcher.core.callees.billing import Billing
from dispatcher.core.lanes.floor import Share
from dispatcher.core.lanes.room import room_of
from dispatcher.core.messages.record import Message
from dispatcher.core.messages.request import Decoder
from dispatcher.core.operations.lane_board import CLIENT_PREFIX
from dispatcher.core.progress.gap import Cause
from dispatcher.core.progress.strand import RequestTopic, RequestTopics
from dispatcher.errors import BrokerError, DispatcherError
from dispatcher.settings import Settings
from dispatcher.worker.attendance import LOOK_S, Attendance
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.dissent import Dissent
from dispatcher.worker.engine import Engine
from dispatcher.worker.health import HealthServer
from dispatcher.worker.letters import Command, PublisherEnded, Stop
from dispatcher.worker.namesakes import Namesakes
from dispatcher.worker.observer import WorkerObserver
from dispatcher.worker.poller import Poller
from dispatcher.worker.publisher import Publisher
from dispatcher.worker.reporter import Grumble, Reporter, reporter_of
from dispatcher.worker.restorer import Restorer
from dispatcher.worker.share_log import FAREWELL_S, ShareLog
from dispatcher.worker.sharing import Sharing
from dispatcher.worker.surroundings import Surroundings, survey
from dispatcher.worker.topic_watch import TopicWatch

# A loop that has not turned for this long is stuck. The longest honest wait in one turn is a commit while the coordinator is away:
# librdkafka holds it back for session.timeout.ms (45 s with KIP-848, where it cannot be set), then asks once more (10 s).
LIVE_S = 90.0
TICK_S = 0.5
# One look at the request topic; who gets no answer looks again later.
TOPIC_LOOK_S = 5.0
# What the publisher still does once the poller has ended concerns partitions that are not ours any more: it may end its step.
PUBLISHER_END_S = 6.0
# An honest leave is one request (10 s socket timeout); librdkafka's may hang in a rebalance (librdkafka issues 4527, 4792).
LEAVE_S = 20.0
# How long a session lasts where the broker does not say it (Kafka's default). One begins anew where another broker takes the group over;
# and its end takes some time to be noticed.
SESSIONS, SESSION_END_S = 2, 10.0
# Kafka's own defaults, where the broker does not say.
DEFAULT_TIMES = GroupTimes(session_s=45.0, heartbeat_s=5.0)
SHARING_HINT = "calls under limits wait while it lasts"
# Files beside the calls: Kafka's connections, timers, the health page and its readers.
FILES_BESIDE = 256


def allow_files(inflight_max: int) -> None:
    """Let this process open as many connections as it may have calls: one that cannot be opened spends an attempt of its request."""
    wanted = inflight_max + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        hint = f"{wanted} are needed at most: raise the limit (ulimit -Hn), or lower worker.inflight_max ({inflight_max})"
        logger().warning("files_limited", limit=most, hint=hint)


def endings() -> list[signal.Signals]:
    """Name the signals that end a worker in order. A terminal that closes ends its workers, but for those that were told to outlive it."""
    is_to_outlive = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
    return [signal.SIGTERM, signal.SIGINT, *([] if is_to_outlive else [signal.SIGHUP])]


async def run_worker(settings: Settings, secrets: Mapping[str, str], ask: Callable[[Settings], Surroundings] = survey) -> None:
    """Run lanes until SIGTERM, SIGINT or SIGHUP, then drain. Raises DispatcherError where a worker cannot go on.

    `ask` learns the surroundings from the broker; the demo's mock cluster cannot be asked.
    """
    loop = asyncio.get_running_loop()
    for name in endings():
        # Nothing is in hand yet: what a thread still asks Kafka is not waited for.
        loop.add_signal_handler(name, _exit, 0)
    allow_files(settings.worker.inflight_max)
    surroundings, prices = await asyncio.gather(asyncio.to_thread(ask, settings), asyncio.to_thread(open_price_list, settings))
    http = open_engine(settings, secrets)
    try:
        await _run(Worker(settings, surroundings, http, prices), settings, surroundings)
    finally:
        await http.close()


async def _run(worker: Worker, settings: Settings, surroundings: Surroundings) -> None:
    """Run an assembled worker to its end."""
    loop = asyncio.get_running_loop()
    for name in endings():
        loop.add_signal_handler(name, worker.signalled)
    for one in surroundings.unread:
        logger().warning("requests_unread", topic=one.topic, requests=one.requests, hint=one.hint)
    logger().info(
        "started",
        group=settings.worker.group,
        slot=settings.worker.slot,
        protocol=surroundings.protocol,
        publishing=settings.worker.publishing,
        http_port=worker.health.port,
    )
    watching = [asyncio.create_task(worker.watch(settings))]
    if surroundings.protocol == "consumer":
        watching.append(asyncio.create_task(worker.attend()))
    reporter = worker.report(settings)
    try:
        await worker.ended()
        await worker.leave_limits()
    finally:
        for task in watching:
            task.cancel()
        reporter.close()
        worker.close()
    logger().info("stopped")


def topics_of(settings: Settings, surroundings: Surroundings) -> RequestTopics:
    """The request topics, as the owners know them."""
    pairs = zip(settings.views, surroundings.requests, strict=True)
    topics = [RequestTopic(topic.name, topic.topic_id, view.topics.kind) for view, topic in pairs]
    return RequestTopics(topics, surroundings.requests[0].partitions)


def member_name(settings: Settings, protocol: GroupProtocol) -> str | None:
    """The name that a worker has in its group, so that no other has it; None where it is a member like any other.

    Under KIP-848 one brings something only to those who stop to come back; and whoever has one cannot leave the group.
    """
    worker = settings.worker
    return worker.instance_id if protocol != "consumer" or worker.on_stop == "keep" else None


class Worker:
    """The assembly. Everything is handed to its one owner here; nothing is shared afterwards but letters and read-only numbers."""

    def __init__(self, settings: Settings, surroundings: Surroundings, http: HttpEngine, prices: PriceList | None = None) -> None:
        worker = settings.worker
        self._requests = surroundings.requests
        self._request_topics = topics_of(settings, surroundings)
        self._protocol = surroundings.protocol
        self._loop = asyncio.get_running_loop()
        self._clock = SystemClock()
        metrics = Metrics(worker.ordering, worker.publishing)
        metrics.closed(name for name, upstream in settings.upstreams.items() if upstream.has_breaker)
        observer = WorkerObserver(metrics, self._clock, self._request_topics.label)
        self._to_poller: SimpleQueue[Command] = SimpleQueue()
        self._to_publisher: SimpleQueue[object] = SimpleQueue()
        self._to_restorer: SimpleQueue[object] = SimpleQueue()
        self._to_share_log: SimpleQueue[Message | Stop] = SimpleQueue()
        partitions, reply_topics = self._request_topics.partitions, surroundings.reply_topics
        ids = self._request_topics.ids
        decoders = [Decoder(view, name, partitions, reply_topics) for view, name in zip(settings.views, ids, strict=True)]
        shares = [Share(of.weight, of.concurrency) for of in settings.classes.values()]
        room = room_of(settings, surroundings.limits)
        letters = (self._to_poller, self._to_publisher, self._to_restorer)
        billing = Billing(settings, prices)
        self.engine = Engine(decoders, http, *letters, observer, self._clock, random.random, room, billing, shares)
        self._source = self._made_source(settings, surroundings)
        self.poller = Poller(
            worker,
            self._request_topics,
            self._source,
            self.engine,
            self._post,
            self._to_poller,
            self._to_publisher,
            self._clock,
            logger(),
            _die,
        )
        self.publisher = self._made_publisher(settings, surroundings, observer)
        self.restorer = Restorer(
            settings, self._request_topics, CompactedReader(settings), self.engine, self._post, self._to_restorer, self._clock, logger()
        )
        self._membership = Membership(settings, logger=kafka_logger())
        self._times = surroundings.times or DEFAULT_TIMES
        self._observer = observer
        self._tick = self._clock.now().mono
        self._signals = 0
        self._signalled_at = 0.0
        self._publish_s = worker.commit_budget_s
        self._grace_s = worker.drain_s + worker.commit_budget_s + LEAVE_S
        self._fault: DispatcherError | None = None
        self._topics: TopicWatch | None = None
        self._loop.set_exception_handler(self._broken)
        checks = {"/livez": self._stuck, "/readyz": self._unready, "/startupz": self._unstarted}
        self.health = HealthServer(worker.http_host, worker.http_port, metrics.page, checks, self._standing)
        self._poller_end = self._thread("poller", lambda: self.poller.run(lambda: self.publisher.is_open and self.restorer.is_ready))
        self._publisher_end = self._thread("publisher", self.publisher.run)
        self._restorer_end = self._thread("restorer", self.restorer.run)
        self._restorer_end.add_done_callback(partial(self._ended_early, "restorer"))
        self._shares: tuple[Sharing, ShareLog] | None = self._shared(settings) if settings.limits else None
        self._turn()

    def _made_source(self, settings: Settings, surroundings: Surroundings) -> Source:
        worker, protocol = settings.worker, surroundings.protocol
        name = member_name(settings, protocol)
        made = partial(clients.consumer, settings, group=worker.group, protocol=protocol, instance=name, logger=kafka_logger())
        patience_s = SESSIONS * (surroundings.times or DEFAULT_TIMES).session_s + SESSION_END_S
        seat = None if name is None else Seat(name, made, patience_s, leaves=worker.on_stop == "leave")
        return Source(made(), *settings.request_topics, incremental=protocol != "eager", seat=seat)

    def _made_publisher(self, settings: Settings, surroundings: Surroundings, observer: WorkerObserver) -> Publisher:
        worker, limits = settings.worker, surroundings.limits
        transactional_id = f"{worker.group}/{worker.slot}" if worker.publishing == "exactly_once" else None
        return Publisher(
            settings,
            self._request_topics,
            limits,
            self._sink(settings, transactional_id, limits),
            self.engine,
            self._post,
            self._to_publisher,
            self._to_poller,
            lambda: self.poller.snapshot,
            observer,
            self._clock,
        )

    def _sink(self, settings: Settings, transactional_id: str | None, limits: Mapping[str, int]) -> Sink:
        return Sink(settings, transactional_id, limits, logger=kafka_logger())

    def signalled(self) -> None:
        """First signal: drain. Second one: end now."""
        self._signals += 1
        if self._signals == 1:
            self._signalled_at = self._clock.now().mono
            logger().info("stopping", drain_s=self.poller.drain_s)
            self._to_poller.put(Stop())
        else:
            logger().warning("aborted", hint="what was in hand falls to the next owner: called again, or ended as outcome_unknown")
            _exit(130)

    async def watch(self, settings: Settings) -> None:
        """End the worker once its request topic is not the one that it began with, or another worker has its name."""
        names = [topic.name for topic in self._requests]
        cluster, topics = admin.untried(settings, TOPIC_LOOK_S, logger=kafka_logger()), settings.topics
        others = {topics.replies, topics.dead_letters, topics.parked, topics.journal, topics.state, topics.control}
        self._topics = TopicWatch(
            self._requests, lambda: admin.facts_of(cluster, names), lambda: admin.missing_of(cluster, others), logger()
        )
        due = partial(self._look_due, settings.worker.topic_check_s)
        watches = [self._watch("topic watch", self._topics, due)]
        watches.append(self._watch("group watch", Dissent(names, self._membership.topics, logger()), due))
        # Where the group does not know its members by name; and calls each of them something of its own.
        if member_name(settings, self._protocol) is None and "client.id" not in settings.kafka.properties:
            slot = settings.worker.slot
            of_ours, own = partial(self._membership.of, CLIENT_PREFIX + slot), lambda: self.poller.member_id
            namesakes = Namesakes(slot, of_ours, own, self._clock, self._times.session_s)
            watches.append(self._watch("name watch", namesakes, lambda: asyncio.sleep(namesakes.again_in_s)))
        await asyncio.gather(*watches)

    async def _watch(self, name: str, watch: TopicWatch | Namesakes | Dissent, due: Callable[[], Awaitable[None]]) -> None:
        """Look each time it is due, until something is wrong."""
        try:
            while watch.fault is None:
                await due()
                # Not in the loop's own pool: the process would wait for an answer when it ends.
                await self._thread(name, watch.look)
            if not self._signals:
                self._end(watch.fault)
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: a bug in it must be heard
            self._bug(error, name)

    async def attend(self) -> None:
        """See that the group and our client agree on what is ours, and join anew where they do not."""
        given = partial(self._membership.given, topics=[topic.name for topic in self._requests])
        attendance = Attendance(lambda: self._source.held, given, self._source.rejoin, logger(), self._times.heartbeat_s)
        try:
            while not self.poller.is_ending:
                await asyncio.sleep(LOOK_S)
                await self._thread("attendance", attendance.look)
        except Exception as error:  # noqa: BLE001 - as above
            self._bug(error, "attendance")

    async def _look_due(self, within_s: float) -> None:
        """Wait for the next look; soon where a position is beyond the end, as that of a topic that was made anew most often is."""
        due = self._clock.now().mono + within_s
        while (now := self._clock.now().mono) < due:
            await asyncio.sleep(min(TICK_S, due - now))
            if any(gap.cause is Cause.BEYOND_END for gap in self.engine.gaps.values()):
                return

    def report(self, settings: Settings) -> Reporter:
        """Begin to tell of the lanes in the workers topic; to be closed by the caller."""
        reporter = reporter_of(settings, self._request_topics, self.engine, self._post, self._clock)
        reporter.start()
        return reporter

    async def ended(self) -> None:
        """Wait until both threads have ended, each in its turn. Raises what one of them raised."""
        running = {self._poller_end, self._publisher_end}
        while not self._poller_end.done():
            await asyncio.wait(running, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
            if self._publisher_end.done() and self._publisher_end in running:
                # Nothing can be published any more: leave the group now, what is in hand is repeated by the next owner.
                running.remove(self._publisher_end)
                self._to_poller.put(PublisherEnded())
            self._leave_stuck()
            self._overstay()
        self._to_publisher.put(Stop())
        await asyncio.wait({self._publisher_end}, timeout=1 if self._poller_end.exception() else PUBLISHER_END_S)
        if not self._publisher_end.done():
            logger().warning("publisher_left", hint="Kafka does not answer; nothing of ours is left to publish")
        for name, end in (("publisher", self._publisher_end), ("poller", self._poller_end)):
            if end.done() and (error := end.exception()) is not None:
                if not isinstance(error, DispatcherError):
                    self._observer.bug(error, name)
                raise error
        if self._fault is not None:
            raise self._fault

    def _broken(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback on the event loop raised. A bug of ours ends the worker, loudly: a lane that stands silently helps nobody."""
        error = context.get("exception")
        if error is None or "handle" not in context:
            # What a client library has to say about a connection; its caller hears of it as well.
            logger().debug("event_loop", reason=str(context.get("message")))
            return
        self._bug(error, "event loop")

    def _bug(self, error: BaseException, where: str) -> None:
        self._observer.bug(error, where)
        if self._fault is None:
            self._end(DispatcherError(f"internal error: {type(error).__name__}", "the log above has the traceback: report it"))

    def _end(self, fault: DispatcherError) -> None:
        """End in order, and say why; the first reason counts."""
        self._fault = self._fault or fault
        self._to_poller.put(Stop(drain=False))

    def _leave_stuck(self) -> None:
        """A client that does not come back from leaving the group is left to itself: all is published and given up by then."""
        since = self.poller.leaving_since
        if self._poller_end.done() or since is None or self._clock.now().mono < since + LEAVE_S:
            return
        logger().warning("leave_expired", hint="the group notices after its session timeout")
        fault = None if self._signals else BrokerError("this worker cannot go on, and its client does not let go", "see the log above")
        _finish(self._poller_end, fault)

    def _shared(self, settings: Settings) -> tuple[Sharing, ShareLog]:
        """Share the limits with other workers: nothing begins under them before it is known what is ours."""
        sharing = self.engine.share(f"{settings.worker.slot}/{uuid.uuid4().hex[:12]}", self._to_share_log.put)
        bulletin = Bulletin(settings, Grumble("sharing_failed", SHARING_HINT), logger=kafka_logger())
        reader, topic, inbox = CompactedReader(settings), settings.topics.workers, self._to_share_log
        log = ShareLog(topic, reader, bulletin, sharing.told, self._post, inbox, self._clock, logger())
        self._share_log_end = self._thread("share log", log.run)
        self._share_log_end.add_done_callback(partial(self._ended_early, "share log"))
        return sharing, log

    async def leave_limits(self) -> None:
        """Tell the others that nothing of the limits is ours any more."""
        if self._shares is not None:
            sharing, log = self._shares
            log.farewell(sharing.leave())
            await asyncio.wait({self._share_log_end}, timeout=FAREWELL_S + 1)

    def _ended_early(self, name: str, end: asyncio.Future[None]) -> None:
        """Without the restorer nothing may start and nothing parked comes back, without the share log nothing under limits: the end."""
        error = end.exception()
        if isinstance(error, DispatcherError):
            self._end(error)
        elif error is not None:
            self._bug(error, name)

    def _overstay(self) -> None:
        """End a worker that was told to end and whose poller a client call holds beyond every grace; the next owner does what is left.

        At least once, a commit waits for a coordinator that is away for 45 s, each time: seen, more than two minutes after SIGTERM.
        """
        if self._signals and not self._poller_end.done() and self._clock.now().mono >= self._signalled_at + self._grace_s:
            _die("Kafka does not answer, and the time to end in order is over")

    def close(self) -> None:
        """Let go of what is left; the HTTP engine is its owner's."""
        self.publisher.abandon()
        self._to_restorer.put(Stop())
        self.health.close()

    def _post(self, function: Callable[..., None], *args: object) -> None:
        # The loop is closed only after both threads have ended, or while the process ends anyway.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def _thread(self, name: str, body: Callable[[], None]) -> asyncio.Future[None]:
        """Run `body` in a thread of its own; the future ends with it."""
        end: asyncio.Future[None] = self._loop.create_future()

        def run() -> None:
            error: BaseException | None = None
            try:
                body()
            except BaseException as caught:  # noqa: BLE001 - carried over to the event loop, whatever it is
                error = caught
            self._post(_finish, end, error)

        Thread(target=run, name=name, daemon=True).start()
        return end

    def _turn(self) -> None:
        self._tick = self._clock.now().mono
        self._loop.call_later(TICK_S, self._turn)

    def _stuck(self) -> str:
        """`/livez`: the loops turn; never "Kafka answers"."""
        now = self._clock.now().mono
        ticks = {"event loop": self._tick, "poller": self.poller.tick, "publisher": self.publisher.tick, "restorer": self.restorer.tick}
        return ", ".join(f"{name} has not turned for {now - tick:.0f} s" for name, tick in ticks.items() if now - tick > LIVE_S)

    def _unready(self) -> str:
        """`/readyz`: member of the group, every partition resolved, what is done gets published, not draining, nor broken for good."""
        if self._signals:
            return "draining"
        if self._fault is not None or self.poller.is_ending:
            return "ending"
        if not (self.poller.is_ready and self.publisher.is_open):
            return "joining"
        if self._topics is not None and (missing := self._topics.missing):
            return f"missing: {', '.join(missing)}"
        since, now = self.publisher.publishing_since, self._clock.now().mono
        if since is not None and now - since > self._publish_s:
            return f"nothing could be published for {now - since:.0f} s"
        unconfirmed = self.poller.unconfirmed
        return "" if unconfirmed is None or self._membership.holds(unconfirmed) else "joining"

    def _standing(self) -> str:
        """Partitions at a gap: no other worker, and no restart of this one, would get on with them, so this one is ready all the same."""
        standing = self.poller.standing
        return f"partitions {list(standing)} stand at a gap, see the log" if standing else ""

    def _unstarted(self) -> str:
        return "" if self.publisher.is_open else "starting"


def _finish(end: asyncio.Future[None], error: BaseException | None) -> None:
    if end.done():
        return  # It was not waited for any more.
    if error is None:
        end.set_result(None)
    else:
        end.set_exception(error)


def _die(message: str) -> None:
    """End at once, without leaving the group."""
    logger().error("died", reason=message)
    _exit(BrokerError.exit_code)


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
