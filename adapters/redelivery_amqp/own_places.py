"""Dead-letter places by a broker's own settings: asked before a consumer is attached (ActiveMQ Artemis).

Every method runs under the wire's lock.
"""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import proton

from redelivery.core.artemis_management import ANSWERS, Question, answer_of, answers_to, rights
from redelivery.core.dead_lettering.artemis_own_place import ORIGIN, own_place
from redelivery.core.destination import Destination
from redelivery.errors import AdapterError, TransportError
from redelivery_amqp.management_link import Reply
from redelivery_amqp.message_encoding import encoded
from redelivery_amqp.receiver import SELECTOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.dead_lettering.artemis_own_place import Asking, OwnPlace
    from redelivery.errors import RedeliveryError
    from redelivery_amqp.management_link import Management, Request
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_amqp.receiver import ReceiverLink

    Answer = Callable[[RedeliveryError | None], None]

__all__ = ["ArtemisNode", "OwnPlaces"]


class ArtemisNode:
    """Artemis' management address, with the answers to one pair of links on a topic."""

    rests: ClassVar[bool] = True

    def __init__(self, profile: AmqpProfile) -> None:
        self._profile = profile
        self._marks = uuid.uuid4().hex

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

    def mark(self, number: int) -> str:
        """See ManagementNode."""
        return f"{self._marks}-{number}"

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


class OwnPlaces:
    """Questions of one connection about the broker's own dead-letter places. Nothing is cached: settings change."""

    def __init__(self, management: Management, profile: AmqpProfile) -> None:
        self._management = management
        self._profile = profile
        # Why the broker answers this user no question; None: it does, or was not asked yet.
        self._refusal: AdapterError | None = None
        # One search at a time: after a refusal those behind it ask nothing.
        self._searches: deque[_Search] = deque()

    def find(self, receiver: ReceiverLink, then: Answer) -> None:
        """Set `receiver.able` to the capabilities with the broker's own place, then call `then`.

        Without an answer there is no call: no place is guessed. If the broker refuses, the place is the usual one,
        with a caution for the first consumer. `then` gets an error if the connection is lost.
        """
        self._searches.append(_Search(self, receiver, then))
        if len(self._searches) == 1:
            self._begin()

    def over(self) -> None:
        """Begin the next search."""
        self._searches.popleft()
        self._begin()

    def _begin(self) -> None:
        while self._searches and self._refusal is not None:
            search = self._searches.popleft()
            search.receiver.able = self._profile.capabilities
            search.then(None)
        if self._searches:
            self._searches[0].go_on(None)

    def ask(self, question: Question, answer: Callable[[Reply], None]) -> None:
        """Ask the broker one question."""
        self._management.ask(question.operation, "", question.arguments, answer)

    def found(self, receiver: ReceiverLink, place: OwnPlace | None) -> None:
        """Keep the place of a consumer's dead letters."""
        able = self._profile.capabilities
        if place is not None:
            able = replace(
                able,
                dead_letter_destination=place.destination,
                dead_letter_properties=((ORIGIN, place.address),),
                own_dead_letters=place.told,
            )
        receiver.able = able

    def refused(self, receiver: ReceiverLink, error: AdapterError, *, every: bool) -> None:
        """Keep the usual place, with a caution; `every`: the broker answers no question of this user."""
        able = self._profile.capabilities
        if every:
            self._refusal = error
        needs = "" if able.management_address is None else rights(able.management_address)
        receiver.able = replace(
            able,
            caution=(
                f"the broker does not tell where its own settings put dead letters ({error}): copies go to "
                f"{able.dead_letter_destination}; give this user {needs}, or name the place "
                "(redelivery.deadLetterDestination)"
            ),
        )


class _Search:
    """The questions for one consumer, one after the other."""

    def __init__(self, places: OwnPlaces, receiver: ReceiverLink, then: Answer) -> None:
        self.receiver = receiver
        self.then = then
        self._places = places
        self._asking: Asking = own_place(Destination.parse(receiver.destination))

    def go_on(self, reply: Reply | None) -> None:
        """Ask the first question, or the one after this reply."""
        error = None if reply is None else reply.error
        if isinstance(error, TransportError):
            self.then(error)
            return
        try:
            if error is not None:
                question = self._asking.throw(error)
            else:
                question = self._asking.send(None if reply is None else reply.body)
        except StopIteration as end:
            self._places.found(self.receiver, end.value)
        except AdapterError as refusal:
            # Without a status no request of this user reaches the management.
            self._places.refused(self.receiver, refusal, every=reply is not None and reply.status == 0)
        else:
            self._places.ask(question, self.go_on)
            return
        self.then(None)
        self._places.over()
