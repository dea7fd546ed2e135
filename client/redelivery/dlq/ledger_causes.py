"""Causes of messages that the broker dead-lettered itself, out of a ledger: the messages carry none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from redelivery.core.dead_lettering.header_values import text_in
from redelivery.core.dead_lettering.origin import origin_of, readable_origin, recorded_origin

if TYPE_CHECKING:
    from redelivery.core.delivery import Delivery
    from redelivery.core.ledger_entry import Buried
    from redelivery.ledger import Ledger

__all__ = ["CauseOf", "LedgerCauses"]


# Ids that no two messages have: a JMS provider's (as AMQP libraries write it, too), or a UUID, with or without hyphens.
_UNIQUE = re.compile(r"^(?i:ID:)|[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


class CauseOf(Protocol):
    """Callable that returns the cause of a message that carries none."""

    def __call__(self, destination: str, message_id: str, /) -> str | None:
        """Return the cause of the message `message_id` of `destination` (qualified), or None if it is not known."""
        ...


class LedgerCauses:
    """A ledger's causes as they were when a look began, and a callable that is called first."""

    def __init__(self, ledger: Ledger | None = None, cause_of: CauseOf | None = None) -> None:
        self._ledger = ledger
        self._cause_of = cause_of
        self._known: dict[str, dict[str, Buried]] = {}  # by id, then by destination

    def refresh(self) -> None:
        """Read the ledger again. Raises LedgerError."""
        if self._ledger is None:
            return
        known: dict[str, dict[str, Buried]] = {}
        for one in self._ledger.buried():
            if one.message_id is not None:
                known.setdefault(one.message_id, {})[one.destination] = one  # the last of them is the newest
        self._known = known

    def of(self, delivery: Delivery) -> Buried | None:
        """Return the ledger's record of a dead letter; None if it may be that of another message."""
        identity = delivery.message_id
        if not self._known or identity is None or text_in(delivery.headers, "redeliveryCause"):
            return None
        found = self._known.get(identity, {})
        exact = found.get(recorded_origin(delivery) or "")
        # Not every broker records the origin, and Classic records a virtual topic instead of the queue. But producers
        # of two queues may both count "1", "2": such an id alone proves nothing.
        if exact is not None or len(found) != 1 or not _UNIQUE.search(identity):
            return exact
        return next(iter(found.values()))

    def origin(self, delivery: Delivery) -> str | None:
        """Return the origin of a dead letter, qualified, as the broker, the ledger or its copy has it; or None."""
        # The broker dead-lettered a message that the ledger has: its properties are those of its producer.
        if delivery.origin is None and (buried := self.of(delivery)) is not None:
            return readable_origin(buried.destination)
        return origin_of(delivery)

    def cause(self, delivery: Delivery) -> str | None:
        """Return the cause of a dead letter that carries none, or None."""
        if self._cause_of is not None and delivery.message_id is not None:
            told = self._cause_of(self.origin(delivery) or delivery.destination, delivery.message_id)
            if told:
                return told
        buried = self.of(delivery)
        return None if buried is None else buried.cause
