"""Start of a consumer: its dead-letter destinations are found and checked, and then its link is attached.

Every method runs under the wire's lock.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from redelivery.core.capabilities import cannot_browse
from redelivery.errors import AdapterError, retold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Subscribe
    from redelivery.errors import RedeliveryError
    from redelivery_amqp.link_registry import LinkRegistry
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_amqp.receiver import ReceiverLink

__all__ = ["ConsumerStart", "cannot_subscribe"]


def cannot_subscribe(command: Subscribe, profile: AmqpProfile) -> str | None:
    """Return why the broker cannot have such a consumer; None: it can."""
    if command.browse and not profile.capabilities.browse:
        return cannot_browse(profile.capabilities)
    problems = (profile.problem(each) for each in (command.destination, *command.dead_letters))
    return next((each for each in problems if each is not None), None)


class ConsumerStart:
    """One consumer until its link is attached. The receiver answers an error."""

    def __init__(self, links: LinkRegistry, receiver: ReceiverLink) -> None:
        self._links = links
        self._receiver = receiver
        self._asks = links.asks
        # Places whose queues were asked for.
        self._asked: set[str] = set()

    def begin(self) -> None:
        """Begin with the first question to the broker."""
        receiver = self._receiver
        if not (self._asks and receiver.selects_in_queue):
            self._find()
        elif receiver.command.existing:
            receiver.as_queue = True
            self._find()
        else:
            # An older answer may be from before another consumer's link has made the queue.
            self._links.questions.look(receiver.destination, self._looked, again=True)

    def _looked(self, error: RedeliveryError | None) -> None:
        """Go on when it is known if the consumed queue is there. A missing one gets the selector as its filter."""
        receiver = self._receiver
        if error is not None:
            receiver.answer(error)
            return
        # None, if the broker has not answered: as if it were there.
        receiver.as_queue = self._links.questions.known.queues(receiver.destination) != []
        self._find()

    def _find(self) -> None:
        if self._receiver.command.own_place:
            receiver = self._receiver
            self._links.questions.find(receiver.destination, self._found, lambda: not receiver.ended)
        else:
            self._check(self._receiver.command.dead_letters)

    def _found(self, able: Capabilities | None, error: RedeliveryError | None) -> None:
        receiver = self._receiver
        if error is not None:
            receiver.answer(error)
        elif able is not None:
            receiver.able = able
            self._check((*receiver.command.dead_letters, able.dead_letter_destination))

    def _check(self, unchecked: Sequence[str]) -> None:
        for number, place in enumerate(unchecked):
            destination = place if self._own(place) else self._links.alone_name(place)
            sender = self._links.senders.to(destination, dead=True, beside=self._receiver.command)
            go_on = partial(self._checked, unchecked[number:])
            if not sender.attached or sender.error is not None:
                sender.when_attached(go_on)
                return
            # Not before: the link may have made its queue.
            why = self._dropped(destination)
            if destination not in self._asked and (why or self._to_ask(destination)):
                # Once: an answer may take longer than it counts.
                self._asked.add(destination)
                self._links.questions.look(destination, go_on, again=bool(why))
                return
            if why:
                go_on(AdapterError(why))
                return
            self._links.proven.add(place)
        self._links.attach(self._receiver)

    def _to_ask(self, destination: str) -> bool:
        """Return True if the queues of a place are to be asked for."""
        known = self._links.questions.known
        return self._asks and not self._own(destination) and known.unknown(destination, time.monotonic())

    def _dropped(self, destination: str) -> str:
        """Return why a place may drop dead letters; empty: it keeps them, or this is not known."""
        if not self._asks or self._own(destination):
            return ""
        # Copies name the address of the consumed queue.
        source = self._receiver.profile.address(self._receiver.destination)
        return self._links.questions.known.dropped(destination, source, refused=True)

    def _own(self, destination: str) -> str:
        """Return the setting of the broker that has decided this place, or ""."""
        able = self._receiver.able
        if able is None or destination != able.dead_letter_destination:
            return ""
        return able.own_dead_letters

    def _checked(self, unchecked: Sequence[str], error: RedeliveryError | None) -> None:
        """Go on after an answer about the first of these places."""
        if error is None:
            self._check(unchecked)
            return
        if isinstance(error, AdapterError) and error.passes and unchecked[0] in self._links.proven:
            # Its node is down for now. The consumer need not wait for it: dead letters are sent until one is confirmed.
            self._check(unchecked[1:])
            return
        if isinstance(error, AdapterError):
            own = self._own(unchecked[0])
            whose = f", which is {own}," if own else ""
            cure = "; name another place: redelivery.deadLetterDestination" if own else ""
            error = retold(
                error, f"the dead-letter destination {unchecked[0]}{whose} cannot be used: {error}{cure}"
            )
        self._receiver.answer(error)
