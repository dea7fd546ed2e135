"""The links that one connection sends over, one for each destination.

Every method runs under the wire's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery_amqp.sender import COORDINATOR, SenderLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.errors import RedeliveryError
    from redelivery_amqp.declarations import Declarations
    from redelivery_amqp.detach import DetachQueue
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_amqp.proton_engine import ProtonEngine

__all__ = ["SenderLinks"]


class SenderLinks:
    """Known by their destinations; None is the transaction coordinator. `register` gives a new one its name."""

    def __init__(
        self,
        wire: ProtonEngine,
        profile: AmqpProfile,
        detaches: DetachQueue,
        declarations: Declarations,
        register: Callable[[SenderLink], str],
    ) -> None:
        self._wire = wire
        self._profile = profile
        self._detaches = detaches
        self._declarations = declarations
        self._register = register
        self._links: dict[str | None, SenderLink] = {}

    def to(self, destination: str | None, *, dead: bool = False) -> SenderLink:
        """Return the link to send to a destination, which may have to be made."""
        sender = self._links.get(destination)
        if sender is None:
            sender = self._links[destination] = SenderLink(
                COORDINATOR if destination is None else destination
            )
            self._make(sender, destination, dead=dead)
        return sender

    def _make(self, sender: SenderLink, destination: str | None, *, dead: bool) -> None:
        def declared(error: RedeliveryError | None) -> None:
            if error is None:
                name = self._register(sender)
                self._detaches.begin(
                    lambda: sender.attach(self._wire.connection, name, destination, self._profile)
                )
            else:
                self.forget(sender)
                sender.fail(error)

        self._declarations.for_sender(destination, declared, dead=dead)

    def forget(self, sender: SenderLink) -> None:
        """Know a link no more: it has ended, and the next message makes another one."""
        self._links = {to: known for to, known in self._links.items() if known is not sender}
