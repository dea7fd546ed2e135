"""Measures RabbitMQ over STOMP: `python -m integration.measure_rabbitmq [--rounds 20]`.

The source of docs/measured/rabbitmq-stomp.md, and of "Transactions" in rabbitmq-stomp-errors.md.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import redelivery
from integration.brokers import RabbitMQ
from integration.eventually import eventually
from integration.java_client import JavaClient
from integration.measure_flow import again
from integration.raw_stomp import RawStomp, stomp
from integration.stomp_client import StompClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.raw_stomp import Frame

MESSAGES = 400  # a round
StompException: type[Exception] = stomp.exception.StompException
ARGUMENTS = {
    "x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-expires": "600000", "x-max-length": "10",
    "x-max-length-bytes": "1000", "x-max-priority": "5", "x-message-ttl": "60000", "x-delivery-limit": "2",
    "x-overflow": "reject-publish", "x-queue-mode": "lazy", "x-single-active-consumer": "true",
}  # fmt: skip


def in_transaction(raw: RawStomp, frame: Frame, target: str) -> None:
    """Send the copy and acknowledge the original in one transaction."""
    name = uuid.uuid4().hex
    raw.connection.begin(name)
    raw.connection.send(f"/queue/{target}", frame.body, headers={"persistent": "true", "transaction": name})
    raw.connection.ack(frame.headers["ack"], transaction=name)
    raw.connection.commit(name, headers={"receipt": name})
    raw.confirmed(name)


def confirmed(raw: RawStomp, frame: Frame, target: str) -> None:
    """Send the copy, wait for its receipt, acknowledge the original."""
    raw.send(target, frame.body)
    raw.ack(frame, wait=False)


def moved(broker: Broker, move: Callable[[RawStomp, Frame, str], None], dice: random.Random) -> Counter[str]:
    """Move messages from one queue to another while the broker is killed; return where they are then.

    `confirmed`: the answer to the move had arrived.
    """
    source, target, client = "source", "target", StompClient(broker)
    with RawStomp(broker) as raw:
        for number in range(MESSAGES):
            raw.connection.send(f"/queue/{source}", str(number).encode(), headers={"persistent": "true"})
        raw.send(source, b"last")
    mover = RawStomp(broker).connect()
    mover.subscribe(source, prefetch_count="100")
    safe: set[bytes] = set()  # confirmed by the broker
    begun = threading.Event()

    def work() -> None:
        with suppress(AssertionError, OSError, StompException):  # the broker is gone
            while (frame := mover.next(5.0)) is not None and frame.command == "MESSAGE":
                move(mover, frame, target)
                safe.add(frame.body)
                begun.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    begun.wait(10)
    time.sleep(dice.random() * 0.5)
    broker.kill(at_once=True)
    eventually(lambda: mover.closed, 10)
    broker.start()
    thread.join(10)
    here = Counter(m.body for m in client.drain(source))
    there = Counter(m.body for m in client.drain(target))
    found: Counter[str] = Counter()
    for number in range(MESSAGES):
        body = str(number).encode()
        places = [*["source"] * here[body], *["target"] * there[body]] or ["LOST"]
        found[f"{'confirmed' if body in safe else 'unconfirmed'}: {' '.join(places)}"] += 1
    return found


def transactions(broker: Broker, rounds: int) -> None:
    """Print whether a transaction is atomic if the broker is killed.

    The queues exist for a while: one that was declared right before may be lost with all messages.
    """
    dice = random.Random(7)
    with RawStomp(broker) as raw:
        for queue in ("source", "target"):
            raw.send(queue, b"declares it")
    broker.restart()
    for move in (in_transaction, confirmed):
        total: Counter[str] = Counter()
        for number in range(rounds):
            found = moved(broker, move, dice)
            print(f"  {move.__name__} round {number}: {dict(found)}", flush=True)
            total += found
        print(f"{move.__name__}: {rounds} kills: {dict(total)}")


def requeued(broker: Broker) -> None:
    """Print how fast a NACK with `requeue:true` is redelivered, and whether it is counted."""
    for kind in ("classic", "quorum"):
        queue, count, frame = f"requeued.{kind}", 0, None
        with RawStomp(broker) as raw:
            raw.send(queue, b"x", x_queue_type=kind)
            raw.subscribe(queue, x_queue_type=kind)
            end = time.monotonic() + 2
            while time.monotonic() < end and (frame := raw.next(5.0)) is not None:
                raw.connection.nack(frame.headers["ack"], requeue="true")
                count += 1
        told = (
            {name: frame.headers.get(name) for name in ("redelivered", "x-delivery-count")} if frame else None
        )
        print(f"{kind}: {count} times within 2 s; the last one says {told}")


def declared(broker: Broker) -> None:
    """Print the headers with which a queue is declared: a declaration without them is refused."""
    for name, value in ARGUMENTS.items():
        queue = f"declared.{name}"
        with RawStomp(broker) as raw:
            raw.send_frame(queue, b"x", {name: value})
        other = RawStomp(broker).connect()
        other.connection.send(f"/queue/{queue}", b"x", headers={"receipt": "r"})
        eventually(lambda other=other: other.closed or "r" in other.receipts)  # type: ignore[misc]
        print(f"{name}: {'an argument' if other.closed else 'ignored'}")


def vanished(broker: Broker) -> None:
    """Send to missing destinations; print if it is confirmed, and the messages that a later consumer gets."""
    probes: dict[str, Callable[[RawStomp], Any]] = {
        "/amq/queue/ of no queue": lambda raw: raw.connection.send(
            "/amq/queue/none", b"x", headers={"receipt": "r"}
        ),
        "an exchange without a binding": lambda raw: raw.connection.send(
            "/exchange/amq.direct/nobody", b"x", headers={"receipt": "r"}
        ),
        "a queue that has expired since this connection declared it": expired,
    }
    for name, probe in probes.items():
        with RawStomp(broker) as raw:
            probe(raw)
            eventually(lambda raw=raw: raw.closed or "r" in raw.receipts)  # type: ignore[misc]
            print(f"SEND to {name}: {'RECEIPT' if 'r' in raw.receipts else raw.errors}")
    with RawStomp(broker) as raw:
        raw.subscribe("expired", x_expires="500")
        print(f"there is: {[frame.body for frame in raw.messages()]}")


def expired(raw: RawStomp) -> None:
    """Declare a queue that expires after half a second, wait for that, and send to it again."""
    raw.send_frame("expired", b"first", {"x-expires": "500"})
    time.sleep(3)
    raw.connection.send("/queue/expired", b"second", headers={"x-expires": "500", "receipt": "r"})


def unsubscribed(broker: Broker) -> None:
    """Print the fate of unsettled messages, and of those on the wire, at the end of a subscription."""
    with RawStomp(broker) as raw:
        for number in range(300):
            raw.connection.send("/queue/unsubscribed", str(number).encode())
        raw.send("unsubscribed", b"last")
    raw = RawStomp(broker).connect()
    raw.subscribe("unsubscribed", prefetch_count="200")
    held = [raw.next() for _ in range(200)]
    for frame in held[:100]:
        assert frame is not None
        raw.ack(frame, wait=False)  # each makes one more arrive
    raw.connection.unsubscribe("1", headers={"receipt": "r"})
    raw.confirmed("r")
    last = held[-1]
    assert last is not None
    raw.connection.nack(last.headers["ack"], requeue="true")
    frames = raw.messages()
    said = Counter(f.body.partition(b"\n")[0] for f in frames if f.command == "ERROR")
    print(
        f"after UNSUBSCRIBE with 100 of 200 acknowledged: {len(frames) - said.total()} more came, then {dict(said)}"
    )
    with RawStomp(broker) as other:
        other.subscribe("unsubscribed")
        print(f"others get {len(other.messages())} of 301", end="; ")
        raw.close()
        print(f"{len(other.messages())} more when its connection has ended")


def from_jms(broker: Broker, java: JavaClient) -> None:
    """Print the parts of an AMQP 1.0 client's message that arrive."""
    with redelivery.connect(
        broker.uri()
    ) as connection:  # stomp.py's parser breaks such a frame at its first NUL
        for kind in ("text", "bytes", "map", "object", "stream"):
            java.send(f"jms.{kind}", "Grüße".encode(), kind=kind, properties={"number": 3})
            found = connection.consumer(f"jms.{kind}").receive(timeout=10)
            assert isinstance(found, redelivery.Message)
            print(
                f"JMS {kind}: {found.body!r}; application headers {dict(found.headers)}; id {found.message_id}"
            )


def main() -> None:
    """Run all measurements on one broker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    with RabbitMQ() as broker:
        transactions(broker, arguments.rounds)
        requeued(broker)
        declared(broker)
        unsubscribed(broker)
        vanished(broker)
        with JavaClient(broker) as java:
            from_jms(broker, java)
        again(broker)


if __name__ == "__main__":
    main()
