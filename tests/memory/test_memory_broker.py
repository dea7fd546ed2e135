"""The memory broker, driven through the methods of its adapter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from redelivery.adapter import Opening, Sent, Subscribed
from redelivery.core.commands import Accept, Credit, Release, Send
from redelivery.core.events import Arrived
from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError, ConfigurationError
from redelivery.testing import ManualClock, MemoryBroker

if TYPE_CHECKING:
    from redelivery.adapter import AdapterEvent

from tests.memory_peer import QUEUE, Peer, broker, clock, peer

__all__ = ["broker", "clock", "peer"]  # fixtures


def test_send_is_confirmed_and_delivered_in_order(peer: Peer) -> None:
    """A sent message is confirmed with its token, stored, and delivered first in, first out, with its properties."""
    for token, body in enumerate((b"a", b"b"), start=7):
        peer.do(Send(token, Outgoing(QUEUE, body, headers={"n": token}, group="g", correlation_id="c")))
    assert [(sent.token, sent.error) for sent in peer.told(Sent)] == [(7, None), (8, None)]
    peer.consume()
    assert [event.error for event in peer.told(Subscribed)] == [None]
    first, second = peer.got()
    assert (first.body, first.headers, first.group, first.correlation_id) == (b"a", {"n": 7}, "g", "c")
    assert (first.destination, first.redelivered, first.broker_count) == (QUEUE, False, 0)
    assert first.timestamp is not None
    assert first.message_id != second.message_id


def test_credit_bounds_delivery(peer: Peer) -> None:
    """A consumer gets no more messages than its credit, in one list."""
    for n in range(5):
        peer.broker.send(QUEUE, str(n))
    peer.consume(credit=2)
    (arrived,) = peer.told(Arrived)
    assert len(arrived.deliveries) == 2
    peer.do(Accept(arrived.deliveries))
    assert peer.got() == []
    peer.do(Credit(1, 1))
    assert peer.bodies() == [b"2"]
    assert peer.broker.depth(QUEUE) == 3


def test_credit_is_withdrawn(peer: Peer) -> None:
    """Negative credit withdraws unused credit, and no more than that."""
    peer.broker.send(QUEUE, "0")
    peer.consume(credit=3)
    peer.do(Credit(1, -3))
    peer.broker.send(QUEUE, "1")
    assert peer.bodies() == [b"0"]
    peer.do(Credit(1, 1))
    assert peer.bodies() == [b"1"]


def test_consumers_take_turns(peer: Peer) -> None:
    """Consumers of one queue with credit get its messages in turn."""
    peer.consume(credit=2, consumer=1).consume(credit=10, consumer=2)
    for n in range(6):
        peer.broker.send(QUEUE, str(n))
    got = peer.got()
    assert [d.consumer for d in got] == [1, 2, 1, 2, 2, 2]
    assert [d.body for d in got] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_released_goes_to_the_front_uncounted(peer: Peer) -> None:
    """A released message is the next to be delivered; it is neither counted nor marked."""
    for n in range(3):
        peer.broker.send(QUEUE, str(n))
    peer.consume(credit=2)
    first, second = peer.got()
    peer.do(Release((second,)), Release((first,)), Credit(1, 3))
    again = peer.got()
    assert [d.body for d in again] == [b"0", b"1", b"2"]
    assert [(d.redelivered, d.broker_count) for d in again] == [(False, 0)] * 3


def test_expired_is_dead_lettered(peer: Peer, broker: MemoryBroker, clock: ManualClock) -> None:
    """A message that expires before its delivery becomes a dead letter with the cause `expired`."""
    broker.send(QUEUE, "old", expires_at=clock.time() + 5)
    broker.send(QUEUE, "new")
    clock.advance(5)
    assert peer.consume().bodies() == [b"new"]
    (letter,) = broker.dead_letters()
    assert (letter.cause, letter.expires_at) == ("expired", None)


def test_delayed_comes_later(peer: Peer, clock: ManualClock) -> None:
    """A delayed message is confirmed at once, and delivered after its delay on the broker's clock."""
    peer.consume()
    peer.do(Send(1, Outgoing(QUEUE, b"later", delay=60.0)))
    assert len(peer.told(Sent)) == 1
    clock.advance(59.999)
    assert peer.bodies() == []
    clock.advance(0.001)
    assert peer.bodies() == [b"later"]


def test_topics(peer: Peer, broker: MemoryBroker) -> None:
    """Each subscription of a topic gets every message sent after its begin; without subscriptions a message is lost."""
    broker.send("topic://prices.gold", "early")
    peer.consume("topic://prices.gold", consumer=1).consume("topic://prices.*", consumer=2)
    broker.send("topic://prices.gold", "1")
    broker.send("topic://prices.tin", "2")
    got = peer.got()
    assert sorted((d.consumer, d.body) for d in got) == [(1, b"1"), (2, b"1"), (2, b"2")]
    assert {d.destination for d in got} == {"topic://prices.gold", "topic://prices.tin"}


def test_durable_subscription(broker: MemoryBroker, clock: ManualClock) -> None:
    """A durable subscription collects messages without a consumer; it needs a client id, and has one consumer."""
    first = Peer(broker, clock, client_id="me").consume("topic://t", subscription="s")
    first.adapter.close(1.0)
    broker.send("topic://t", "while away")
    second = Peer(broker, clock, client_id="me").consume("topic://t", subscription="s")
    assert second.bodies() == [b"while away"]
    third = Peer(broker, clock, client_id="me").consume("topic://t", subscription="s")
    (refused,) = third.told(Subscribed)
    assert "is in use" in str(refused.error)
    nameless = Peer(broker, clock).consume("topic://t", subscription="s")
    assert "jms.clientID" in str(nameless.told(Subscribed)[0].error)


def test_wildcards_over_queues(peer: Peer, broker: MemoryBroker) -> None:
    """A wildcard reads existing and later queues, by the rules of the policy map."""
    broker.send("a.b", "1")
    peer.consume("queue://a.>", credit=3)
    for name in ("a.b.c", "a", "b.a", "native://a.b"):
        broker.send(name, name)
    assert peer.bodies() == [b"1", b"a.b.c", b"a"]
    assert [m.delivered for m in broker.messages("b.a")] == [False]


def test_composite_and_native(peer: Peer, broker: MemoryBroker) -> None:
    """A composite destination is each of its members; a native name is used unchanged."""
    broker.send("a,b,topic://t", "x")
    assert (broker.depth("a"), broker.depth("b")) == (1, 1)
    broker.send("native://a.>,b", "y")
    assert peer.consume("native://a.>,b").bodies() == [b"y"]


@pytest.mark.parametrize(
    ("destination", "options", "said"),
    [
        (QUEUE, {"selector": "a = 1"}, "no selectors"),
        (QUEUE, {"subscription": "s"}, "needs a topic"),
        ("queue://a,topic://b", {}, "queues and topics at once"),
        ("nonsense://a", {}, "must start with"),
    ],
)
def test_refused_subscriptions(peer: Peer, destination: str, options: dict[str, Any], said: str) -> None:
    """A subscription that the broker does not support is refused with the reason."""
    peer.consume(destination, **options)
    (refused,) = peer.told(Subscribed)
    assert said in str(refused.error)
    assert isinstance(refused.error, AdapterError | ConfigurationError)


def test_sending_to_a_wildcard_is_refused(peer: Peer) -> None:
    """A message to a wildcard is refused."""
    peer.do(Send(1, Outgoing("queue://a.*", b"")))
    assert isinstance(peer.told(Sent)[0].error, AdapterError)


def test_brokers_are_found_by_name(clock: ManualClock) -> None:
    """Connections to one name have one broker, which keeps its messages until it is closed."""
    with MemoryBroker("found-by-name", clock=clock) as broker:
        assert broker.uri == "memory://found-by-name"
        Peer(broker, clock).do(Send(1, Outgoing(QUEUE, b"kept")))
        assert MemoryBroker("found-by-name").depth(QUEUE) == 1
        with pytest.raises(ConfigurationError, match="another clock"):
            MemoryBroker("found-by-name", clock=ManualClock())
    with MemoryBroker("found-by-name") as broker:
        assert broker.depth(QUEUE) == 0


def test_a_chain_of_sinks_does_not_recurse(broker: MemoryBroker, clock: ManualClock) -> None:
    """Consumers that send from inside their sinks can do so without end and without a stack overflow."""
    left, right = Peer(broker, clock), Peer(broker, clock)
    hops = 0

    def pass_on(peer: Peer, target: str) -> Any:
        def sink(event: AdapterEvent) -> None:
            nonlocal hops
            if isinstance(event, Arrived) and hops < 5000:
                hops += 1
                peer.do(Accept(event.deliveries), Credit(1, 1), Send(hops, Outgoing(target, b"")))

        return sink

    for end, mine, target in ((left, "l", "queue://r"), (right, "r", "queue://l")):
        end.epoch += 1
        opening = Opening(end.settings, end.endpoint, end.epoch, clock)
        end.adapter.open(opening, pass_on(end, target))
        end.consume(mine, credit=1)
    broker.send("l", "")
    assert hops == 5000


def test_threads_get_each_message_once_and_in_order(broker: MemoryBroker, clock: ManualClock) -> None:
    """With concurrent sends and settlements each message is delivered once, in the order of its sender."""
    peer = Peer(broker, clock).consume(credit=10_000)

    def work(sender: int) -> None:
        for n in range(500):
            peer.do(Send(n, Outgoing(QUEUE, b"%d %d" % (sender, n))))

    threads = [threading.Thread(target=work, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = [tuple(map(int, body.split())) for body in peer.bodies()]
    assert len(got) == 2000
    for sender in range(4):
        assert [n for s, n in got if s == sender] == list(range(500))


def test_many_messages_take_no_scan(peer: Peer, broker: MemoryBroker) -> None:
    """Ten thousand messages settled in any order leave nothing behind."""
    for n in range(10_000):
        broker.send(QUEUE, str(n))
    peer.consume(credit=10_000)
    deliveries = peer.got()
    peer.do(Accept(deliveries[::2]), Accept(deliveries[1::2]))
    assert broker.depth(QUEUE) == 0
