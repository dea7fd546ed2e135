"""Several messages with one id from their producer, and a connection that is cut: each of them is handled.

If an id alone identified a message, the first cut during a handler would fail the test: one message would be
acknowledged for another, which would be lost.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.tiers import amount

import redelivery
from integration.eventually import eventually
from integration.peers import PEERS, fill
from integration.raw_amqp import RawAmqp
from integration.raw_stomp import RawStomp
from integration.work import Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Session
    from integration.proxy import LinkProxy

pytestmark = pytest.mark.ci("messages with equal ids, cut again and again")

ROUNDS = amount("REDELIVERY_NAMESAKES", quick=5, ci=10, full=10)
SAID = ("created", "paid", "cancelled", "cancelled")
"""Bodies of the messages with one id; the last two are equal."""
TIMES = (None, None, 1_700_000_000.0)
"""Creation times: most producers of such ids set none."""


# Property for a STOMP producer's id. Classic has only ids of its own there, and closes the connection on the ACK of a
# message with an AMQP producer's id: its messages share the id that this library's producers set.
STOMP_ID = {"rabbitmq": "amqp_message_id", "activemq": "redeliveryId"}


@pytest.fixture(params=PEERS, ids="-".join)
def pair(request: pytest.FixtureRequest, session: Session) -> tuple[Broker, str]:
    """Each broker and protocol over which a producer's ids reach a consumer."""
    name, protocol = request.param
    return session.broker(name), protocol


class Handled:
    """A handler that counts its messages. It takes a few milliseconds, or waits until `let` allows it to end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.running = 0
        # Number of handlers that may still end; None: all.
        self._places: int | None = None
        self._changed = threading.Condition()

    def has(self, wanted: Counter[str]) -> bool:
        """True if each was handled this number of times."""
        return wanted <= self.counts

    def let(self, places: int | None) -> None:
        """Allow this number of further handlers to end; None: all from now on."""
        with self._changed:
            self._places = places
            self._changed.notify_all()

    def __call__(self, message: redelivery.Message) -> None:
        """Handle one delivery."""
        with self._changed:
            self.running += 1
            self._changed.wait_for(lambda: self._places != 0, 120)
            self._places = self._places and self._places - 1
        threading.Event().wait(0.004)
        with self._changed:
            self.running -= 1
            self.counts[message.text] += 1


def send(broker: Broker, protocol: str, queue: str, number: int, created: float | None) -> None:
    """Send several messages with one id, like a producer that uses it for all of them."""
    bodies = [f"{said} {number}" for said in SAID]
    if protocol == "stomp" and broker.name in STOMP_ID:
        named = {STOMP_ID[broker.name]: f"order-{number}"}
        with RawStomp(broker) as raw:
            for body in bodies:
                raw.send(queue, body, **named)
        return
    more = {} if created is None else {"creation_time": created}
    with RawAmqp(broker) as amqp:
        for body in bodies:
            amqp.send(queue, body, id=f"order-{number}", **more)


def left(broker: Broker, queue: str) -> list[object]:
    """Receive the messages that are still on the queue."""
    with RawAmqp(broker) as raw:
        return [message.body for message in raw.receive(queue, 10, timeout=0.5)]


def test_messages_with_one_id_are_all_handled_over_a_cut_link(
    pair: tuple[Broker, str], make_proxy: Callable[..., LinkProxy], new_queue: Callable[[], str]
) -> None:
    """Each of four messages with one id is handled, over a cut when none to three of them are done."""
    broker, protocol = pair
    queue, rnd, seen = new_queue(), random.Random(1), Handled()
    proxy = make_proxy(broker.ports[protocol], opaque=protocol == "amqp")
    address, _, options = broker.uri(protocol=protocol, port=proxy.port, maxReconnectDelay=50).partition("?")
    with redelivery.connect(f"failover:({address})?{options}") as connection:
        connection.listen(queue, seen, workers=2)
        with Running(connection):
            for number in range(ROUNDS):
                seen.let(0)
                created = rnd.choice(TIMES)
                send(broker, protocol, queue, number, created)
                eventually(lambda: seen.running == 2, interval=0.002, message="two in work, two behind them")
                done, before = rnd.randrange(len(SAID)), seen.counts.total()
                seen.let(done)
                eventually(
                    lambda: seen.counts.total() == before + done,  # noqa: B023
                    interval=0.002, message="some are done",
                )  # fmt: skip
                threading.Event().wait(rnd.uniform(0, 0.01))
                assert proxy.cut() >= 1
                threading.Event().wait(rnd.uniform(0, 0.2))
                seen.let(None)
                # With the same time, equal bytes are one message that was sent twice.
                wanted = Counter(f"{said} {number}" for said in (SAID if created is None else set(SAID)))
                eventually(partial(seen.has, wanted), message=f"round {number}: all are handled")
                eventually(lambda: connection.connected, message="the next link")
                eventually(lambda: seen.running == 0, message="nothing is in work")
        report = connection.report()
    again = seen.counts.total() - ROUNDS * len(SAID)
    print(
        f"\n{broker.name} over {protocol}: {ROUNDS} rounds; handled again {again}, "
        f"accepted unseen {report.deduplicated}, stale {report.stale}"
    )
    eventually(lambda: left(broker, queue) == [], message="nothing is left")
    assert report.poisoned == 0
    assert report.stale >= ROUNDS, "each cut came while a handler was at work"


@pytest.mark.parametrize("why", ["it was long ago", "it was a connection before"])
def test_what_is_sent_again_on_purpose_is_handled(
    pair: tuple[Broker, str],
    make_proxy: Callable[..., LinkProxy],
    new_queue: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    why: str,
) -> None:
    """A message with the same id, time and bytes that is sent again later is handled: an operator replays it."""
    broker, protocol = pair
    queue, seen = new_queue(), Handled()
    if why == "it was long ago":
        # Instead of a minute.
        monkeypatch.setattr("redelivery.core.accepts_in_doubt.DOUBT", 0.5)
    proxy = make_proxy(broker.ports[protocol], opaque=protocol == "amqp")
    address, _, options = broker.uri(protocol=protocol, port=proxy.port, maxReconnectDelay=50).partition("?")
    with redelivery.connect(f"failover:({address})?{options}") as connection:
        connection.listen(queue, seen)
        with Running(connection):
            send_one(broker, protocol, queue)
            eventually(partial(seen.has, Counter({"order": 1})), message="the first is handled")
            threading.Event().wait(1.0)
            for _ in range(1 if why == "it was long ago" else 2):
                links = proxy.links_ever
                proxy.cut()
                # In this order: the connection may not know the loss before the next connection.
                eventually(lambda: proxy.links_ever > links, message="another link")  # noqa: B023
                eventually(lambda: connection.connected, message="the next connection")
            send_one(broker, protocol, queue)
            eventually(partial(seen.has, Counter({"order": 2})), message="so is the second")
        assert connection.report().deduplicated == 0


def test_an_equal_message_that_went_back_is_handled(
    pair: tuple[Broker, str], make_proxy: Callable[..., LinkProxy], new_queue: Callable[[], str]
) -> None:
    """A message that was released is handled, even if another consumer accepted an equal one before a cut."""
    broker, protocol = pair
    queue = new_queue()
    proxy = make_proxy(broker.ports[protocol], opaque=protocol == "amqp")
    uri = broker.uri(protocol=protocol, port=proxy.port, maxReconnectDelay=50, redelivery__credit=1)
    address, _, options = uri.partition("?")
    for _ in range(2):
        send_one(broker, protocol, queue)
    with redelivery.connect(f"failover:({address})?{options}") as connection:
        one, other = connection.consumer(queue), connection.consumer(queue)
        accepted, back = one.receive(timeout=60), other.receive(timeout=60)
        assert accepted is not None
        assert back is not None
        # It uses up the credit: released messages are at the broker when the connection is cut.
        fill(broker, protocol, queue, [b"blocker"])
        accepted.accept()
        blocker = one.receive(timeout=60)
        assert blocker is not None
        assert (accepted.text, back.text, blocker.text) == ("order", "order", "blocker")
        assert back.release()
        other.close()
        threading.Event().wait(0.5)
        assert proxy.cut() >= 1
        blocker.release()
        texts = set[str]()
        while texts != {"order", "blocker"}:
            message = one.receive(timeout=60)
            assert message is not None, f"only {texts} came"
            texts.add(message.text)
            message.accept()
        assert connection.report().deduplicated == 0
    eventually(lambda: left(broker, queue) == [], message="nothing is left")


def send_one(broker: Broker, protocol: str, queue: str) -> None:
    """Send the same message, equal in each byte at each call."""
    if protocol == "stomp" and broker.name in STOMP_ID:
        with RawStomp(broker) as raw:
            raw.send(queue, "order", **{STOMP_ID[broker.name]: "order-1"}, timestamp="1700000000000")
        return
    with RawAmqp(broker) as amqp:
        amqp.send(queue, "order", id="order-1", creation_time=1_700_000_000.0)


def test_properties_named_like_classics_headers_lose_no_message(
    activemq: Broker, session: Session, make_proxy: Callable[..., LinkProxy], new_queue: Callable[[], str]
) -> None:
    """A message is handled after a cut, even if an accepted one had its id and time in properties, over STOMP."""
    queue, proxy, seen = new_queue(), make_proxy(activemq.stomp_port), list[str]()
    hold, busy = threading.Event(), threading.Event()

    def handle(message: redelivery.Message) -> None:
        seen.append(message.text)
        if message.text == "blocker":
            busy.set()
            hold.wait(60)

    java = session.java(activemq)
    # The last producer need not write them: its own values may be guessed.
    forged = {"message-id": "ID:victim-1-1700000000000-1:1:1:1:1", "timestamp": "1700000000000"}
    for body, properties in ((b"evil", forged), (b"blocker", {}), (b"victim", forged)):
        java.send(queue, body, properties=properties)
    address, _, options = activemq.uri(port=proxy.port, maxReconnectDelay=50).partition("?")
    with redelivery.connect(f"failover:({address})?{options}") as connection:
        connection.listen(queue, handle, workers=1)
        with Running(connection):
            assert busy.wait(60)
            eventually(lambda: java.count(queue) == 2, message="the acknowledgement of the first is read")
            assert proxy.cut() >= 1
            eventually(lambda: proxy.links_ever > 1 and connection.connected, message="the next link")
            hold.set()
            eventually(lambda: "victim" in seen, message="it is handled")
    assert left(activemq, queue) == []
