"""Measures how a message of a fan-out differs from others on ActiveMQ Classic, and how many dead letters it leaves.

`python -m integration.measure_fan_out`; results on stdout. The source of docs/measured/activemq-fan-out.md. Run it
again with REDELIVERY_VERSIONS=oldest and newest.
"""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

from integration.brokers import ActiveMQ
from integration.java_client import JavaClient
from integration.raw_amqp import RawAmqp, proton, reactor
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BOTH = ("amqp", "stomp")
VOLATILE = {"message-id", "timestamp", "ack", "subscription", "expires", "content-length", "transformation"}


class Way(NamedTuple):
    """One way from a producer to consumers: where it is sent, and what is consumed."""

    name: str
    to: str
    consumed: tuple[str, ...]
    durable: bool = False

    def send(self, java: JavaClient, producer: str, stomp: RawStomp, amqp: RawAmqp) -> None:
        """Send one persistent text by this producer."""
        kind, _, name = self.to.partition("://")
        if producer == "openwire":
            java.send(name if kind == "queue" else None, b"body", topic=name if kind == "topic" else None)
        elif producer == "stomp":
            receipt = uuid.uuid4().hex
            stomp.connection.send(
                f"/{kind}/{name}", "body", headers={"persistent": "true", "receipt": receipt}
            )
            stomp.confirmed(receipt)
        else:
            amqp.connection.create_sender(self.to, name=uuid.uuid4().hex).send(
                proton.Message(body="body", durable=True)
            )


def ways() -> Iterator[Way]:
    """Yield each way, with new names."""
    x = uuid.uuid4().hex[:6]
    yield Way("queue", f"queue://q.{x}", (f"queue://q.{x}",))
    for topic in (f"VirtualTopic.{x}", f"Unmarked.{x}"):
        yield Way(
            f"virtual topic {topic.partition('.')[0]}",
            f"topic://{topic}",
            tuple(f"queue://Consumer.{each}.{topic}" for each in "AB"),
        )
    yield Way("composite in the address", f"queue://a.{x},b.{x}", (f"queue://a.{x}", f"queue://b.{x}"))
    for name in ("both", "shared"):
        yield Way(
            f"composite queue fan.{name}",
            f"queue://fan.{name}",
            (f"queue://fan.{name}.a", f"queue://fan.{name}.b"),
        )
    kept = tuple(f"queue://fan.kept{each}" for each in ("", ".a", ".b"))
    yield Way("composite queue fan.kept", "queue://fan.kept", kept)
    yield Way("topic, one plain subscriber", f"topic://o.{x}", (f"topic://o.{x}",))
    yield Way("topic, two plain subscribers", f"topic://p.{x}", (f"topic://p.{x}",) * 2)
    yield Way("topic, two durable subscribers", f"topic://d.{x}", (f"topic://d.{x}",) * 2, durable=True)
    yield Way("topic, one durable subscriber", f"topic://e.{x}", (f"topic://e.{x}",), durable=True)
    for kind in ("ind", "unaudited"):
        pair = f"{kind}.a.{x}", f"{kind}.b.{x}"
        yield Way(
            f"composite in the address, {kind}.*",
            "queue://" + ",".join(pair),
            tuple(f"queue://{q}" for q in pair),
        )


class Durable(reactor.LinkOption):  # type: ignore[misc]  # proton has no types
    """A durable topic subscription."""

    def apply(self, link: Any) -> None:
        """Set the terminus."""
        link.source.durability = proton.Terminus.DELIVERIES
        link.source.expiry_policy = proton.Terminus.EXPIRE_NEVER


class OverAmqp:
    """One subscriber over AMQP."""

    def __init__(self, broker: ActiveMQ, source: str, *, durable: bool) -> None:
        """Attach."""
        self.raw = RawAmqp(broker)
        if durable:
            self.raw.connection.close()
            self.raw.connection = _named(broker)
        self.receiver = self.raw.connection.create_receiver(
            source, credit=1, name=uuid.uuid4().hex, options=[Durable()] if durable else None
        )

    def take(self) -> str:
        """Receive one message; return all that it says."""
        message = self.receiver.receive(20.0)
        named = (
            "address",
            "subject",
            "group_id",
            "group_sequence",
            "user_id",
            "reply_to",
            "priority",
            "inferred",
        )
        seen = {each: getattr(message, each) for each in named}
        maps = {
            each: dict(getattr(message, each) or {}) for each in ("instructions", "annotations", "properties")
        }
        return f"{ {**seen, **maps} }"

    def poison(self) -> None:
        """Reject it, and wait until the broker has taken that."""
        self.receiver.reject()
        self.receiver.close()
        self.raw.close()


class OverStomp:
    """One subscriber over STOMP."""

    def __init__(self, broker: ActiveMQ, source: str, *, durable: bool) -> None:
        """Subscribe."""
        kind, _, name = source.partition("://")
        self.raw = RawStomp(broker)
        client = {"client-id": uuid.uuid4().hex} if durable else {}
        self.raw.connect(**client)
        more = {"activemq.subscriptionName": "name"} if durable else {}
        more["receipt"] = "subscribed"
        self.raw.connection.subscribe(f"/{kind}/{name}", "1", "client-individual", more)
        self.raw.confirmed("subscribed")

    def take(self) -> str:
        """Receive one message; return all that it says."""
        frame = self.raw.next(20.0)
        assert frame is not None
        self.frame = frame
        return f"{ {k: v for k, v in frame.headers.items() if k not in VOLATILE} }"

    def poison(self) -> None:
        """NACK it, and wait for the receipt."""
        self.raw.ack(self.frame, "nack")
        self.raw.close()


def _named(broker: ActiveMQ) -> Any:
    container = uuid.uuid4().hex

    class Named(type(RawAmqp(broker).connection)):  # type: ignore[misc]
        """A connection with a container id of its own."""

    login = {"user": broker.user, "password": broker.password, "allowed_mechs": "PLAIN"}
    made = reactor.Container()
    made.container_id = container
    return Named(f"amqp://{broker.host}:{broker.ports['amqp']}", timeout=60.0, container=made, **login)


def letters(java: JavaClient) -> list[str]:
    """Empty each dead-letter queue; return the bodies."""
    return [str(found.kind) for found in java.drain("ActiveMQ.DLQ", timeout=1.0)]


def one(broker: ActiveMQ, java: JavaClient, way: Way, producer: str, consumer: str) -> None:
    """Print what each subscriber sees, and the dead letters after all of them said poison."""
    make: Callable[..., Any] = OverAmqp if consumer == "amqp" else OverStomp
    subscribers = [make(broker, each, durable=way.durable) for each in way.consumed]
    with RawStomp(broker) as stomp, RawAmqp(broker) as amqp:
        way.send(java, producer, stomp, amqp)
    case = f"{broker.version} {way.name}, {producer} to {consumer}"
    for source, each in zip(way.consumed, subscribers, strict=True):
        print(f"{case}: {source}: {each.take()}")
    for each in subscribers:
        each.poison()
    dead = letters(java)
    own = [
        java.drain(f"DLQ.{each.partition('://')[2]}", timeout=0.5)
        for each in way.consumed
        if "//ind." in each
    ]
    print(f"{case}: poison {len(subscribers)}, dead letters {len(dead) + sum(map(len, own))}", flush=True)


def main() -> None:
    """Run each way with each producer and consumer."""
    with ActiveMQ() as broker, JavaClient(broker, "openwire") as java:
        for producer, consumer in itertools.product(("openwire", *BOTH), BOTH):
            for way in ways():
                one(broker, java, way, producer, consumer)


if __name__ == "__main__":
    main()
