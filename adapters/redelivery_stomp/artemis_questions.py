"""Questions to Artemis' management before a consumer begins: where its dead letters belong, which places keep them.

What is asked, and what follows, is `ArtemisManagement`'s. Over STOMP a refused question ends the connection that it is
asked on. So they have a connection of their own, and a thread: `execute` never waits.
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
from redelivery.core.dead_lettering.artemis_management import LATE, ArtemisManagement, after_all
from redelivery.core.dead_lettering.artemis_places import ANSWERS, answer_of, answers_to
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
    from redelivery.core.commands import Forward
    from redelivery.core.dead_lettering.artemis_management import Call, Placed
    from redelivery.core.dead_lettering.artemis_places import Question
    from redelivery_stomp.ports import QuestionIo

    LogIn = Callable[[Opening, Sink], QuestionIo]

__all__ = ["ArtemisQuestions"]

IDLE = 5.0
"""Seconds without a question after which the connection is closed."""
GOODBYE = 1.0
"""Seconds to close the connection properly."""


class ArtemisQuestions:
    """The connection for the questions of one connection's consumers and copies, one at a time, and its thread.

    That thread makes all calls that answer.
    """

    def __init__(self, opening: Opening, log_in: LogIn, able: Capabilities) -> None:
        """Ask at the address of `opening`. `log_in`: opens a connection. `able`: of the broker."""
        # A broker takes one connection with a client id.
        timeout = min(LATE, opening.settings.connect_timeout)
        settings = replace(opening.settings, client_id=None, connect_timeout=timeout)
        self._opening = replace(opening, settings=settings)
        self._log_in, self._address = log_in, str(able.management_address)
        # For all below.
        self._changed = threading.Condition()
        self._known = ArtemisManagement(able, logger.warning)
        self._calls: list[Call] = []
        self._thread: threading.Thread | None = None
        self._asking: _Asking | None = None
        self._ended = False
        self._number = 0

    # Called by the adapter, and by consumers that start.

    def find(self, destination: str, then: Placed, wanted: Callable[[], bool]) -> None:
        """See ArtemisManagement."""
        self._want(partial(self._known.find, destination, then, wanted=wanted))

    def look(self, places: Sequence[str], then: Callable[[], None], *, again: bool = False) -> None:
        """Ask for the queues of places, and call `then`. `again`: also for those just asked for."""
        # Without an error: the loss of the consumers' connection has been their answer.
        looked = after_all(len(places), lambda _: then())
        for place in places:
            self._want(partial(self._known.look, place, looked, again=again))

    def unknown(self, place: str) -> bool:
        """See ArtemisManagement."""
        with self._changed:
            return self._known.unknown(place, time.monotonic())

    def dropped(self, place: str, source: str) -> str:
        """See ArtemisManagement."""
        with self._changed:
            return self._known.dropped(place, source, refused=False)

    def drops(self, command: Forward, source: str) -> str:
        """See ArtemisManagement."""
        with self._changed:
            return self._known.drops(command, source, refused=False)

    def alone(self, place: str) -> str:
        """See ArtemisManagement."""
        with self._changed:
            return self._known.alone(place)

    def caution(self, places: Sequence[str]) -> str:
        """See ArtemisManagement."""
        with self._changed:
            return self._known.caution(places)

    def end(self) -> None:
        """Close, and answer nothing any more."""
        with self._changed:
            self._ended = True
            self._changed.notify()
            asking = self._asking
        if asking is not None:
            asking.abandon()

    def _want(self, want: Callable[..., list[Call]]) -> None:
        with self._changed:
            self._calls += want(now=time.monotonic())
            self._changed.notify()
            if self._thread is None and not self._ended:
                thread = threading.Thread(target=self._run, name="redelivery-questions", daemon=True)
                # It may raise. Then the next call tries again.
                thread.start()
                self._thread = thread

    # On the thread.

    def _run(self) -> None:
        while (turn := self._next()) is not None:
            calls, question = turn
            for call in calls:
                try:
                    call()
                except Exception:
                    # The thread must go on: other consumers would wait for ever.
                    logger.exception("a consumer that has asked the broker's management has failed")
            if question is not None:
                self._ask(question)

    def _next(self) -> tuple[list[Call], Question | None] | None:
        """Wait for calls or a question; return None, and let the thread end, if there is none."""
        with self._changed:
            while not self._ended:
                calls, self._calls = self._calls, []
                question = None if calls else self._known.next_question(time.monotonic())
                if calls or question is not None:
                    return calls, question
                due = self._known.due
                limit = IDLE if due is None else max(0.0, due - time.monotonic())
                late = not self._changed.wait(capped(limit))
                # Somebody may have asked between the end of the wait and now.
                if late and not self._calls and self._known.due is None:
                    break
            # From now on another question makes a thread and a connection of its own.
            asking, self._asking, self._thread = self._asking, None, None
        if asking is not None:
            asking.close()
        return None

    def _ask(self, question: Question) -> None:
        """Ask, and keep who is to be called."""
        outcome: Callable[..., list[Call]]
        began = time.monotonic()
        try:
            outcome = partial(self._known.answered, question, self._connected().ask(question))
        except AdapterError as error:
            # A refusal ends the connection.
            self._hang_up()
            outcome = partial(self._known.refused, question, error)
        except Exception as error:
            if not isinstance(error, RedeliveryError):
                # No thread, no memory: the others must not wait for ever.
                logger.exception("a question to the broker's management has failed")
            # An answer that is late would only come later.
            self._hang_up()
            # Not cut, nor refused: nothing is heard.
            silent = time.monotonic() - began >= self._opening.settings.connect_timeout
            outcome = partial(self._known.unanswered, str(error), silent=silent)
        with self._changed:
            self._calls += outcome(now=time.monotonic())

    def _connected(self) -> _Asking:
        if self._asking is None:
            # Numbers of its own, below those of the consumers' connections.
            self._number -= 1
            opening = replace(self._opening, epoch=self._number)
            try:
                asking = _Asking(opening, self._log_in, self._address)
            except AdapterError as error:
                if error.passes:
                    raise TransportError(str(error)) from error
                raise
            with self._changed:
                self._asking, ended = asking, self._ended
            if ended:
                asking.abandon()
        return self._asking

    def _hang_up(self) -> None:
        with self._changed:
            asking, self._asking = self._asking, None
        if asking is not None:
            asking.abandon()


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
                raise TransportError(f"the connection to ask {self._address} was lost: {error}")
            if wanted(event):
                return

    def abandon(self) -> None:
        """Close at once; a question that waits is not answered."""
        self._link.abandon()
        self._heard.put(None)

    def close(self) -> None:
        """Close properly: the broker ends the subscriber."""
        self._link.close(GOODBYE)
