"""Dispatcher of a port's consumer: deliveries can be stored and restored, and may bypass the engine in lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.commands import Accept, Credit
from redelivery.core.events import TakenBack
from redelivery.driver.consumer.dispatcher import Dispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redelivery.clock import Clock
    from redelivery.core.commands import AdapterCommand, Subscribe
    from redelivery.core.delivery import Delivery
    from redelivery.core.engine import Engine
    from redelivery.core.events import Connected, Event
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.driver.consumer.dispatcher import DriverPort
    from redelivery.driver.consumer.hooks import ConsumerHooks
    from redelivery.driver.observers import Observers
    from redelivery.errors import RedeliveryError

__all__ = ["PortDispatcher"]


class PortDispatcher(Dispatcher):
    """One consumer of a `ConnectionPort`. With `ConsumerHooks.bulk` the intake gets each event before the engine."""

    def __init__(
        self,
        subscribe: Subscribe,
        engine: Engine,
        driver: DriverPort,
        clock: Clock,
        policies: RedeliveryPolicyMap,
        observers: Observers,
        hooks: ConsumerHooks,
        *,
        wire_of: Callable[[str], dict[str, str]],
    ) -> None:
        """Make the dispatcher. `wire_of`: returns how deliveries of a destination are read on the open connection."""
        super().__init__(subscribe, engine, driver, clock, policies, observers, hooks)
        self._bulk = hooks.bulk
        self._wire_of = wire_of
        self._wire: dict[str, str] = {}

    def feed(self, event: Event) -> None:
        """Feed an event: the intake takes the deliveries that bypass the engine, and the engine gets the rest."""
        if (bulk := self._bulk) is None:
            super().feed(event)
            return
        rest: Event | None
        if isinstance(event, TakenBack):
            rest, credit = bulk.take_back(event)
            if credit:
                # This thread may own the socket.
                self._driver.defer([Credit(event.consumer, credit)])
        else:
            rest = bulk.intercept(event, self._driver.protocol_poison.convicted)
        if rest is not None:
            super().feed(rest)

    def connected(self, event: Connected) -> Sequence[AdapterCommand]:
        """Begin a connection; return the commands that must follow the subscription."""
        if self._bulk is not None:
            # First the epoch, then the wire format: see `wire`.
            self._bulk.connect(event)
            self._wire = self._wire_of(self.subscribe.destination)
        return super().connected(event)

    def wire(self) -> Mapping[str, str]:
        """Return how the deliveries of the current connection are read; see `ConsumerPort.wire`."""
        return self._wire or self._wire_of(self.subscribe.destination)

    def accept_bulk(self, deliveries: Sequence[Delivery], *, more: int = 0) -> None:
        """Accept deliveries that the intake has given; see `ConsumerPort.accept_bulk`."""
        assert self._bulk is not None, "only a BulkIntake gives deliveries that are accepted so"
        with self._lock:
            own, credit = self._bulk.accept(deliveries)
            credit += more if credit else 0
            writes: list[AdapterCommand] = [Accept(own)] if own else []
            if credit:
                writes.append(Credit(self.subscribe.consumer, credit))
            taken = self._take(writes)
        self._write(taken)

    def _end_with(self, error: RedeliveryError | None) -> None:
        super()._end_with(error)
        if self._bulk is not None:
            self._bulk.end(error)
