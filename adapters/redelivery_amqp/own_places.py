"""Dead-letter places by a broker's own settings: asked before a consumer is attached (ActiveMQ Artemis).

Every method runs under the wire's lock.
"""

from __future__ import annotations

import itertools
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import proton

from redelivery.adapter_support.sockets import ResponseTimeout
from redelivery.core.dead_lettering.artemis_places import (
    ANSWERS,
    REPEATS,
    Question,
    answer_of,
    answers_to,
    own_place,
    own_place_error,
    queues_at,
    unusable,
    with_own_place,
    without_answer,
)
from redelivery.core.destination import Destination
from redelivery.errors import AdapterError, TransportError
from redelivery_amqp.management_link import Reply
from redelivery_amqp.message_encoding import encoded
from redelivery_amqp.receiver import SELECTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from redelivery.core.dead_lettering.artemis_places import OwnPlace, Queue
    from redelivery.errors import RedeliveryError
    from redelivery_amqp.management_link import Management, Request
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_amqp.receiver import ReceiverLink

__all__ = ["ArtemisNode", "OwnPlaces", "QueueLists"]


# ---- Artemis dialogue ------------------------------------------------------------------------------------
# Questions to Artemis' management, some at a time, until an answer is found.
#
# Every method runs under the wire's lock.

if TYPE_CHECKING:
    Ask = Callable[[Question, Callable[[Reply], None]], None]


Found = TypeVar("Found")


class Dialogue(Generic[Found]):
    """One dialogue. `asking` yields the questions; `end` gets what it returns, or the error.

    An AdapterError: the broker refuses to answer this user. A TransportError: the connection is lost.
    """

    def __init__(
        self,
        ask: Ask,
        asking: Generator[tuple[Question, ...], Sequence[Any], Found],
        end: Callable[[Found | None, RedeliveryError | None], None],
    ) -> None:
        self._to = ask
        self._asking = asking
        self._end = end
        self._replies: dict[Question, Reply] = {}

    def begin(self) -> None:
        """Ask the first questions."""
        self._ask(next(self._asking))

    def _ask(self, questions: tuple[Question, ...]) -> None:
        self._replies = {}

        def answered(question: Question, reply: Reply) -> None:
            self._replies[question] = reply
            if len(self._replies) == len(questions):
                self._go_on([self._replies[each] for each in questions])

        for each in questions:
            self._to(each, lambda reply, each=each: answered(each, reply))  # type: ignore[misc]

    def _go_on(self, replies: list[Reply]) -> None:
        error = next((each.error for each in replies if each.error is not None), None)
        if isinstance(error, TransportError):
            self._end(None, error)
            return
        try:
            if error is None:
                questions = self._asking.send([each.body for each in replies])
            else:
                questions = self._asking.throw(error)
        except StopIteration as end:
            self._end(end.value, None)
        except AdapterError as refusal:
            self._end(None, refusal)
        else:
            self._ask(questions)


# ---- Own places ------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Answer = Callable[[RedeliveryError | None], None]


class ArtemisNode:
    """Artemis' management address, with the answers to one connection on a topic."""

    most: ClassVar[int] = 100

    def __init__(self, profile: AmqpProfile) -> None:
        self._profile = profile
        self._marks = uuid.uuid4().hex
        self._numbers = itertools.count(1)

    def describe(self, sender: Any, receiver: Any) -> None:
        """See ManagementNode."""
        sender.target.address = self._address
        receiver.source.address = ANSWERS
        receiver.source.capabilities.put_object(proton.symbol("topic"))
        selector = proton.Described(SELECTOR, answers_to(self._marks))
        receiver.source.filter.put_object({SELECTOR: selector})
        receiver.snd_settle_mode = proton.Link.SND_SETTLED

    @property
    def _address(self) -> str:
        address = self._profile.capabilities.management_address
        assert address is not None, "this broker has one"
        return address

    def mark(self) -> str:
        """See ManagementNode."""
        return f"{self._marks}-{next(self._numbers)}"

    def encode(self, mark: str, request: Request) -> bytes:
        """See ManagementNode."""
        message = Question(request.method, request.body).message(self._address, mark)
        return encoded(message, self._profile, 0.0)

    def read(self, message: proton.Message) -> Reply:
        """See ManagementNode."""
        try:
            return Reply(200, answer_of(message.body, message.properties or {}))
        except AdapterError as error:
            return Reply(400, error=error)


def passes(error: RedeliveryError | None) -> bool:
    """Return True for a refusal of a question that can be answered the next time."""
    return isinstance(error, AdapterError) and bool(error.passes)


class OwnPlaces:
    """Questions of one connection about the broker's own dead-letter places. An answer is used again."""

    def __init__(self, management: Management, profile: AmqpProfile) -> None:
        self._management = management
        self._profile = profile
        self._answers: dict[Question, Any] = {}
        # Why the broker answers this user no question; None: it does, or was not asked yet.
        self._refusal: RedeliveryError | None = None

    def find(self, receiver: ReceiverLink, then: Answer) -> None:
        """Set `receiver.able` to the capabilities with the broker's own place, and call `then`.

        Without an answer there is no call: no place is guessed. If this user may not ask, the place is the usual one,
        with a caution for the first consumer. `then` gets an error if the connection is lost, if the place cannot be
        used, or if it is what the consumer consumes.
        """
        if self._refusal is not None:
            receiver.able = self._profile.capabilities
            then(None)
        else:
            _Search(self, receiver, then).begin()

    def ask(self, question: Question, answer: Callable[[Reply], None], *, again: bool = False) -> None:
        """Ask the broker a question; `again`: also if it has been answered before."""
        if question in self._answers and not again:
            answer(Reply(200, self._answers[question]))
            return

        tries = 0

        def answered(reply: Reply) -> None:
            nonlocal tries
            tries += 1
            if passes(reply.error) and tries <= REPEATS:
                self._management.ask(question.operation, "", question.arguments, answered)
                return
            if reply.done and not again:
                self._answers[question] = reply.body
            answer(reply)

        self._management.ask(question.operation, "", question.arguments, answered)

    def ask_anew(self, question: Question, answer: Callable[[Reply], None]) -> None:
        """Ask a question also if it has been answered before; a user to whom none is answered gets that error."""
        if self._refusal is not None:
            answer(Reply(0, error=self._refusal))
        else:
            self.ask(question, answer, again=True)

    def found(self, receiver: ReceiverLink, place: OwnPlace | None) -> None:
        """Keep the place of a consumer's dead letters."""
        receiver.able = with_own_place(self._profile.capabilities, place)

    def unasked(self, receiver: ReceiverLink, error: RedeliveryError) -> None:
        """Keep the usual place: the broker does not answer this user. The first consumer has a caution."""
        able = self._profile.capabilities
        first, self._refusal = self._refusal is None, error
        receiver.able = without_answer(able, error) if first else able


class _Search:
    """The questions for one consumer: some at a time, until its place is known."""

    def __init__(self, places: OwnPlaces, receiver: ReceiverLink, then: Answer) -> None:
        self._places = places
        self._receiver = receiver
        self._then = then

    def begin(self) -> None:
        """Ask the first questions."""
        source = Destination.parse(self._receiver.destination)
        Dialogue(self._places.ask, own_place(source), self._answered).begin()

    def _answered(self, place: OwnPlace | None, error: RedeliveryError | None) -> None:
        if isinstance(error, TransportError) or passes(error):
            self._then(error)
        elif error is not None:
            self._places.unasked(self._receiver, error)
            self._then(None)
        else:
            self._found(place)

    def _found(self, place: OwnPlace | None) -> None:
        error = None if place is None else own_place_error(self._receiver.destination, place)
        if error is not None:
            self._then(error)
        elif place is not None and place.make is not None and not self._receiver.ended:
            self._places.ask(place.make, lambda reply: self._made(place, reply), again=True)
        else:
            self._end(place)

    def _made(self, place: OwnPlace, reply: Reply) -> None:
        if reply.error is None:
            self._end(place)
        else:
            lost = isinstance(reply.error, TransportError)
            self._then(reply.error if lost else unusable(place, str(reply.error)))

    def _end(self, place: OwnPlace | None) -> None:
        self._places.found(self._receiver, place)
        self._then(None)


# ---- Queue lists -----------------------------------------------------------------------------------------
# Queues that a name reaches on Artemis, asked of its management before a consumer begins.
#
# Every method runs under the wire's lock.

LATE = 5.0
"""Seconds. Artemis answers in milliseconds. A broker whose management has another address never does."""


class QueueLists:
    """Lists of one connection, by the names that were asked for.

    Nothing is said if no answer comes: the user may not ask, or the management is silent.

    Args:
        ask: Asks the broker a question.
        after: Called without the lock after `LATE` seconds without an answer; it calls `give_up`.
    """

    def __init__(self, ask: Ask, after: Callable[[], None]) -> None:
        self._ask = ask
        self._timer = ResponseTimeout(after, LATE)
        self._found: dict[str, Sequence[Queue]] = {}
        self._waiting: dict[str, list[Answer]] = {}
        self.answered = True
        """False: the broker does not answer this user."""

    def of(self, name: str) -> Sequence[Queue] | None:
        """Return the queues of a name by the last answer; None: there is none."""
        return self._found.get(name)

    def ask(self, name: str, then: Answer) -> None:
        """Ask for the queues of a name, and call `then`; with an error if the connection is lost."""
        if not self.answered:
            then(None)
        elif name in self._waiting:
            self._waiting[name].append(then)
        else:
            self._waiting[name] = [then]
            self._timer.asked()
            Dialogue(self._ask, queues_at(Destination.parse(name)), partial(self._end, name)).begin()

    def _end(self, name: str, queues: Sequence[Queue] | None, error: RedeliveryError | None) -> None:
        if queues is not None:
            self._found[name] = queues
        elif isinstance(error, AdapterError) and not passes(error):
            self.answered, error = False, None
        waiting = self._waiting.pop(name, [])
        if not self._waiting:
            self._timer.answered()
        for then in waiting:
            then(error)

    def give_up(self) -> None:
        """Wait no longer: nothing has answered in time."""
        self.answered = False
        waiting, self._waiting = self._waiting, {}
        for then in [each for answers in waiting.values() for each in answers]:
            then(None)

    def quiet(self) -> None:
        """End the wait for good: the connection is lost."""
        self._timer.end()
