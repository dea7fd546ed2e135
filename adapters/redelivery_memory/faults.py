"""Faults that a test injects into the memory broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.errors import AdapterError
from redelivery_memory.messages import HeldMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.adapter import AdapterEvent
    from redelivery.errors import RedeliveryError
    from redelivery_memory.connection import MemoryConnection
    from redelivery_memory.messages import StoredMessage

__all__ = ["Faults"]


class Faults:
    """Counters of the commands to refuse or lose. The broker's lock guards all of them."""

    def __init__(self) -> None:
        self.settlements: int | Callable[[HeldMessage], bool] = 0
        self.forwards = 0
        self.sends = 0
        self.send_error: Callable[[], RedeliveryError] | None = None
        self.accepts = 0
        self.consumers: dict[str | None, Callable[[], RedeliveryError]] = {}
        self.connections: Callable[[], RedeliveryError] | None = None
        self.stalled: list[tuple[MemoryConnection, AdapterEvent]] | None = None

    def for_settlement(self, stored: StoredMessage) -> AdapterError | None:
        """Return the refusal of a poison acknowledgement or a forward; None: it is carried out."""
        rule = self.settlements
        if isinstance(rule, int):
            if rule <= 0:
                return None
            self.settlements = rule - 1
        elif not rule(HeldMessage.of(stored, delivered=True)):
            return None
        return AdapterError(
            f"the broker refused to settle {stored.message_id}: MemoryBroker.refuse_settlements()"
        )

    def for_forward(self, stored: StoredMessage) -> AdapterError | None:
        """Return the refusal of a forward; None: it is carried out."""
        if self.forwards <= 0:
            return self.for_settlement(stored)
        self.forwards -= 1
        return AdapterError(
            f"the broker refused the copy of {stored.message_id}: MemoryBroker.fail_forward()"
        )

    def for_consumer(self, destination: str) -> RedeliveryError | None:
        """Return the refusal of a consumer; None: it is taken."""
        refusal = self.consumers.get(destination) or self.consumers.get(None)
        return None if refusal is None else refusal()

    def for_send(self) -> RedeliveryError | None:
        """Return the refusal of a send; None: it is carried out."""
        if self.sends <= 0:
            return None
        self.sends -= 1
        if self.send_error is not None:
            return self.send_error()
        return AdapterError("the broker refused the message: MemoryBroker.refuse_sends()")

    def loses_accept(self) -> bool:
        """True if the next accept is lost; it is counted."""
        if self.accepts <= 0:
            return False
        self.accepts -= 1
        return True
