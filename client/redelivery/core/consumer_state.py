"""State of one consumer: what is known of its connection, and every delivery that it holds, by place.

Each engine has one. What stands beside the engine (`returns`, `pending_confirms`, `workload`, `broker_redelivery`)
reads and changes it, and keeps no copy of anything in it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from redelivery.core.dispatch_order import schedule_for
from redelivery.core.message_history import RECALL, MessageHistory
from redelivery.core.released_here import ReleasedHere
from redelivery.core.report import Counters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.credit import CreditWindow
    from redelivery.core.delivery import Delivery
    from redelivery.core.dispatch_gate import DispatchGate
    from redelivery.core.dispatch_order import Ordering
    from redelivery.errors import RedeliveryError

__all__ = ["ConsumerState"]


class ConsumerState:
    """State of one consumer. `credit`, `max_parked`: as for `Engine`."""

    __slots__ = (
        "aside", "capabilities", "consumer", "counts", "credit", "epoch", "flow", "gate", "history", "in_doubt",
        "in_order", "max_parked", "released", "running", "schedule", "settling", "since", "suspects", "wall_offset",
    )  # fmt: skip

    def __init__(
        self,
        consumer: int,
        ordering: Ordering,
        credit: int,
        max_parked: int,
        flow: CreditWindow,
        gate: DispatchGate,
    ) -> None:
        self.consumer, self.credit, self.max_parked = consumer, credit, max_parked
        self.in_order = ordering == "blocking"
        # The connection: its epoch, when it began, its broker, and the wall clock minus `now`, in seconds.
        self.epoch, self.since, self.wall_offset = -1, 0.0, 0.0
        self.capabilities: Capabilities | None = None
        # How much may be here, how much may run; what is known of messages, and what has become of them.
        self.flow, self.gate = flow, gate
        self.counts = Counters()
        self.share(MessageHistory(RECALL + credit + max_parked))
        # The places. A delivery that is not settled, lost or waiting is in one of them.
        self.schedule = schedule_for(ordering)
        self.running: dict[Delivery, None] = {}
        # With a ledger: deliveries that wait for an exclusive run.
        self.suspects: deque[Delivery] = deque()
        self.released = ReleasedHere()
        # Dead letters and delayed copies that are not confirmed; those of them that wait for an answer, since the
        # others were refused.
        self.settling: set[Delivery] = set()
        self.in_doubt: set[Delivery] = set()
        self.aside: dict[Delivery, RedeliveryError] = {}

    def share(self, history: MessageHistory) -> None:
        """Share the memory of all consumers of the source."""
        self.history = history
        history.source.join(self.counts)
        self.gate.share(history.source)

    def learn(self, capabilities: Capabilities) -> None:
        """Note what the broker can do for this consumer's queue."""
        self.capabilities = capabilities
        self.gate.connected(capabilities)

    @property
    def most_delay(self) -> float | None:
        """Seconds that a message may be parked here; None: no limit."""
        return None if self.capabilities is None else self.capabilities.most_delay

    # Counts.

    @property
    def parked(self) -> int:
        """Number of deliveries parked here: for a redelivery, an unconfirmed dead letter, or until the end."""
        return self.schedule.parked + len(self.settling) + len(self.released.kept) + len(self.suspects)

    @property
    def room(self) -> int:
        """Number of deliveries that may still be parked.

        One more while the breaker is not closed, or was open lately: the message behind as many bad ones as may be
        parked must be tried, and these may wait for minutes.
        """
        most = self._most_beside_aside() if self.aside else self.max_parked
        circuit = self.gate.circuit
        return most - self.parked + (0 if circuit is None or circuit.calm else 1)

    def _most_beside_aside(self) -> int:
        """Return how many may be parked beside those set aside, where all unsettled messages share one window.

        A window that does not grow has a fixed size, and so has a limit of the broker.
        """
        able = self.capabilities
        if able is None or (able.max_unacknowledged is None and (able.flow or able.grows)):
            return self.max_parked
        return max(1, self.max_parked - len(self.aside))

    @property
    def parks_nothing(self) -> bool:
        """True if no delivery is parked: the common case, found without counting."""
        released = self.released
        here = self.schedule.parked or released.kept or released.coming or self.settling or self.suspects
        return not here

    # All places.

    def unsettled(self) -> Iterator[Delivery]:
        """Iterate over all deliveries that no handler has."""
        for place in (self.schedule, self.suspects, self.released, self.settling, self.aside):
            yield from place

    def take_undispatched(self) -> list[Delivery]:
        """Remove and return the ready, parked and suspected deliveries, in the broker's order."""
        taken = sorted([*self.schedule, *self.suspects], key=lambda delivery: delivery.seq)
        self.schedule.clear()
        self.suspects.clear()
        return taken

    def occupy(self) -> None:
        """Make the schedule wait for the deliveries that handlers have."""
        for delivery in self.running:
            self.schedule.occupy(delivery)

    def clear(self) -> None:
        """Remove all deliveries that no handler has: the connection is gone."""
        for place in (self.schedule, self.suspects, self.released, self.settling, self.in_doubt, self.aside):
            place.clear()
        self.occupy()

    def remove(self, gone: set[Delivery]) -> None:
        """Remove deliveries that no handler has, and that the broker has taken back. The others keep their order."""
        for delivery in gone:
            self.settling.discard(delivery)
            self.in_doubt.discard(delivery)
            self.released.forget(delivery)
            if delivery in self.suspects:
                self.suspects.remove(delivery)
            if self.aside.pop(delivery, None) is not None:
                self.flow.set_aside(-1)
            else:
                # One that was set aside has been counted before.
                self.flow.settled += 1
        self._reschedule([each for each in self.schedule if each not in gone])

    def _reschedule(self, left: Iterable[Delivery]) -> None:
        # Those with a due time first: they may be the heads of their groups.
        heads = {id(delivery) for delivery in self.schedule.parked_now()}
        ordered = sorted(left, key=lambda delivery: (id(delivery) not in heads, delivery.seq))
        self.schedule.clear()
        self.occupy()
        for delivery in self.suspects:
            self.schedule.occupy(delivery)
        for delivery in ordered:
            due = None if delivery.record is None else delivery.record.due
            if delivery.state == "parked":
                self.schedule.park(delivery, 0.0 if due is None else due)
            else:
                self.schedule.add(delivery)
