"""Conformance suite on the memory broker, in virtual time."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import redelivery.testing.conformance
from redelivery.adapter import Opening
from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Accept, Credit, Subscribe
from redelivery.core.events import Arrived
from redelivery.settings import Endpoint, Settings
from redelivery.testing import ManualClock, MemoryBroker
from redelivery.testing.conformance import BrokerUnderTest, Conformance, Found
from redelivery_memory import MemoryAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redelivery.adapter import AdapterEvent
    from redelivery.core.delivery import Delivery
    from redelivery.testing.conformance import Direction, Kind

pytest_plugins = ["pytester"]


class Memory(BrokerUnderTest):
    """`memory://` on a clock that moves by itself; the other client uses the adapter directly."""

    capabilities = Capabilities(
        binds_groups=False,
        browse=True,
        broker="memory",
        poison_persistent=True,
        poison_non_persistent=True,
        forward="atomic",
        flow=True,
        release=True,
        counts=True,
        transactions=True,
        dead_letter_destination="queue://DLQ",
        batch=False,
        groups=True,
        reschedule="atomic",
        reschedule_proof="certain",
    )
    features = frozenset({"topics", "durable", "wildcards", "delay", "marks"})
    refuses = "nowhere.*"
    typed_headers = True
    late = 0.001

    def __init__(self, broker: MemoryBroker, clock: ManualClock) -> None:
        """Take a broker, and the clock that it was made with."""
        self.broker = broker
        self.clock = clock

    @property
    def address(self) -> str:
        return self.broker.uri

    def send(
        self,
        queue: str,
        body: object,
        *,
        kind: Kind = "text",
        headers: Mapping[str, Any] | None = None,
        persistent: bool = True,
    ) -> None:
        if not isinstance(body, str | bytes) or kind not in self.kinds:
            raise ValueError(f"memory:// has no {kind}")
        self.broker.send(queue, body, headers=headers, persistent=persistent)

    def take(self, queue: str) -> Sequence[Found]:
        adapter = MemoryAdapter()
        taken: list[Delivery] = []

        def sink(event: AdapterEvent) -> None:
            if isinstance(event, Arrived):
                taken.extend(event.deliveries)

        endpoint = Endpoint("memory", self.broker.name, 0)
        adapter.open(Opening(Settings("memory", (endpoint,)), endpoint, 1, self.clock), sink)
        adapter.execute((Subscribe(1, f"queue://{queue}", 10_000), Credit(1, 10_000)))
        found = [self._found(delivery) for delivery in taken]
        adapter.execute((Accept(taken),))
        adapter.close(0)
        return found

    def _found(self, delivery: Delivery) -> Found:
        assert delivery.body_kind in ("text", "bytes")
        return Found(
            delivery.body,
            delivery.body_kind,
            delivery.headers,
            persistent=delivery.persistent,
            priority=delivery.priority,
            correlation_id=delivery.correlation_id,
            expires_at=delivery.expires_at,
        )

    def cut(self) -> int:
        self.broker.drop_accepts(0)
        self.broker.refuse_settlements(0)
        links = self.broker.cut()
        self.broker.resume_confirmations()
        return links

    def stall(self, direction: Direction) -> None:
        if direction == "to_client":
            self.broker.stall_confirmations()
        else:
            self.broker.drop_accepts(1000)
            self.broker.refuse_settlements(1000)


def test_nothing_is_skipped() -> None:
    """The suite skips no test: it asserts that a pair refuses what it cannot do."""
    folder = Path(redelivery.testing.conformance.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            assert name not in ("skip", "skipif", "xfail", "importorskip"), f"{path.name}:{node}"


def test_a_pair_must_say_how_it_is_reached(pytester: pytest.Pytester) -> None:
    """A class that inherits the suite without the fixture fails with the name of the fixture."""
    pytester.makepyfile(
        "from redelivery.testing.conformance import AttemptLog\n\nclass TestMine(AttemptLog): pass"
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*TestMine inherits the conformance suite: give it a fixture broker_under_test*"]
    )


class TestMemory(Conformance):
    """Suite on the memory broker."""

    @pytest.fixture
    def broker_under_test(self) -> Iterator[Memory]:
        """Return an empty broker for each test."""
        clock = ManualClock(auto_advance=True)
        with MemoryBroker(clock=clock) as broker:
            yield Memory(broker, clock)
