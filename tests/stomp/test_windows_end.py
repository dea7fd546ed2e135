"""Further subscriptions end after the settlement of their messages; after that no message of them is reported."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.stomp.test_windows import QUEUE, begun, came, subscribed

from redelivery.core.commands import Accept, Commit, Credit, Hold, PoisonAck, Subscribe
from redelivery.core.delivery import Cause
from redelivery_stomp.byte_windows import ByteWindow
from redelivery_stomp.profiles import StompArtemis, StompClassic

if TYPE_CHECKING:
    from tests.stomp.test_refused import Wire

    from redelivery_stomp.delivery import StompDelivery


def answer(wire: Wire) -> None:
    """Answer all frames with a `receipt` header, including those that follow an answer."""
    done = 0
    while done < len(wire.written):
        _, asks, tail = wire.written[done].partition(b"\nreceipt:")
        done += 1
        if asks:
            wire.read(b"RECEIPT\nreceipt-id:%b\n\n\0" % tail.partition(b"\n")[0])


@pytest.mark.parametrize("how", ["accepted", "poisoned", "committed"])
def test_each_ends_behind_its_message(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A further subscription ends after its message, for every kind of settlement: else they would add up."""
    wire, _ = begun(monkeypatch, StompClassic(), replace(QUEUE, window=1))
    parked = came(wire, "1")
    for _ in range(5):
        wire.adapter.execute((Credit(1, 1),))
        ((name, _),) = subscribed(wire)
        parked += came(wire, name)
    assert len(wire.link.subscriptions) == 6
    for number, each in enumerate(parked):
        settled: dict[str, Accept | PoisonAck | Commit] = {
            "accepted": Accept((each,)),
            "poisoned": PoisonAck(each, Cause("x"), 1),
            "committed": Commit(number, (each,), ()),
        }
        wire.adapter.execute((Credit(1, -1 if number else 0), settled[how]))
        answer(wire)
    assert list(wire.link.subscriptions) == ["1"]


def test_what_the_broker_takes_back_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is dropped if a worker's ACK ends its subscription while it is being read."""
    command = Subscribe(1, "queue://orders", window=100, room=1000)
    wire, ((_, size),) = begun(monkeypatch, StompArtemis(), command)
    parked = came(wire, "1", size=size)
    wire.adapter.execute((Hold(parked[0], 1.0, 1.0, 1, Cause("x")), Credit(1, 1)))
    name = subscribed(wire)[-1][0]
    for _ in range(40):
        wire.adapter.execute((Accept(came(wire, name, size=10)),))
    held = came(wire, name, size=10)
    wire.adapter.execute((Credit(1, -1), Accept(parked)))
    plain = ByteWindow.sampled

    def while_read(self: ByteWindow, delivery: StompDelivery) -> None:
        monkeypatch.setattr(ByteWindow, "sampled", plain)
        worker = threading.Thread(target=lambda: wire.adapter.execute((Accept(held),)))
        worker.start()
        worker.join()
        plain(self, delivery)

    monkeypatch.setattr(ByteWindow, "sampled", while_read)
    assert name in wire.link.subscriptions
    assert came(wire, name, size=10) == []
    assert name not in wire.link.subscriptions
