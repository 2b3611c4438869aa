"""The thread that writes a client's requests: it owns the producer, and tells the event loop how each request ended."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from dispatcher.adapters.kafka.faults import is_fatal
from dispatcher.client.submitter import Sent, Submitter
from dispatcher.core.messages.submission import Receipt, Submission
from dispatcher.errors import DispatcherError, SubmitUnknown, WaitTimeout
from dispatcher.settings import Settings

# Gathers what is submitted at the same moment; an ask does not feel it.
LINGER_MS = 1
# While acknowledgements are awaited, a further request waits for at most this long before it is handed over.
POLL_S = 0.005
# Without any: how often librdkafka may tell what it has to tell.
IDLE_S = 5.0
# A producer that cannot reach the broker may not come back from its end; nothing of ours is left in it then.
END_S = 5.0

UNKNOWN_HINT = "it may be in the topic: submit it again under this id"

Outcome = Receipt | DispatcherError


@dataclass(slots=True, eq=False)
class Outgoing:
    """A request for the thread. `told` is called in the thread, once, of a request that was withdrawn in time too.

    The asker may withdraw it. Each side writes its own mark before it reads the other's, so one of the two sees that both moved: whoever
    withdraws and then finds it not `handed` knows for certain that it was not and will not be written.
    """

    submission: Submission
    told: Callable[[Outcome], None]
    withdrawn: bool = False
    handed: bool = False
    in_time: bool = False

    def withdraw(self) -> bool:
        """Ask for it not to be sent; whether that came in time. Asked again it says the same."""
        if not self.withdrawn:
            self.withdrawn = True
            self.in_time = not self.handed
        return self.in_time


class Sender:
    """Writes requests in the order of `send`. The acknowledgement of each ends within `ack_timeout_s`, or its end is unknown.

    A producer that is lost for good is replaced.
    """

    def __init__(self, settings: Settings, ack_timeout_s: float) -> None:
        self._settings = settings
        self._ack_timeout_s = ack_timeout_s
        self._letters: SimpleQueue[Outgoing | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        # Of the thread:
        self._open: dict[int, tuple[Sent, Outgoing]] = {}  # by the identity of the first
        self._ended: deque[Sent] = deque()

    def start(self) -> None:
        """Start the thread. Belongs to the event loop, as `send` and `close` do."""
        self._thread = threading.Thread(target=self._run, name="dispatcher-sender", daemon=True)
        self._thread.start()

    def send(self, submission: Submission, told: Callable[[Outcome], None]) -> Outgoing:
        """Have a request written."""
        outgoing = Outgoing(submission, told)
        self._letters.put(outgoing)
        return outgoing

    def close(self) -> None:
        """End the thread; requests without an acknowledgement have an unknown end."""
        if self._thread is not None:
            self._letters.put(None)
            self._thread.join(END_S)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - a bug of ours, or a bad property, must not leave askers waiting
            known = error if isinstance(error, DispatcherError) else DispatcherError(f"the client's sender ended: {type(error).__name__}")
            self._give_up()
            while (outgoing := self._letters.get()) is not None:
                outgoing.told(known)

    def _work(self) -> None:
        is_closed = False
        while not is_closed:
            is_closed = self._write(Submitter(self._settings, timeout_s=self._ack_timeout_s, linger_ms=LINGER_MS))

    def _write(self, submitter: Submitter) -> bool:
        """Write with one producer, until the client is closed or the producer is lost for good; whether it is closed."""
        is_closed = is_lost = False
        try:
            submitter.greet()
            while not (is_closed or is_lost):
                is_closed = self._take_letters(submitter)
                submitter.poll(POLL_S if self._open else 0)
                is_lost = self._tell(submitter)
        finally:
            submitter.close()  # reports what was still open
            self._tell(submitter)
            self._give_up()
        return is_closed

    def _take_letters(self, submitter: Submitter) -> bool:
        """Hand over what has come; whether that was the end. Without anything open it waits for something to come."""
        with contextlib.suppress(Empty):
            while (outgoing := self._letters.get(block=not self._open, timeout=IDLE_S)) is not None:
                outgoing.handed = True
                if outgoing.withdrawn:
                    name = outgoing.submission.request_id
                    outgoing.told(WaitTimeout(f"request {name} was not sent: its time was over", "give it more time"))
                else:
                    sent = submitter.send(outgoing.submission, self._ended)
                    self._open[id(sent)] = sent, outgoing
            return True
        return False

    def _tell(self, submitter: Submitter) -> bool:
        """Tell how requests ended; whether the producer is lost for good."""
        lost = False
        while self._ended:
            sent = self._ended.popleft()
            _, outgoing = self._open.pop(id(sent))
            outgoing.told(submitter.outcome(sent))
            lost = lost or (sent.error is not None and is_fatal(sent.error))
        return lost

    def _give_up(self) -> None:
        """Tell those of which nothing was heard."""
        while self._open:
            _, outgoing = self._open.popitem()[1]
            name = outgoing.submission.request_id
            outgoing.told(SubmitUnknown(f"no acknowledgement for request {name}: the client ended", UNKNOWN_HINT, request_id=name))
