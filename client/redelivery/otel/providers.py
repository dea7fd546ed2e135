"""Providers of tracers and meters that the application has set up, before or after it has connected.

Without an SDK nothing is done for a message: the tracers and meters of the API record nothing.
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
# Seconds. The API reads the environment at each call, which takes a microsecond.
LOOK_AGAIN = 1.0


class Lookup(Generic[T]):
    """Object that may appear later. Until it is found, it is looked for at most once a second."""

    def __init__(self, look: Callable[[], T | None]) -> None:
        """Look for the first time."""
        self._look = look
        self.found: T | None = look()
        """The object, or None while there is none."""
        self._next = time.monotonic() + LOOK_AGAIN

    def again(self) -> T | None:
        """Return the object if it is there by now."""
        now = time.monotonic()
        if self.found is None and now >= self._next:
            self._next = now + LOOK_AGAIN
            self.found = self._look()
        return self.found


def tracer_of(given: TracerProvider | None, version: str) -> Tracer | None:
    """Return the tracer of a provider (None: the global one); None if nothing would be recorded."""
    provider = given or trace.get_tracer_provider()
    if _pretends(provider):
        return None
    tracer = provider.get_tracer(_NAME, version)
    # The tracer of an SDK that is switched off records nothing either.
    return None if _pretends(tracer) else tracer


# One set of instruments for each provider: all connections count together, and no instrument is registered twice.
_instruments: WeakKeyDictionary[MeterProvider, Instruments] = WeakKeyDictionary()


def instruments_of(given: MeterProvider | None, version: str) -> Instruments | None:
    """Return the instruments of a provider (None: the global one); None if nothing would be recorded."""
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
    """True if an object is one of the API itself, which records nothing."""
    return type(thing).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))
