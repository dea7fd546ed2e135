"""Where spans and metrics go: what the application has set up, before or after it has connected.

Without an SDK there is nothing, and nothing is done for a message: the API's own tracers and meters only pretend.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

from opentelemetry import metrics, trace

from redelivery.otel.instruments import Instruments

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

__all__ = ["Lookup", "instruments_of", "tracer_of"]

T = TypeVar("T")

_NAME = "redelivery"
# Seconds. The API asks the environment each time, which costs a microsecond.
LOOK_AGAIN = 1.0


class Lookup(Generic[T]):
    """What may be there later; it is looked for at most once a second until it is."""

    def __init__(self, look: Callable[[], T | None]) -> None:
        """Look for the first time."""
        self._look = look
        self.found: T | None = look()
        """What has been found."""
        self._next = time.monotonic() + LOOK_AGAIN

    def again(self) -> T | None:
        """Return what has been found by now."""
        now = time.monotonic()
        if self.found is None and now >= self._next:
            self._next = now + LOOK_AGAIN
            self.found = self._look()
        return self.found


def tracer_of(given: TracerProvider | None, version: str) -> Tracer | None:
    """Return the tracer of a provider, of the global one if none is given; None if nothing would be recorded."""
    provider = given or trace.get_tracer_provider()
    if _pretends(provider):
        return None
    tracer = provider.get_tracer(_NAME, version)
    # An SDK that is switched off has these, too.
    return None if _pretends(tracer) else tracer


# One set of instruments for each provider: several connections count together, and register nothing twice.
_instruments: WeakKeyDictionary[MeterProvider, Instruments] = WeakKeyDictionary()


def instruments_of(given: MeterProvider | None, version: str) -> Instruments | None:
    """Return the instruments of a provider, of the global one if none is given; None if nothing would be recorded."""
    provider = given or metrics.get_meter_provider()
    if _pretends(provider):
        return None
    found = _instruments.get(provider)
    if found is None:
        meter = provider.get_meter(_NAME, version)
        if _pretends(meter):
            return None
        found = _instruments.setdefault(provider, Instruments(meter))
    return found


def _pretends(thing: object) -> bool:
    """Whether something is of the API itself, which records nothing."""
    return type(thing).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))
