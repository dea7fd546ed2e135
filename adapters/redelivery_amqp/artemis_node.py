"""Artemis' management over a link of the consumers' connection: where dead letters belong, which places keep them.

Every method runs under the wire's lock.
"""

from __future__ import annotations

import itertools
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import proton

from redelivery.adapter_support.sockets import ResponseTimeout
from redelivery.core.dead_lettering.artemis_management import LATE, ArtemisManagement
from redelivery.core.dead_lettering.artemis_places import ANSWERS, Question, answer_of, answers_to
from redelivery.errors import AdapterError
from redelivery.log import logger
from redelivery_amqp.management_link import Reply
from redelivery_amqp.message_encoding import encoded
from redelivery_amqp.receiver import SELECTOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.dead_lettering.artemis_management import Call, Looked, Placed
    from redelivery.errors import RedeliveryError
    from redelivery_amqp.management_link import Management, Request
    from redelivery_amqp.profile_base import AmqpProfile

__all__ = ["ArtemisNode", "LinkQuestions"]


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


class LinkQuestions:
    """Asks what the consumers of one connection want to know.

    Args:
        management: Of the connection.
        profile: Of the broker.
        after: Called without the lock after each `LATE` seconds of waiting; it calls `late`.
    """

    def __init__(self, management: Management, profile: AmqpProfile, after: Callable[[], None]) -> None:
        self._management = management
        self.known = ArtemisManagement(profile.capabilities, logger.warning)
        self._timer = ResponseTimeout(after, LATE)
        self._timed = False

    def find(self, destination: str, then: Placed, wanted: Callable[[], bool]) -> None:
        """See ArtemisManagement; `then` may be called before this returns."""
        self._go_on(self.known.find(destination, then, time.monotonic(), wanted))

    def look(self, place: str, then: Looked, *, again: bool = False) -> None:
        """See ArtemisManagement; `then` may be called before this returns."""
        self._go_on(self.known.look(place, then, time.monotonic(), again=again))

    def late(self) -> None:
        """Handle that there is no answer; ask again what is due."""
        self._timed = False
        calls: list[Call] = []
        if self.known.awaits:
            why = f"no answer within {LATE:g} s"
            calls = self.known.unanswered(why, time.monotonic(), silent=True)
        self._go_on(calls)

    def fail(self, error: RedeliveryError) -> None:
        """Handle the loss of the connection."""
        self._timer.end()
        for call in self.known.end(error):
            call()

    def _go_on(self, calls: list[Call], *, replied: bool = False) -> None:
        while (question := self.known.next_question(time.monotonic())) is not None:
            answer = partial(self._replied, question)
            self._management.ask(question.operation, "", question.arguments, answer)
        if self.known.due is None and not self.known.awaits:
            self._timed = False
            self._timer.answered()
        elif replied or not self._timed:
            self._timed = True
            self._timer.asked()
        for call in calls:
            call()

    def _replied(self, question: Question, reply: Reply) -> None:
        now = time.monotonic()
        if reply.error is None:
            self._go_on(self.known.answered(question, reply.body, now), replied=True)
        elif isinstance(reply.error, AdapterError):
            self._go_on(self.known.refused(question, reply.error, now), replied=True)
        # Else the connection is lost: `fail`.
