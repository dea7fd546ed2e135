"""A refused consumer leaves no subscription at the broker, and ends none that does not exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pytest
from stomp.utils import Frame
from tests.stomp.peer import opening

from redelivery import AdapterError, TransportError
from redelivery.adapter import Subscribed
from redelivery.core.commands import Credit, Subscribe, Unsubscribe
from redelivery_stomp.adapter import StompAdapter
from redelivery_stomp.connection import StompConnection
from redelivery_stomp.profiles import StompArtemis, StompClassic

if TYPE_CHECKING:
    from redelivery.adapter import AdapterEvent
    from redelivery_stomp.profile_base import StompProfile


class Wire:
    """An adapter logged in at a broker, Classic by default, without a socket. Its writes are kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, profile: StompProfile | None = None) -> None:
        # The token of the connection: always the same here.
        monkeypatch.setattr("redelivery_stomp.connection.secrets.token_hex", lambda _: "TOKEN")
        self.events: list[AdapterEvent] = []
        self.adapter, self.written = StompAdapter(), list[bytes]()
        self._patch, self._profile = monkeypatch, profile or StompClassic()
        self.again()

    def again(self) -> Self:
        """Open another connection, on which nothing has been written."""
        self.link = StompConnection(opening("stomp://h"), self.sink)
        self.link.profile, self.link._opened = self._profile, True
        self.link.turns.single = self.adapter._single
        self.link.on_connected(Frame("CONNECTED", {"version": "1.2", "server": "ActiveMQ/5.18.3"}))
        self.link.proof.connected = True
        self.link.proof.handle = self._profile.handle if self._profile.forgeable else b""
        self.adapter._link, self.adapter._sink = self.link, self.sink
        self.written.clear()
        self._patch.setattr(self.link.transport, "write", self.write)
        return self

    def sink(self, event: AdapterEvent) -> None:
        self.events.append(event)

    def write(self, data: bytes) -> None:
        self.written += [each.lstrip(b"\n") for each in data.split(b"\0") if each.strip(b"\n")]

    def read(self, data: bytes) -> None:
        """Read these bytes on the reading thread; a fault in them ends the connection."""
        self.link.transport._take(data)
        if self.link.transport.fault:
            self.link.lost("the connection was closed by the other side")

    def commands(self) -> list[bytes]:
        """Commands of the frames that were written."""
        return [each.partition(b"\n")[0] for each in self.written]

    def answer_last(self) -> None:
        """Answer the last frame with its receipt."""
        receipt = self.written[-1].partition(b"\nreceipt:")[2].partition(b"\n")[0].decode()
        self.link.on_receipt(Frame("RECEIPT", {"receipt-id": receipt}))

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
    """Return an adapter whose frames can be read and answered."""
    return Wire(monkeypatch)


@pytest.mark.parametrize(
    ("refused", "named", "asked"),
    [(b"SUBSCRIBE", "a consumer of queue://orders", 1), (b"SEND", "queue://graves", 0)],
)
def test_nothing_is_left_at_the_broker(wire: Wire, refused: bytes, named: str, asked: int) -> None:
    """A refused consumer writes no UNSUBSCRIBE, whether its SUBSCRIBE or its dead-letter queue was refused."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10, dead_letters=("queue://graves",)),))
    for command in (b"SEND", b"ABORT", b"SUBSCRIBE")[: 2 + asked]:
        wire.answer(command, "not authorized" if command == refused else None)
    (event,) = wire.events
    assert isinstance(event, Subscribed)
    assert isinstance(event.error, AdapterError)
    assert named in str(event.error)
    assert wire.commands().count(b"SUBSCRIBE") == asked
    wire.written.clear()
    wire.adapter.execute((Unsubscribe(1),))
    assert wire.written == []
    assert wire.link.subscriptions == {}


def test_nothing_is_written_behind_what_may_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No SUBSCRIBE follows a frame that may be refused: on Artemis it would keep messages until a restart."""
    wire = Wire(monkeypatch, StompArtemis())
    first = Subscribe(1, "queue://orders", window=100, dead_letters=("queue://graves",))
    wire.adapter.execute((first, Subscribe(2, "queue://bills", window=100)))
    asked = [b"BEGIN", b"SEND", b"ABORT"]
    assert wire.commands() == asked
    wire.answer(b"SEND")
    wire.answer(b"ABORT")
    assert wire.commands() == [*asked, b"SUBSCRIBE"]
    wire.answer(b"SUBSCRIBE")
    assert wire.commands() == [*asked, b"SUBSCRIBE", b"SUBSCRIBE"]
    assert b"\nid:TOKEN-2\n" in wire.written[-1]
    # A dead-letter queue that was checked once is not checked again.
    wire.adapter.execute((Subscribe(3, "queue://more", window=100, dead_letters=("queue://graves",)),))
    wire.answer_last()
    assert wire.commands()[-1] == b"SUBSCRIBE"
    assert b"\nid:TOKEN-3\n" in wire.written[-1]


def test_a_refusal_lets_the_next_one_begin(wire: Wire) -> None:
    """The next consumer starts after a refusal on Classic, which leaves the connection open."""
    first = Subscribe(1, "queue://orders", window=10, dead_letters=("queue://graves",))
    wire.adapter.execute((first, Subscribe(2, "queue://bills", window=10)))
    wire.answer(b"SEND", "not authorized")
    assert wire.commands()[3:] == [b"SUBSCRIBE"]
    assert b"\nid:TOKEN-2\n" in wire.written[-1]


@pytest.mark.parametrize("ended", [1, 2])
def test_one_that_ends_before_it_has_begun(wire: Wire, ended: int) -> None:
    """A consumer that ends before its start writes neither SUBSCRIBE nor UNSUBSCRIBE; the other one starts."""
    first = Subscribe(1, "queue://orders", window=10, dead_letters=("queue://graves",))
    wire.adapter.execute((first, Subscribe(2, "queue://bills", window=10)))
    wire.adapter.execute((Unsubscribe(ended),))
    wire.answer(b"SEND")
    wire.answer(b"ABORT")
    wire.answer_last()
    assert wire.commands()[3:] == [b"SUBSCRIBE"]
    assert b"\nid:TOKEN-%d\n" % (3 - ended) in wire.written[-1]


def test_a_loss_is_told_to_those_who_have_not_begun(wire: Wire) -> None:
    """A loss is reported to each consumer that has not started: each is subscribed on the next connection."""
    wire.adapter.execute(
        [Subscribe(n, f"queue://q{n}", window=10, dead_letters=("queue://g",)) for n in (1, 2)]
    )
    wire.link.lost("gone")
    told = [event for event in wire.events if isinstance(event, Subscribed)]
    assert [event.consumer for event in told] == [1, 2]
    assert all(isinstance(event.error, TransportError) for event in told)
    assert b"SUBSCRIBE" not in wire.commands()


def test_one_subscription_for_one_consumer(wire: Wire) -> None:
    """A second SUBSCRIBE with the same id, which would outlive its UNSUBSCRIBE, is dropped, like an outdated one."""
    wire.adapter.execute((Subscribe(1, "queue://orders", window=10, epoch=7),))
    assert wire.written == []
    for epoch in (wire.link.epoch, 0):
        wire.adapter.execute((Subscribe(1, "queue://orders", window=10, epoch=epoch),))
    assert [each.partition(b"\n")[0] for each in wire.written] == [b"SUBSCRIBE"]


@pytest.mark.parametrize("refused", [b"SEND", b"SUBSCRIBE"])
def test_nothing_begins_on_a_connection_that_its_broker_ends(
    monkeypatch: pytest.MonkeyPatch, refused: bytes
) -> None:
    """No consumer starts after a refusal on Artemis, which closes the connection: it starts on the next one."""
    wire = Wire(monkeypatch, StompArtemis())
    first = Subscribe(1, "queue://orders", window=10, dead_letters=("queue://graves",))
    wire.adapter.execute((first, Subscribe(2, "queue://bills", window=10)))
    for command in (b"SEND", b"ABORT", b"SUBSCRIBE"):
        wire.answer(command, "not authorized" if command == refused else None)
        if command == refused:
            break
    assert not any(b"\nid:TOKEN-2\n" in each for each in wire.written)
    told = {event.consumer: event.error for event in wire.events if isinstance(event, Subscribed)}
    assert isinstance(told[1], AdapterError)
    assert isinstance(told[2], TransportError)


@pytest.mark.parametrize("ended", [False, True])
def test_a_further_subscription_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch, ended: bool) -> None:
    """A further subscription waits for the check before it; one that was not begun is not ended, either."""
    wire = Wire(monkeypatch, StompArtemis())
    wire.adapter.execute((Subscribe(1, "queue://orders", window=50, room=99),))
    wire.answer_last()
    wire.written.clear()
    wire.adapter.execute((Subscribe(2, "queue://bills", window=1, dead_letters=("queue://graves",)),))
    wire.adapter.execute((Credit(1, 50),))
    asked = [b"BEGIN", b"SEND", b"ABORT"]
    assert wire.commands() == asked
    if ended:
        wire.adapter.execute((Unsubscribe(1),))
        asked.append(b"UNSUBSCRIBE")
    wire.answer(b"SEND")
    wire.answer(b"ABORT")
    wire.answer_last()
    further = [] if ended else [b"SUBSCRIBE"]
    assert wire.commands() == [*asked, b"SUBSCRIBE", *further]
    assert any(b"\nid:TOKEN-1.1\n" in each for each in wire.written) is not ended
    wire.written.clear()
    wire.adapter.execute((Unsubscribe(1),))
    assert wire.commands() == [b"UNSUBSCRIBE"] * (2 * len(further))
