"""How a dead letter goes back: as a copy that starts afresh, by the same way as a poisoned message leaves.

To the engine a redrive is a poison acknowledgement with another destination: the copy is sent, confirmed, and only
then is the dead letter accepted; in one transaction where that is atomic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from redelivery.core.commands import Forward, Stop
from redelivery.core.dead_lettering.header_values import count_in, text_in
from redelivery.core.dead_lettering.origin import origin_of
from redelivery.core.dead_lettering.routing import OWN_HEADERS, copy_of
from redelivery.core.delivery import Cause
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.dead_lettering.routing import DeadLetterRouting, Route
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
]

REDRIVES = "redeliveryRedrives"
"""The property that counts how often a message has been redriven; it stays with the message."""
REDRIVE_RUN = "redeliveryRedriveRun"
"""The property that names the redrive which sent the message last, so that the same one does not send it again."""
REDRIVE_HEADERS = frozenset({REDRIVES, REDRIVE_RUN})
KEPT = "redeliveryOriginalId"
# What brokers tell of a death; it would be told of a message that lives.
STALE = frozenset({
    "dlqDeliveryFailureCause", "original-destination", "originalDeliveryMode", "originalDestination",
    "originalExpiration", "x-death", "x-acquired-count", "x-delivery-count",
})  # fmt: skip
STALE_PREFIXES = ("_AMQ_ORIG_", "x-first-death-", "x-last-death-", "x-opt-ORIG-")
# That a copy is refused before the redrive gives up: after 3 s.
TRIES = 3


def redrives_of(headers: Mapping[str, Any]) -> int:
    """Return how often a message has been redriven before."""
    return count_in(headers, REDRIVES) or 0


def first_id(delivery: Delivery) -> str | None:
    """Return the id that a dead letter had when it was poisoned first; its own where nobody has told, or None."""
    # The broker's id first: over STOMP Classic's has all headers read.
    identity, told = delivery.message_id, text_in(delivery.headers, KEPT)
    # A lone surrogate cannot be written in any protocol.
    return told if told is not None and told.isprintable() else identity


def is_stale(name: str) -> bool:
    """Whether a property tells of a death, and is not one of a message that lives."""
    return name in STALE or name.startswith(STALE_PREFIXES)


def redriven(delivery: Delivery, destination: str, run: str) -> Outgoing:
    """Return the message that a dead letter was, as it goes to `destination`: never expiring, and persistent."""
    told = delivery.headers
    headers = {name: value for name, value in told.items() if name not in OWN_HEADERS and not is_stale(name)}
    first = first_id(delivery)
    if first is not None:
        headers[KEPT] = first
    headers[REDRIVES] = str(redrives_of(told) + 1)
    headers[REDRIVE_RUN] = run
    return copy_of(delivery, destination, headers)


class Redrive:
    """What an engine does with a message that its consumer calls poison: it goes to `destination`, or back.

    `quarantine` takes those that have been redriven `maximum_redrives` times. `run` names this redrive. `native`: an
    origin may be a broker's own address, which nothing here can check.
    """

    route: ClassVar[Route] = "forward"
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
        """Where a dead letter came from: a ledger may know more than its properties."""
        self.refusal: RedeliveryError | None = None
        """The last error that the broker answered a copy with: the driver tells."""

    def destination_on(self, capabilities: Capabilities) -> str:
        """Return where copies go, if they all go to one place; it is checked before the first."""
        del capabilities
        return self.destination or ""

    def may_forward(self, capabilities: Capabilities) -> bool:
        """Whether there is such a place."""
        del capabilities
        return self.destination is not None

    def target(self, delivery: Delivery) -> str | None:
        """Return where a dead letter goes, or None if nobody knows."""
        if self.quarantine is not None and redrives_of(delivery.headers) >= self.maximum_redrives:
            return self.quarantine
        if self.destination is not None:
            return self.destination
        origin = self.origin(delivery)
        return None if origin is not None and origin.startswith("native://") and not self.native else origin

    def command(
        self, delivery: Delivery, record: Record, capabilities: Capabilities, wall_offset: float, now: float
    ) -> Forward | Stop:
        """Return the command that sends a dead letter on its way; or the end, if it was refused too often."""
        del capabilities, wall_offset, now
        target = self.target(delivery)
        if target is None:
            return Stop(AdapterError(f"dead letter {delivery.message_id}: nobody knows where it came from"))
        if record.tries >= TRIES:
            why = "" if self.refusal is None else f": {self.refusal}"
            return Stop(AdapterError(f"dead letter {delivery.message_id} cannot be sent to {target}{why}"))
        copy = redriven(delivery, target, self.run)
        return Forward(delivery, copy, record.cause or Cause("redriven"), record.count, redrive=True)


if TYPE_CHECKING:
    # What an engine asks how a poisoned message leaves.
    DeadLetterRoute = DeadLetterRouting | Redrive
