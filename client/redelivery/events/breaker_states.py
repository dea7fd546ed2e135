"""States of a circuit breaker for metrics: `probing` counts as `open`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from redelivery.core.breaker import BreakerState

__all__ = ["COUNTED_STATES", "CountedState", "counted_state"]

CountedState = Literal["closed", "open", "ramp"]
COUNTED_STATES: tuple[CountedState, ...] = ("closed", "open", "ramp")


def counted_state(state: BreakerState) -> CountedState:
    """Return the state for metrics: `open` instead of `probing`."""
    return "open" if state == "probing" else state
