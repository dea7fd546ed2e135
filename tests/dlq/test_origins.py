"""Destinations of a redrive: a producer's property alone never decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.bench import routed
from tests.dlq.test_ledger_causes import remember

import redelivery
from redelivery import SqliteLedger
from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Forward, PoisonAck
from redelivery.core.dead_lettering.dead_letter_headers import (
    origin_of,
    overruled,
    readable_origin,
)
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.dead_lettering.routing import COPY, dead_letter_headers
from redelivery.core.delivery import Cause, Delivery, Record
from redelivery.core.ledger_entry import Buried
from redelivery.core.outgoing import Outgoing
from redelivery.dlq.dead_letter import LedgerCauses
from redelivery.dlq.removal_run import RemovalPlan
from redelivery.dlq.selection import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from redelivery import DeadLetterQueue
    from redelivery.testing import MemoryBroker

BOGUS: list[Any] = [
    "bogus://x", "://", "://x", "queue://", "queue:// ", "orders", "native:///x/y", "temp-queue://x", "temp-topic://x",
    "queue://a.>", "queue://a.*", "topic://>", "queue://a.#", "queue://a,b", "queue://a,", "queue://,",
    "queue://a,topic://", "queue://x,y://z", "topic://a.b,,c", "queue://a,native://b", "queue://a ", "queue://a?x=1", "queue://a\nb",
    "queue://a\0", "queue://\udc80", "queue://" + "a" * 2000, "QUEUE://a", " queue://a", "", 7, None, b"queue://a",
    {"queue": "a"}, float("inf"),
]  # fmt: skip


class Told(Delivery):
    """Dead letter with the broker's record and properties."""

    def __init__(
        self, record: str | None = None, *, moved: bool = False, to: str = "queue://orders", **headers: Any
    ) -> None:
        super().__init__(1, 1, b"")
        self._record, self._moved, self._to, self._headers = record, moved, to, headers

    @property
    def origin(self) -> str | None:
        return self._record

    @property
    def moved(self) -> bool:
        return self._moved

    @property
    def destination(self) -> str:
        return self._to

    @property
    def message_id(self) -> str:
        return "ID:1"

    @property
    def headers(self) -> Mapping[str, Any]:
        return self._headers


def claiming(origin: Any, record: str | None = None, **fields: Any) -> Told:
    """Return a dead letter whose own property names an origin."""
    return Told(record, redeliveryOriginalDestination=origin, **fields)


@pytest.mark.parametrize("origin", BOGUS, ids=lambda value: repr(value)[:24])
def test_a_bogus_origin_stays(broker: MemoryBroker, tools: DeadLetterQueue, bury: Any, origin: Any) -> None:
    """A dead letter with a senseless origin counts as without origin and stays; the others are redriven."""
    for one in ("queue://orders", origin, "queue://orders"):
        bury(repr(one), origin=one)
    dry, done = tools.redrive(dry_run=True), tools.redrive()
    assert (done.redriven, done.without_origin, done.complete) == (2, 1, False)
    assert (dry.redriven, dry.without_origin) == (2, 1)
    assert (broker.depth("orders"), broker.depth("DLQ")) == (2, 1)
    assert tools.redrive(to="elsewhere").redriven == 1


@pytest.mark.parametrize("origin", ["queue://a,", "queue://x,y://z"])
def test_a_bogus_origin_keeps_nobody_from_the_other_letters(
    broker: MemoryBroker, tools: DeadLetterQueue, bury: Any, origin: str
) -> None:
    """A senseless origin does not stop the run: any producer of the dead-letter queue could block it otherwise."""
    for one in ("queue://orders", origin, "queue://orders"):
        bury(repr(one), origin=one, cause="X")
    assert [one.original_destination for one in tools] == ["queue://orders", None, "queue://orders"]
    assert sum(group.count for group in tools.summary()) == 3
    assert tools.purge(cause="X").purged == 3
    assert broker.depth("DLQ") == 0


def test_origins_that_parse() -> None:
    """An origin is a queue, a topic or a native address, with its kind, as it is written."""
    for text in ("queue://orders", "topic://a.b", "native:///exchange/x", "queue://a b", "queue://ä/b"):
        assert readable_origin(text) == text


def test_native_addresses_only_when_asked_for(
    tools: DeadLetterQueue, broker: MemoryBroker, bury: Any
) -> None:
    """Dead letters of native addresses are listed, and stay; with `native` they are redriven."""
    bury(origin="native:///exchange/x")
    assert [one.original_destination for one in tools] == ["native:///exchange/x"]
    assert tools.redrive().without_origin == 1
    assert tools.redrive(native=True).destinations == {"native:///exchange/x": 1}
    assert broker.depth("DLQ") == 0


def test_the_brokers_record_decides() -> None:
    """The broker's record decides before the property; if the record makes no sense, neither counts."""
    forged = claiming("queue://admin", "queue://orders")
    assert (origin_of(forged), overruled(forged)) == ("queue://orders", True)
    agreed = claiming("queue://orders", "queue://orders")
    assert (origin_of(agreed), overruled(agreed)) == ("queue://orders", False)
    assert (origin_of(claiming("queue://admin", "")), overruled(claiming("queue://admin", ""))) == (
        None,
        False,
    )
    assert origin_of(claiming("queue://admin", "bogus://x")) is None
    assert origin_of(claiming("queue://admin", moved=True)) is None
    assert origin_of(claiming("queue://orders")) == "queue://orders"


def test_what_the_broker_overruled_is_counted() -> None:
    """Overruled properties are counted where the broker's record decided, and not where `to` did."""
    for to, count in ((None, 1), ("queue://x", 0)):
        plan = RemovalPlan("queue://DLQ", EVERYTHING, Redrive("run", to), topics=False)
        plan.gone(claiming("queue://admin", "queue://orders"))
        plan.gone(claiming("queue://orders", "queue://orders"))
        done: Any = plan.report(None)
        assert (done.redriven, done.overruled) == (2, count)


def test_a_ledger_goes_before_the_property(tmp_path: Path) -> None:
    """A ledger's origin decides before the property: that one is the producer's."""
    remember(tmp_path / "a.db", Buried("queue://orders", "ID:1", "OSError: disk", 1, 0.0))
    causes = LedgerCauses(SqliteLedger(tmp_path / "a.db"))
    causes.refresh()
    assert causes.origin(claiming("queue://admin")) == "queue://orders"
    assert causes.origin(claiming("queue://admin", "queue://bills")) == "queue://bills"


def test_a_copy_overrides_what_its_message_said() -> None:
    """A copy replaces the properties of its message, also of one that pretends to be a delayed copy."""
    forged = {
        "redeliveryOriginalDestination": "queue://admin",
        COPY: "run-1@queue://orders",
        "redeliveryCause": "x",
    }
    told = dead_letter_headers(
        forged, destination="queue://orders", message_id="1", persistent=True, cause=Cause("y"), count=1
    )
    assert told["redeliveryOriginalDestination"] == "queue://orders"
    assert told["redeliveryCause"] == "y"
    assert COPY not in told


@pytest.mark.parametrize("route", ["auto", "ack"])
def test_what_comes_with_an_origin_is_copied(route: Any) -> None:
    """A message that arrives with an origin is copied where the broker would keep the property on its dead letter."""
    able = Capabilities("model", poison_persistent=True, forward="atomic")
    routing = routed(dead_letter=route)
    given: tuple[tuple[dict[str, Any], type[object]], ...] = (
        ({"redeliveryOriginalDestination": "queue://admin"}, Forward),
        ({"original-destination": "/queue/admin"}, Forward),
        ({"original-destination": "/topic/VirtualTopic.orders"}, Forward),
        ({"x:1\noriginal-destination:/queue/admin\ny": "v"}, Forward),
        ({"a\0": "v"}, Forward),
        ({"ä:b c\u00a0": "v"}, PoisonAck),
        ({"mine": "1"}, PoisonAck),
    )
    for headers, kind in given:
        command = routing.command(Told(**headers), Record(1), able, 0.0, 0.0)
        assert isinstance(command, kind), headers
        if isinstance(command, Forward):
            assert command.copy.headers["redeliveryOriginalDestination"] == "queue://orders"
            # Over STOMP Classic writes a line end in a name unescaped.
            assert all(str(name).isprintable() for name in command.copy.headers)


def test_sending_to_an_unknown_kind() -> None:
    """A destination of an unknown kind is an error before anything is sent."""
    for destination in ("bogus://x", "orders", "://", ""):
        with pytest.raises(redelivery.ConfigurationError, match="must start with one of queue://"):
            Outgoing(destination, b"")
