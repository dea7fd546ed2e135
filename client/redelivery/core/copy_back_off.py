"""Back-off of dead letters and delayed copies that the broker refuses, also over lost connections.

Artemis closes a STOMP connection when it refuses a copy, and RabbitMQ when its queue is full. The broker redelivers the
poison message over the next connection; sent again at once, its copy would end each connection, and no other message
would be handled. For that reason a connection that was lost after a copy, with none confirmed, delays the next copies
to the same place: one place may be down (the queue of the dead letters, on a node of a cluster) while another is well.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from redelivery.errors import TransportError

if TYPE_CHECKING:
    from redelivery.core.delivery import Delivery
    from redelivery.errors import RedeliveryError

__all__ = ["CopyBackOff", "CopyBackOffs", "Place", "back_off"]

Place = tuple[str, bool] | None
"""Where copies go: a destination, and whether they are delayed there. None: the broker's own place of dead letters."""

# Seconds between tries: doubled from the first to the last.
FIRST, LAST = 1.0, 30.0
# Lost connections in a row after which copies wait. The first may have been lost for any reason.
LOSSES = 2
# Seconds between reports of refusals: a full queue refuses each copy of each poison message.
REPORT = 60.0


def back_off(refusals: int) -> float:
    """Return the seconds until the next try after this number of refusals in a row."""
    return min(FIRST * 2.0 ** min(refusals - 1, 10), LAST)


class CopyBackOffs:
    """Refusals and losses of one consumer's copies, by place; kept over all its connections."""

    def __init__(self) -> None:
        self._places: dict[Place, CopyBackOff] = {}
        # Place of each copy that has no answer.
        self._unanswered: dict[Delivery, Place] = {}

    def of(self, place: Place) -> CopyBackOff:
        """Return those of one place."""
        found = self._places.get(place)
        if found is None:
            found = self._places[place] = CopyBackOff()
        return found

    @property
    def error(self) -> RedeliveryError | None:
        """Why the last copy to a place is not confirmed; None: all places have confirmed theirs."""
        return next((each.error for each in self._places.values() if each.error is not None), None)

    def waits_until(self, place: Place, now: float) -> float | None:
        """Return when a copy may be sent to a place; None: now.

        A place that has refused the last one gets one copy at a time: each refusal may cost a connection.
        """
        state = self._places.get(place)
        if state is None:
            return None
        until = state.waits_until(now)
        if until is None and state.error is not None and place in self._unanswered.values():
            return now + FIRST
        return until

    def sent(self, delivery: Delivery, place: Place) -> None:
        """Note that a copy of this delivery, or its poison acknowledgement, is sent."""
        self._unanswered[delivery] = place
        self.of(place).sent()

    def confirmed(self, delivery: Delivery) -> None:
        """Note that the broker has confirmed a copy."""
        # A place that takes copies needs no memory: there are as many as origins of redriven messages.
        self._places.pop(self._unanswered.pop(delivery, None), None)

    def refused(self, delivery: Delivery, error: RedeliveryError, now: float) -> CopyBackOff:
        """Note that the broker has refused a copy; return the state of its place."""
        state = self.of(self._unanswered.pop(delivery, None))
        state.refused(error, now)
        return state

    def forget(self, delivery: Delivery) -> None:
        """Forget a delivery that the broker has taken back."""
        self._unanswered.pop(delivery, None)

    def lost(self, now: float) -> list[tuple[Delivery, CopyBackOff]]:
        """Note a lost connection; return one unanswered delivery for each place whose next copies wait."""
        first: dict[Place, Delivery] = {}
        for delivery, place in self._unanswered.items():
            first.setdefault(place, delivery)
        self._unanswered.clear()
        waiting: list[tuple[Delivery, CopyBackOff]] = []
        for place, state in self._places.items():
            losses = state.lost(now)
            if state.waits_until(now) is not None and place in first:
                error = TransportError(f"{losses} connections in a row were lost before it was confirmed")
                state.error = state.error or error
                waiting.append((first[place], state))
        return waiting

    def closed(self) -> None:
        """Note that the connection ends without being lost."""
        self._unanswered.clear()
        for state in self._places.values():
            state.closed()


class CopyBackOff:
    """Refusals and losses of the copies to one place. Times are of any steady clock, in seconds."""

    __slots__ = ("_losses", "_refusals", "_refused", "_reported", "_sent", "_until", "error")

    def __init__(self) -> None:
        # True if a copy was sent over this connection, and none was confirmed after it.
        self._sent = self._refused = False
        self._losses = self._refusals = 0
        self._until = self._reported = -inf
        # Why the last copy is not confirmed; None: the last answer was a confirmation.
        self.error: RedeliveryError | None = None

    def waits_until(self, now: float) -> float | None:
        """Return when copies may be sent again; None: now."""
        return self._until if now < self._until else None

    def sent(self) -> None:
        """Note that a copy is sent."""
        self._sent = True

    def refused(self, error: RedeliveryError, now: float) -> None:
        """Note that the broker has refused one: if it closes the connection now, that is the reason."""
        self._refused, self.error = True, error
        # Many that were sent together are refused together: that is one try.
        if now >= self._until:
            self._refusals += 1
            self._until = now + back_off(self._refusals)

    def lost(self, now: float) -> int:
        """Note a lost connection; return how many in a row were lost after a copy, 0 if copies need not wait."""
        if not self._sent:
            return 0
        self._losses = max(self._losses + 1, LOSSES if self._refused else 1)
        self._sent = self._refused = False
        if self._losses < LOSSES:
            return 0
        self._until = now + back_off(self._losses - LOSSES + 1)
        return self._losses

    def closed(self) -> None:
        """Note that the connection ends without being lost."""
        self._sent = self._refused = False

    def is_reported(self, now: float) -> bool:
        """Return True if a refusal was reported a short time ago; otherwise note that one is reported now."""
        if now < self._reported + REPORT:
            return True
        self._reported = now
        return False
