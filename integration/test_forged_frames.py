"""Frames that Classic did not write: in a producer's text with a NUL, or in the name of its property."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually
from integration.raw_amqp import RawAmqp
from integration.work import Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.proxy import LinkProxy

pytestmark = [
    pytest.mark.ci("forged frames on each broker"),
    pytest.mark.own_broker("reads its dead-letter queue"),
]

ONCE = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))
VICTIM = b"takes long, and then fails"
FORGED = "destination:/queue/payments\nmessage-id:FORGED\nrole:admin\npersistent:true\n"


def text(hidden: str) -> dict[str, Any]:
    """Return a text with frames behind its NUL."""
    return {"body": f"a\0\n{hidden}"}


def guesses(handle: str) -> str:
    """Return valid messages with all ids that a connection could have, each with the victim's handle."""
    names = ["1", "2", "3", "1.1", "0", "sub-1"]
    return "\0\n".join(f"MESSAGE\nsubscription:{name}\n{FORGED}ack:{handle}\n\nforged" for name in names)


# Messages of a producer that knows the handle of another message.
CASES: dict[str, Callable[[str], dict[str, Any]]] = {
    "messages": lambda handle: text(guesses(handle)),
    "a message without a subscription": lambda handle: text(f"MESSAGE\n{FORGED}ack:{handle}\n\nforged"),
    "receipts": lambda _: text("\0\n".join(f"RECEIPT\nreceipt-id:{k}1-{n}\n\n" for k in "rq" for n in range(9))),
    "CONNECTED": lambda _: text("CONNECTED\nversion:1.0\nserver:RabbitMQ/3.10\n\n"),
    "headers for the next message": lambda handle: text(f"MESSAGE\n{FORGED}ack:{handle}\nx:"),
    "a length over all that comes": lambda _: text("ERROR\nmessage:no\ncontent-length:99999999\n\n"),
    "a property's name": lambda handle: {
        "body": "a", "properties": {f"x{n}:1\nack:{handle}\ny": "v" for n in range(8)},
    },
    "a property of a length": lambda _: {"body": "a", "properties": {"content-length": "99999999"}},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_a_producer_forges_is_not_obeyed(
    activemq: Broker,
    make_proxy: Callable[..., LinkProxy],
    new_queue: Callable[[], str],
    case: Callable[[str], dict[str, Any]],
) -> None:
    """A forged frame reaches no handler, acknowledges nothing, and stops its consumer; the victim's failure counts."""
    # Opaque: otherwise the proxy would forward the begin of a text before the rest has arrived.
    queue, proxy = new_queue(), make_proxy(activemq.stomp_port, opaque=True)
    dead_letters, seen, handles = f"{queue}.dead", list[bytes](), list[str]()
    hold = threading.Event()

    def handle(message: redelivery.Message) -> None:
        seen.append(message.body)
        handles.append(message._delivery.field(b"\nack:").decode())  # type: ignore[attr-defined]
        hold.wait(60)
        raise ValueError("failed")

    uri = activemq.uri(port=proxy.port, redelivery__deadLetterDestination=dead_letters)
    with redelivery.connect(uri, policies=ONCE) as connection:
        connection.send(queue, VICTIM)
        connection.listen(queue, handle, workers=2)
        with Running(connection, drain=30.0) as running:
            eventually(lambda: handles, message="the victim in work")
            with RawAmqp(activemq) as raw:
                raw.send(queue, **case(handles[0]))
                # Another frame, which ends a partial one, follows the text.
                raw.send(queue, "after it")
            eventually(lambda: proxy.links_ever > 1, message="the end of the connection")
            hold.set()
            eventually(lambda: running.ended, message="the end of the consumer")
    assert isinstance(running.error, redelivery.AdapterError), running.error
    assert "3 times" in str(running.error)
    assert "ActiveMQ Classic)" in str(running.error)
    assert set(seen) <= {VICTIM, b"after it"}
    left, dead = list[bytes](), list[bytes]()

    def all_there() -> bool:
        left.extend(taken(activemq, queue))
        dead.extend(taken(activemq, dead_letters))
        assert VICTIM in left + dead, f"left {left}, dead letters {dead}"
        return sum(body.startswith(b"a") for body in left + dead) >= 2

    eventually(all_there, message="the victim, and both texts after it")
    # Both exist if the forged frame ends the connection between the copy and its confirmation: at least once.
    assert (left.count(VICTIM), dead.count(VICTIM)) in [(1, 0), (0, 1), (1, 1)], (
        f"left {left}, dead letters {dead}"
    )
    assert sum(body.startswith(b"a") for body in left + dead) == 2


def test_what_only_says_that_it_is_persistent_is_not_dropped(
    activemq: Broker, new_queue: Callable[[], str]
) -> None:
    """A message that only claims to be persistent is not NACKed: Classic would drop a non-persistent one."""
    queue = new_queue()
    with RawAmqp(activemq) as raw:
        raw.send(queue, "lost?", durable=False, properties={"persistent": "true", "run": queue})
    with redelivery.connect(activemq.uri(), policies=ONCE) as connection:
        message = connection.consumer(queue).receive(timeout=20)
        assert message is not None
        assert message.persistent
        message.fail("no")
        eventually(lambda: connection.report().poisoned == 1)
    with redelivery.dead_letters(activemq.uri()) as dead:
        assert [one.body for one in dead if one.headers.get("run") == queue] == [b"lost?"]


def test_a_consumer_has_the_policy_of_what_it_consumes(
    activemq: Broker, new_queue: Callable[[], str]
) -> None:
    """A property `destination` changes neither the policy nor the handler's destination, except within a pattern."""
    queue = new_queue()
    twice = redelivery.RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.01)
    policies = redelivery.RedeliveryPolicyMap({queue: twice, f"{queue}.b": twice}, default=ONCE.default)
    seen = list[str]()
    with redelivery.connect(activemq.uri(), policies=policies) as connection, RawAmqp(activemq) as raw:
        for consumed, forged, count in ((queue, ["Berlin"], 2), (f"{queue}.*", ["Berlin", f"{queue}.b"], 3)):
            consumer = connection.consumer(consumed)
            for name in forged:
                raw.send(consumed.replace("*", "a"), properties={"destination": f"/queue/{name}"})
            for _ in range(count):
                message = consumer.receive(timeout=20)
                assert message is not None
                seen.append(message.destination)
                message.fail("no")
            consumer.close()
    own = f"queue://{queue}"
    assert sorted(seen) == sorted([own, own, f"{own}.*", f"{own}.b", f"{own}.b"])


def test_a_text_that_ends_in_half_a_frame_is_found_out(
    activemq: Broker, new_queue: Callable[[], str]
) -> None:
    """A text that ends in a part of a frame ends the connection after ten seconds, without another byte."""
    queue = new_queue()
    with RawAmqp(activemq) as raw:
        raw.send(queue, "a\0\nMESSAGE\nfoo:bar")
    uri = activemq.uri(redelivery__heartbeat=600_000, redelivery__credit=1)
    with redelivery.connect(uri, policies=ONCE) as connection:
        consumer = connection.consumer(queue)
        with pytest.raises(redelivery.AdapterError, match="3 times"):
            consumer.receive(timeout=90)


def taken(broker: Broker, queue: str) -> list[bytes]:
    """Receive all messages of a queue, over AMQP, where a text is whole."""
    with redelivery.connect(broker.uri(protocol="amqp"), policies=ONCE) as connection:
        consumer, bodies = connection.consumer(queue), []
        while (message := consumer.receive(timeout=2.0)) is not None:
            bodies.append(message.body)
            message.accept()
    return bodies
