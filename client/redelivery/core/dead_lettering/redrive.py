"""Redrive of a dead letter: a copy without its failures is sent back, by the same steps as a poison message leaves.

For the engine a redrive is a poison acknowledgement with another destination: the copy is sent and confirmed, and then
the dead letter is accepted; in one transaction where the broker can do so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from redelivery.core.commands import Forward, Stop
from redelivery.core.dead_lettering.dead_letter_headers import count_in, origin_of, text_in
from redelivery.core.dead_lettering.routing import OWN_HEADERS, copy_of
from redelivery.core.delivery import Cause
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.routing import DeadLetterRouting
    from redelivery.core.delivery import Delivery, Record
    from redelivery.core.outgoing import Outgoing
    from redelivery.errors import RedeliveryError

__all__ = [
    "REDRIVES",
    "REDRIVE_HEADERS",
    "REDRIVE_RUN",
    "Redrive",
    "first_id",
    "is_stale",
    "redriven",
    "redrives_of",
    "sent_back",
]

REDRIVES = "redeliveryRedrives"
"""Property that counts how often a message has been redriven; it stays with the message."""
REDRIVE_RUN = "redeliveryRedriveRun"
"""Property that names the redrive that sent the message last: the same redrive must not send it again."""
REDRIVE_HEADERS = frozenset({REDRIVES, REDRIVE_RUN})
KEPT = "redeliveryOriginalId"
# Properties about a death that a dead letter keeps in the quarantine.
DEATH = frozenset({
    "redeliveryCause", "redeliveryCount", "redeliveryOriginalDeliveryMode", "redeliveryFirstFailure",
    "redeliveryLastFailure",
})  # fmt: skip
# Properties in which brokers describe a dead-lettering; on a redriven message they would be wrong.
STALE = frozenset({
    "dlqDeliveryFailureCause", "original-destination", "originalDeliveryMode", "originalDestination",
    "originalExpiration", "x-death", "x-acquired-count", "x-delivery-count",
})  # fmt: skip
STALE_PREFIXES = ("_AMQ_ORIG_", "x-first-death-", "x-last-death-", "x-opt-ORIG-")
# Refusals of a copy after which the redrive gives up: after 3 s.
TRIES = 3


def redrives_of(headers: Mapping[str, Any]) -> int:
    """Return how often a message has been redriven so far."""
    return count_in(headers, REDRIVES) or 0


def first_id(delivery: Delivery) -> str | None:
    """Return the id that a dead letter had when it was poisoned first; without such a note its own id, or None."""
    # The broker's id first: Classic's, over STOMP, reads all headers.
    identity, told = delivery.message_id, text_in(delivery.headers, KEPT)
    # No protocol can carry a lone surrogate.
    return told if told is not None and told.isprintable() else identity


def is_stale(name: str) -> bool:
    """Return True if a property describes a dead-lettering, which a redriven message must not carry."""
    return name in STALE or name.startswith(STALE_PREFIXES)


def redriven(delivery: Delivery, destination: str, run: str) -> Outgoing:
    """Return the original message of a dead letter, addressed to `destination`: never expiring, and persistent."""
    return copy_of(delivery, destination, sent_back(delivery.headers, first_id(delivery), run))


def quarantined(delivery: Delivery, destination: str, run: str, origin: str | None) -> Outgoing:
    """Return the copy of a dead letter for the quarantine, where it is still a dead letter: why, when, from where."""
    headers = sent_back(delivery.headers, first_id(delivery), run)
    headers |= {name: value for name, value in delivery.headers.items() if name in DEATH}
    # Only the origin that a redrive would follow: in the quarantine there is no record of the broker beside it.
    if origin is not None:
        headers["redeliveryOriginalDestination"] = origin
    return copy_of(delivery, destination, headers)


def sent_back(told: Mapping[str, Any], first: str | None, run: str) -> dict[str, Any]:
    """Return the properties of a dead letter as those of the message that is sent back, without its death.

    `first`: id that it had when it was poisoned first; None: not known. `run`: name of the redrive.
    """
    headers = {name: value for name, value in told.items() if name not in OWN_HEADERS and not is_stale(name)}
    if first is not None:
        headers[KEPT] = first
    headers[REDRIVES] = str(redrives_of(told) + 1)
    headers[REDRIVE_RUN] = run
    return headers


class Redrive:
    """Route for an engine that redrives: each message of its consumer goes to `destination`, or to its origin.

    `quarantine`: destination of those that have been redriven `maximum_redrives` times. `run`: name of this redrive.
    `native`: an origin may be a broker's own address, which cannot be checked here.
    """

    maximum_set_aside: ClassVar[int] = 0

    def __init__(
        self,
        run: str,
        destination: str | None = None,
        quarantine: str | None = None,
        maximum_redrives: int = 3,
        *,
        native: bool = False,
    ) -> None:
        self.run = run
        self.destination = destination
        self.quarantine = quarantine
        self.maximum_redrives = maximum_redrives
        self.native = native
        self.origin: Callable[[Delivery], str | None] = origin_of
        """Returns the original destination of a dead letter; a ledger may know more than its properties."""
        self.reached: dict[str, str] = {}
        """Addresses and queues of origins that are not reached by their names."""
        self.refusal: RedeliveryError | None = None
        """Last error with which the broker refused a copy; the driver reports it."""

    def places(self, capabilities: Capabilities) -> tuple[str, ...]:
        """Return the destinations that are known before the first dead letter is read; they are checked before."""
        del capabilities
        return tuple(each for each in (self.destination, self.quarantine) if each is not None)

    def target(self, delivery: Delivery) -> str | None:
        """Return the destination of a dead letter; None if it is not known."""
        if self.quarantine is not None and redrives_of(delivery.headers) >= self.maximum_redrives:
            return self.quarantine
        if self.destination is not None:
            return self.destination
        origin = self.origin(delivery)
        if origin is None or (origin.startswith("native://") and not self.native):
            return None
        return self.reached.get(origin, origin)

    def command(
        self, delivery: Delivery, record: Record, capabilities: Capabilities, wall_offset: float, now: float
    ) -> Forward | Stop:
        """Return the command that sends a dead letter back; or `Stop`, if it was refused too often."""
        del capabilities, wall_offset, now
        target = self.target(delivery)
        if target is None:
            return Stop(
                AdapterError(
                    f"dead letter {delivery.message_id}: its original destination is not known; name one"
                )
            )
        if record.tries >= TRIES:
            why = "" if self.refusal is None else f": {self.refusal}"
            named = f"dead letter {delivery.message_id}"
            return Stop(AdapterError(f"{named} cannot be sent to {target}{why}; it stays in its queue"))
        if target == self.quarantine:
            copy = quarantined(delivery, target, self.run, self.origin(delivery))
        else:
            copy = redriven(delivery, target, self.run)
        return Forward(delivery, copy, record.cause or Cause("redriven"), record.count, redrive=True)


if TYPE_CHECKING:
    # What an engine asks for the route of a poison message.
    DeadLetterRoute = DeadLetterRouting | Redrive
