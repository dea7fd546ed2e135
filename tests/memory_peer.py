"""Connection to the memory broker, with the events that its sink got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from redelivery.adapter import Opening
from redelivery.core.commands import Credit, Subscribe
from redelivery.core.delivery import Cause
from redelivery.core.events import Arrived
from redelivery.settings import Endpoint, Settings
from redelivery.testing import ManualClock, MemoryBroker
from redelivery_memory import CAPABILITIES, MemoryAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.adapter import AdapterEvent
    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery

CAUSE = Cause("ValueError: bad")
QUEUE = "queue://orders"


class Peer:
    """One connection, and the events that its sink got."""

    def __init__(self, broker: MemoryBroker, clock: ManualClock, client_id: str | None = None) -> None:
        self.broker = broker
        self.clock = clock
        self.endpoint = Endpoint("memory", broker.name, 0)
        self.settings = Settings("memory", (self.endpoint,), client_id=client_id)
        self.adapter = MemoryAdapter()
        self.events: list[AdapterEvent] = []
        self.epoch = 0
        self.open()

    def open(self) -> None:
        self.epoch += 1
        opening = Opening(self.settings, self.endpoint, self.epoch, self.clock)
        assert self.adapter.open(opening, self.events.append) is CAPABILITIES

    def do(self, *commands: AdapterCommand) -> None:
        self.adapter.execute(commands)

    def consume(self, destination: str = QUEUE, credit: int = 100, consumer: int = 1, **options: Any) -> Peer:
        self.do(Subscribe(consumer, destination, credit, **options), Credit(consumer, credit))
        return self

    def told(self, kind: type[Any]) -> list[Any]:
        """Return the events of a kind since the last call, oldest first."""
        found = [event for event in self.events if isinstance(event, kind)]
        self.events[:] = [event for event in self.events if not isinstance(event, kind)]
        return found

    def got(self, consumer: int | None = None) -> list[Delivery]:
        arrived = self.told(Arrived)
        return [d for event in arrived if consumer in (None, event.consumer) for d in event.deliveries]

    def bodies(self, consumer: int | None = None) -> list[bytes]:
        return [delivery.body for delivery in self.got(consumer)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[MemoryBroker]:
    with MemoryBroker(clock=clock) as broker:
        yield broker


@pytest.fixture
def peer(broker: MemoryBroker, clock: ManualClock) -> Peer:
    return Peer(broker, clock)
