"""Questions to Artemis' management before a consumer begins: where its dead letters belong, which places keep them.

Over STOMP a refused question ends the connection that it is asked on. So they have a connection of their own, and a
thread: `execute` never waits.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from redelivery.adapter import Sent, Subscribed
from redelivery.clock import capped
from redelivery.core.commands import Subscribe
from redelivery.core.dead_lettering.artemis_places import (
    ANSWERS,
    alone_at,
    answer_of,
    answered,
    answers_to,
    dropped_at,
    own_place,
    own_place_error,
    queues_at,
    repeated,
    rights,
    unusable,
    with_own_place,
    without_answer,
)
from redelivery.core.destination import Destination
from redelivery.core.events import Arrived, ConnectionLost
from redelivery.errors import AdapterError, RedeliveryError, TransportError
from redelivery.log import logger
from redelivery_stomp.delivery import StompDelivery, Subscription
from redelivery_stomp.frames import frame
from redelivery_stomp.headers import send_headers
from redelivery_stomp.receipts import REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.adapter import AdapterEvent, Opening, Sink
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.artemis_places import Question, Queue
    from redelivery_stomp.ports import QuestionIo

    LogIn = Callable[[Opening, Sink], QuestionIo]
    Placed = Callable[[Capabilities | None, RedeliveryError | None], None]

__all__ = ["ArtemisQuestions"]

LATE = 5.0
"""Seconds. Artemis answers in milliseconds. A broker whose management has another address never does."""
FRESH = 5.0
"""Seconds for which an answer is used: a queue may be gone by then, or take other messages."""
IDLE = 5.0
"""Seconds without a question after which the connection is closed."""
PAUSE, LONGEST = 0.5, 30.0
"""Seconds between two tries to find a consumer's own place: the first one, and the longest."""
GOODBYE = 1.0
"""Seconds to close the connection properly."""


class ArtemisQuestions:
    """Questions for the consumers and copies of one connection. An answer counts for `FRESH` seconds.

    Without an answer no place is guessed: the consumer waits. If this user may not ask, the place is the usual one, and
    each place counts as good; the first consumer has a caution.
    """

    def __init__(self, opening: Opening, log_in: LogIn, able: Capabilities) -> None:
        """Ask at the address of `opening`. `log_in`: opens a connection. `able`: of the broker."""
        # A broker takes one connection with a client id.
        self._opening = replace(opening, settings=replace(opening.settings, client_id=None))
        self._log_in, self._able = log_in, able
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._asking: _Asking | None = None
        self._ended = threading.Event()
        self._number = 0
        self._pause = PAUSE
        # Each with the time until which it is used.
        self._answers: dict[Question, tuple[float, Any]] = {}
        # Of places, by their names.
        self._lists: dict[str, tuple[float, Sequence[Queue]]] = {}
        # Why the broker answers this user no question.
        self._refusal: AdapterError | None = None
        self._warned = self._silent = False

    # Called by the adapter, and by consumers that start.

    def find(self, destination: str, then: Placed) -> None:
        """Find where the broker's own settings put the dead letters of a destination, and call `then` on any thread.

        It gets the capabilities with the place; or an error, if the place cannot be used.
        """
        self._put(partial(self._find, destination, then))

    def unknown(self, place: str) -> bool:
        """True if the queues of a place are still to be asked for."""
        # A topic keeps what its subscribers keep: who names one wants that.
        if self._silent or self._refusal is not None or place.startswith("topic://"):
            return False
        known = self._lists.get(place)
        return known is None or known[0] <= time.monotonic()

    def look(self, places: Sequence[str], then: Callable[[], None], *, again: bool = False) -> None:
        """Ask for the queues of places, and call `then` on any thread. `again`: also for those just asked for."""
        self._put(partial(self._look, places, then, again=again))

    def dropped(self, place: str, origin: str) -> str:
        """Return why dead letters of the address `origin` may be dropped at a place; empty: none is, or not known."""
        queues = self._queues(place)
        if queues is None:
            return ""
        return dropped_at(Destination.parse(self.alone(place)), queues, origin, refused=False)

    def alone(self, place: str) -> str:
        """Return the destination that reaches the queue of a place, and no other one of its address."""
        queues = self._queues(place)
        return place if queues is None else alone_at(Destination.parse(place), queues) or place

    def _queues(self, place: str) -> Sequence[Queue] | None:
        known = self._lists.get(place)
        return None if known is None else known[1]

    def caution(self, places: Sequence[str]) -> str:
        """Return the caution of the first consumer about its places if this user may not ask; else empty."""
        named = [each for each in places if not each.startswith("topic://")]
        if self._refusal is None or self._warned or not named:
            return ""
        self._warned = True
        address = str(self._able.management_address)
        return (
            f"the broker does not tell this user which queues {', '.join(named)} has ({self._refusal}): Artemis "
            f"confirms a dead letter that no queue there takes, and drops it; give this user {rights(address)}"
        )

    def end(self) -> None:
        """Close, and answer nothing any more."""
        with self._lock:
            self._ended.set()
            self._jobs.put(None)
            asking = self._asking
        if asking is not None:
            asking.abandon()

    # On the thread.

    def _put(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._jobs.put(job)
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name="redelivery-questions", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:
                # The thread must go on: other consumers would wait for ever.
                logger.exception("a question to the broker's management has failed")

    def _next(self) -> Callable[[], None] | None:
        """Wait for a question; return None, and let the thread end, if there is none."""
        while True:
            try:
                job = self._jobs.get(timeout=IDLE)
            except Empty:
                job = None
            with self._lock:
                if job is not None and not self._ended.is_set():
                    return job
                if not self._ended.is_set() and not self._jobs.empty():
                    continue
                # From now on another question makes a thread and a connection of its own.
                asking, self._asking, self._thread = self._asking, None, None
            if asking is not None:
                asking.close()
            return None

    def _find(self, destination: str, then: Placed) -> None:
        try:
            able = self._placed(destination)
        except TransportError:
            # No place is guessed. Others' questions come first.
            self._ended.wait(self._pause)
            self._pause = min(2 * self._pause, LONGEST)
            self._put(partial(self._find, destination, then))
        except RedeliveryError as error:
            then(None, error)
        else:
            self._pause = PAUSE
            then(able, None)

    def _placed(self, destination: str) -> Capabilities:
        if self._refusal is not None:
            return self._able
        try:
            place = answered(own_place(Destination.parse(destination)), self._ask)
        except AdapterError as error:
            if error.passes:
                raise TransportError(f"no answer yet: {error}") from error
            self._refusal = error
            first, self._warned = not self._warned, True
            return without_answer(self._able, error) if first else self._able
        if place is not None and (wrong := own_place_error(destination, place)) is not None:
            raise wrong
        if place is not None and place.make is not None:
            try:
                repeated(self._ask_anew, place.make)
            except AdapterError as error:
                raise unusable(place, str(error)) from error
        return with_own_place(self._able, place)

    def _look(self, places: Sequence[str], then: Callable[[], None], *, again: bool) -> None:
        for place in places:
            if again or self.unknown(place):
                self._list(place)
        then()

    def _list(self, place: str) -> None:
        asking, again = Destination.parse(place), partial(repeated, self._ask_anew)
        try:
            try:
                queues = answered(queues_at(asking), again)
            except _LostError:
                queues = answered(queues_at(asking), again)
        except AdapterError as error:
            # A list over which the management stumbles is asked for again, by the next consumer or copy.
            if not error.passes:
                self._refusal = error
        except RedeliveryError:
            self._silent = True
        else:
            self._lists[place] = time.monotonic() + FRESH, queues

    def _ask(self, question: Question) -> Any:
        known = self._answers.get(question)
        if known is None or known[0] <= time.monotonic():
            known = self._answers[question] = time.monotonic() + FRESH, repeated(self._ask_anew, question)
        return known[1]

    def _ask_anew(self, question: Question) -> Any:
        """Return the broker's answer. AdapterError: it refuses. TransportError: there is none."""
        try:
            return self._connected().ask(question)
        except RedeliveryError:
            # A refusal ends the connection, too; and an answer that is late would only come later.
            self._hang_up()
            raise

    def _connected(self) -> _Asking:
        if self._asking is None:
            # Numbers of its own, below those of the consumers' connections.
            self._number -= 1
            opening = replace(self._opening, epoch=self._number)
            try:
                asking = _Asking(opening, self._log_in, str(self._able.management_address))
            except AdapterError as error:
                if error.passes:
                    raise _LostError(str(error)) from error
                raise
            with self._lock:
                self._asking = asking
            if self._ended.is_set():
                asking.abandon()
        return self._asking

    def _hang_up(self) -> None:
        with self._lock:
            asking, self._asking = self._asking, None
        if asking is not None:
            asking.abandon()


class _LostError(TransportError):
    """The connection was lost before the answer."""


class _Asking:
    """Connection with a subscriber for the answers."""

    def __init__(self, opening: Opening, log_in: LogIn, address: str) -> None:
        """Connect. Raises as `Adapter.open` does, AdapterError if the broker refuses the subscriber."""
        self._heard: SimpleQueue[AdapterEvent | None] = SimpleQueue()
        self._address = address
        self._asked = 0
        self._marks = uuid.uuid4().hex
        self._link = link = log_in(opening, self._heard.put)
        try:
            command = Subscribe(1, f"topic://{ANSWERS}", 100, answers_to(self._marks))
            source = Subscription(command, link.epoch, link.profile, link.version, self._marks)
            with link.order:
                link.turns.begin(source, self._heard.put, set())
            self._wait(lambda event: isinstance(event, Subscribed))
        except BaseException:
            link.abandon()
            raise

    def ask(self, question: Question) -> Any:
        """Return the broker's answer. Raises AdapterError if it refuses, TransportError if there is none."""
        self._asked += 1
        mark, link = f"{self._marks}-{self._asked}", self._link
        message = question.message(self._address, mark)
        # A refusal names no request. It is given to the oldest one of this kind.
        receipt = link.receipt(lambda error: self._heard.put(Sent(self._asked, error)), REQUEST)
        with link.order:
            link.write(frame(b"SEND", [*send_headers(link.profile, message), receipt], message.body))
        found: list[StompDelivery] = []

        def answers(event: AdapterEvent) -> bool:
            if isinstance(event, Arrived):
                found.extend(each for each in event.deliveries if isinstance(each, StompDelivery))
            return any(each.correlation_id == mark for each in found)

        self._wait(answers)
        link.write(b"".join(b"%b\n\0" % each.settlement(b"ACK") for each in found))
        answer = next(each for each in found if each.correlation_id == mark)
        return answer_of(answer.body, answer.headers)

    def _wait(self, wanted: Callable[[AdapterEvent], bool]) -> None:
        """Wait for an event. Raises the error of a refusal before it."""
        deadline = time.monotonic() + LATE
        while True:
            try:
                event = self._heard.get(timeout=capped(max(0.0, deadline - time.monotonic())))
            except Empty:
                raise TransportError(f"{self._address} has not answered within {LATE:g} s") from None
            error = event.error if isinstance(event, Sent | Subscribed | ConnectionLost) else None
            if isinstance(error, AdapterError):
                raise error
            if event is None or error is not None:
                raise _LostError(f"the connection to ask {self._address} was lost: {error}")
            if wanted(event):
                return

    def abandon(self) -> None:
        """Close at once; a question that waits is not answered."""
        self._link.abandon()
        self._heard.put(None)

    def close(self) -> None:
        """Close properly: the broker ends the subscriber."""
        self._link.close(GOODBYE)
