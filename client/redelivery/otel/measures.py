"""Metrics of one connection. The attributes of each number are made once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.events.breaker_states import counted_state
from redelivery.otel.attributes import OTHER, error_type, named, template_of

if TYPE_CHECKING:
    from redelivery.core.breaker import BreakerState
    from redelivery.events import BreakerChanged, DeadLettered, Finished, MessageEvent, Sent
    from redelivery.otel.attributes import Attributes
    from redelivery.otel.instruments import Cell, Instruments, Tally

__all__ = ["Measures"]

# Further ones are counted together: producers may make up destinations, and a cause may be any text.
_DESTINATIONS = 200
_ERRORS = 50
_OTHER_DESTINATION = "queue://other"
_STATES: dict[BreakerState, int] = {"closed": 0, "ramp": 1, "open": 2, "probing": 2}


class Measures:
    """Counts and durations of one connection to one broker."""

    def __init__(self, instruments: Instruments, common: Attributes) -> None:
        """Take the instruments, and the broker's attributes."""
        self._to = instruments
        self._common = common
        self._cells: dict[tuple[object, ...], Cell] = {}
        self._attributes: dict[tuple[str, str, str | None], Attributes] = {}
        self._places: set[str] = set()
        self._errors: set[str] = set()

    def finished(self, result: Finished, *, again: bool) -> None:
        """Record a result. `again`: its delivery was recorded before, when its handler ended."""
        to, place, seconds = self._to, self._place(result.destination), result.seconds
        if not again:
            redelivered = result.delivery_count > 1 or result.delivery.redelivered
            self._count(to.consumed, "process", place, "redelivery.redelivered", value=redelivered)
        if result.outcome is not None:
            self._count(to.outcomes, "", place, "redelivery.outcome", value=result.outcome)
        if seconds is not None:
            to.process.record(seconds, self._described("process", place, self._bounded(error_type(result))))
        if result.delay is not None:
            to.delay.record(result.delay, self._described("", place))

    def deduplicated(self, event: MessageEvent) -> None:
        """Count a delivery that was acknowledged without being handled."""
        place = self._place(event.destination)
        self._count(self._to.outcomes, "", place, "redelivery.outcome", value="deduplicated")

    def dead_lettered(self, event: DeadLettered) -> None:
        """Count a dead letter."""
        place, error = self._place(event.destination), self._bounded(event.cause_type or OTHER)
        self._count(self._to.dead_letters, "", place, "error.type", value=error)

    def sent(self, event: Sent) -> None:
        """Record the end of a send."""
        place = self._place(event.destination)
        error = self._bounded(None if event.error is None else type(event.error).__name__)
        attributes = self._described("send", place, error)
        self._count(self._to.sent, "send", place, "error.type", value=error)
        self._to.operation.record(event.seconds, attributes)

    def reconnected(self) -> None:
        """Count a connection after the first one."""
        self._to.reconnects.add(self._to.reconnects.cell(self._common))

    def breaker(self, event: BreakerChanged) -> None:
        """Record a change of the breaker. Begin and failure of a probe are no changes: it is part of `open`."""
        place = self._place(event.destination)
        old, new = counted_state(event.old), counted_state(event.new)
        if new != old:
            self._count(self._to.transitions, "", place, "redelivery.breaker.state", value=new)
        self._to.breaker.put(self._to.breaker.cell(self._described("", place)), _STATES[event.new])

    def _count(
        self, tally: Tally, operation: str, place: str, name: str, *, value: str | bool | None
    ) -> None:
        key = tally, place, value
        cell = self._cells.get(key)
        if cell is None:
            own = {} if value is None else {name: value}
            cell = self._cells[key] = tally.cell({**self._described(operation, place), **own})
        tally.add(cell)

    def _described(self, operation: str, place: str, error: str | None = None) -> Attributes:
        """Return the kept attributes for a destination. The caller must not change them."""
        key = operation, place, error
        found = self._attributes.get(key)
        if found is None:
            found = self._common | named(place)[1]
            if (template := template_of(place)) is not None:
                found["messaging.destination.template"] = template
                del found["messaging.destination.name"]
            if operation:
                found["messaging.operation.name"] = operation
            if error is not None:
                found["error.type"] = error
            self._attributes[key] = found
        return found

    def _place(self, destination: str) -> str:
        """Return a destination; one name for all temporary ones, and one for those after the first 200."""
        if destination not in self._places:
            kind, _, _ = destination.partition("://")
            if kind.startswith("temp-"):
                return f"{kind}://temporary"
            if len(self._places) >= _DESTINATIONS:
                return _OTHER_DESTINATION
            self._places.add(destination)
        return destination

    def _bounded(self, error: str | None) -> str | None:
        if error is not None and error not in self._errors:
            if len(self._errors) >= _ERRORS:
                return OTHER
            self._errors.add(error)
        return error
