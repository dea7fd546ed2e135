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
        self.accepts = 0
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

    def for_send(self) -> AdapterError | None:
        """Return the refusal of a send; None: it is carried out."""
        if self.sends <= 0:
            return None
        self.sends -= 1
        return AdapterError("the broker refused the message: MemoryBroker.refuse_sends()")

    def loses_accept(self) -> bool:
        """True if the next accept is lost; it is counted."""
        if self.accepts <= 0:
            return False
        self.accepts -= 1
        return True
