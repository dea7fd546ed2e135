"""Sending links of one connection, one for each destination.

Every method runs under the wire's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import AdapterError
from redelivery_amqp.io_thread import RELEASED
from redelivery_amqp.sender import COORDINATOR, SenderLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.commands import Subscribe
    from redelivery.errors import RedeliveryError
    from redelivery_amqp.declarations import Declarations
    from redelivery_amqp.io_thread import ProtonEngine
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_amqp.session_limit import SessionLimit

__all__ = ["SenderLinks"]


class SenderLinks:
    """Sending links by destination; None: the transaction coordinator.

    `register` names a new link; `unregister` is called with a link before its end.
    """

    def __init__(
        self,
        wire: ProtonEngine,
        profile: AmqpProfile,
        sessions: SessionLimit,
        declarations: Declarations,
        register: Callable[[SenderLink], str],
        unregister: Callable[[SenderLink], None],
    ) -> None:
        self._wire = wire
        self._profile = profile
        self._sessions = sessions
        sessions.retire = self._retire
        self._declarations = declarations
        self._register = register
        self._unregister = unregister
        self._links: dict[str | None, SenderLink] = {}

    def to(
        self, destination: str | None, *, dead: bool = False, beside: Subscribe | None = None
    ) -> SenderLink:
        """Return the link to a destination. If `dead`, it is declared as a dead-letter queue, that of `beside`."""
        sender = self._links.pop(destination, None)
        known = sender is not None
        sender = sender or SenderLink(COORDINATOR if destination is None else destination)
        # In the order of their last use: `_retire` ends the first idle one.
        self._links[destination] = sender
        if not known:
            self._make(sender, destination, dead=dead, beside=beside)
        return sender

    def _retire(self) -> bool:
        """End the idle link whose last use was the longest ago; return True if there was one."""
        sender = next((sender for sender in self._links.values() if sender.idle), None)
        if sender is None or not self._profile.sessions_in_turn:
            return False
        self._part(sender)
        return True

    def answered(self, sender: SenderLink, outcome: int) -> None:
        """Handle the outcome of a message. A released one found no queue: the next link declares the queue again.

        RabbitMQ ends the link itself only if it has taken messages for that queue before (4.3.6).
        """
        if not self._profile.declares or not sender.where.startswith("queue://"):
            return
        if outcome == RELEASED:
            self.forget(sender)
        if sender.idle and self._links.get(sender.where) is not sender:
            self._part(sender)

    def _part(self, sender: SenderLink) -> None:
        self.forget(sender)
        self._unregister(sender)
        self._sessions.end(sender)
        # A dead letter that was queued on the link is sent again.
        sender.fail(AdapterError(f"the link to {sender.where} has ended"))

    def _make(
        self, sender: SenderLink, destination: str | None, *, dead: bool, beside: Subscribe | None
    ) -> None:
        def refused(error: RedeliveryError) -> None:
            self.forget(sender)
            sender.fail(error)

        def attach() -> None:
            name = self._register(sender)
            sender.attach(self._wire.connection, name, destination, self._profile)

        def declared(error: RedeliveryError | None) -> None:
            if error is None:
                self._sessions.begin(attach, refused)
            else:
                refused(error)

        self._declarations.for_sender(destination, declared, dead=dead, beside=beside)

    def forget(self, sender: SenderLink) -> None:
        """Remove a link that has ended; the next message attaches another one."""
        self._links = {to: known for to, known in self._links.items() if known is not sender}
