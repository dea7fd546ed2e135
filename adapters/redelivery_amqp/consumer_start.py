"""Start of a consumer: its dead-letter destinations are found and checked, and then its link is attached.

Every method runs under the wire's lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from redelivery.core.capabilities import cannot_browse
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def begin(self) -> None:
        """Begin with the first question to the broker."""
        if self._receiver.command.own_place:
            self._links.own_places.find(self._receiver, self._found)
        else:
            self._check(self._receiver.command.dead_letters)

    def _found(self, error: RedeliveryError | None) -> None:
        receiver = self._receiver
        if error is not None:
            receiver.answer(error)
        elif receiver.able is not None:
            self._check((*receiver.command.dead_letters, receiver.able.dead_letter_destination))

    def _check(self, unchecked: Sequence[str]) -> None:
        for number, destination in enumerate(unchecked, 1):
            sender = self._links.senders.to(destination, dead=True)
            if not sender.attached or sender.error is not None:
                sender.when_attached(partial(self._checked, destination, unchecked[number:]))
                return
        self._links.attach(self._receiver)

    def _checked(self, destination: str, rest: Sequence[str], error: RedeliveryError | None) -> None:
        if error is None:
            self._check(rest)
            return
        if isinstance(error, AdapterError):
            able = self._receiver.able
            own = able is not None and destination == able.dead_letter_destination and able.own_dead_letters
            whose = f", which is {own}," if own else ""
            cure = "; name another place: redelivery.deadLetterDestination" if own else ""
            error = AdapterError(
                f"the dead-letter destination {destination}{whose} cannot be used: {error}{cure}"
            )
        self._receiver.answer(error)
