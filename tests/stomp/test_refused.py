"""A consumer that is refused leaves no subscription at the broker, and ends none that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stomp.utils import Frame

from redelivery import AdapterError
from redelivery.adapter import Subscribed
from redelivery.core.commands import Subscribe, Unsubscribe
from redelivery_stomp.adapter import StompAdapter
from redelivery_stomp.link import Link
from redelivery_stomp.profiles import Classic

from .peer import opening

if TYPE_CHECKING:
    from redelivery.adapter import AdapterEvent
    from redelivery_stomp.profile import Profile


class Wire:
    """An adapter logged in at a broker, Classic by default, without a socket: what it writes is kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, profile: Profile | None = None) -> None:
        self.events: list[AdapterEvent] = []
        self.adapter, self.link = StompAdapter(), Link(opening("stomp://h"), self.sink)
        self.link.profile, self.link._opened = profile or Classic(), True
        self.link.on_connected(Frame("CONNECTED", {"version": "1.2", "server": "ActiveMQ/5.18.3"}))
        self.adapter._link, self.adapter._sink = self.link, self.sink
        self.written: list[bytes] = []
        monkeypatch.setattr(self.link.transport, "write", self.write)

    def sink(self, event: AdapterEvent) -> None:
        self.events.append(event)

    def write(self, data: bytes) -> None:
        self.written += [each.lstrip(b"\n") for each in data.split(b"\0") if each.strip(b"\n")]

    def answer(self, command: bytes, error: str | None = None) -> None:
        """Answer the first frame of this command: with its receipt, or with an ERROR."""
        frame = next(each for each in self.written if each.startswith(command))
        receipt = frame.partition(b"\nreceipt:")[2].partition(b"\n")[0].decode()
        if error is None:
            self.link.on_receipt(Frame("RECEIPT", {"receipt-id": receipt}))
        else:
            self.link.on_error(Frame("ERROR", {"receipt-id": receipt, "message": error}, b""))


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Return an adapter whose frames can be read, and answered."""
    return Wire(monkeypatch)


@pytest.mark.parametrize(
    ("refused", "named", "ended"),
    [
        (b"SUBSCRIBE", "a consumer of queue://orders", []),
        (b"SEND", "queue://graves", [b"UNSUBSCRIBE\nid:1\n\n"]),
    ],
)
def test_what_stands_at_the_broker_is_ended(
    wire: Wire, refused: bytes, named: str, ended: list[bytes]
) -> None:
    """Where it is its dead letters that are refused, the subscription itself stands, and prefetches, until ended."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10, dead_letter="queue://graves"),))
    for command in (b"SEND", b"ABORT", b"SUBSCRIBE"):
        wire.answer(command, "not authorized" if command == refused else None)
    (event,) = wire.events
    assert isinstance(event, Subscribed)
    assert isinstance(event.error, AdapterError)
    assert named in str(event.error)
    wire.written.clear()
    wire.adapter.execute((Unsubscribe(1),))
    assert wire.written == ended
    assert wire.link.subscriptions == {}


def test_one_subscription_for_one_consumer(wire: Wire) -> None:
    """A second SUBSCRIBE of one id would outlive its UNSUBSCRIBE; one for another connection is dropped as well."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10, epoch=7),))
    assert wire.written == []
    for epoch in (wire.link.epoch, 0):
        wire.adapter.execute((Subscribe(1, "queue://orders", window=10, epoch=epoch),))
    assert [each.partition(b"\n")[0] for each in wire.written] == [b"SUBSCRIBE"]
