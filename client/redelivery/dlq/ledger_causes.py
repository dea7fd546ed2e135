"""What is remembered elsewhere of messages that the broker poisoned itself: their copies carry no cause."""

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


# What no two messages have: a JMS provider's id (as AMQP libraries write it, too), a UUID, or so many digits of one.
_UNIQUE = re.compile(r"^(?i:ID:)|[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


class CauseOf(Protocol):
    """Who remembers why a message was poisoned that carries no cause."""

    def __call__(self, destination: str, message_id: str, /) -> str | None:
        """Return the cause of the message `message_id` of `destination` (qualified), or None if it is not known."""
        ...


class LedgerCauses:
    """A ledger's causes as they were when a look began, and a callable that is asked first."""

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
        """Return what the ledger knows of a dead letter, if no other message can be meant."""
        identity = delivery.message_id
        if not self._known or identity is None or text_in(delivery.headers, "redeliveryCause"):
            return None
        found = self._known.get(identity, {})
        exact = found.get(recorded_origin(delivery) or "")
        # Not every broker tells where it was, and Classic tells of a virtual topic where it was sent. But two queues'
        # producers may both count "1", "2": such an id alone is nobody's.
        if exact is not None or len(found) != 1 or not _UNIQUE.search(identity):
            return exact
        return next(iter(found.values()))

    def origin(self, delivery: Delivery) -> str | None:
        """Return where a dead letter came from, qualified: as the broker, the ledger or its copy says; or None."""
        # A message that the ledger knows was poisoned by the broker: its own properties are its producer's.
        if delivery.origin is None and (buried := self.of(delivery)) is not None:
            return readable_origin(buried.destination)
        return origin_of(delivery)

    def cause(self, delivery: Delivery) -> str | None:
        """Return why a dead letter died that does not tell itself, or None."""
        if self._cause_of is not None and delivery.message_id is not None:
            told = self._cause_of(self.origin(delivery) or delivery.destination, delivery.message_id)
            if told:
                return told
        buried = self.of(delivery)
        return None if buried is None else buried.cause
