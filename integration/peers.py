"""One message to a broker and back, over either protocol, with clients that are not the library."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from integration.brokers import BROKERS, STOMP_BROKERS
from integration.brokers.versions import rabbitmq_release
from integration.eventually import gathered
from integration.raw_amqp import RawAmqp, proton
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from integration.brokers import Broker

# Every protocol of every supported broker.
PEERS = [
    (name, protocol)
    for name in sorted(BROKERS)
    for protocol in ("stomp", "amqp")
    if protocol in BROKERS[name].services
]

# Those of them that the library supports.
PAIRS = [pair for pair in PEERS if pair[1] == "amqp" or pair[0] in STOMP_BROKERS]

# The RabbitMQ 4 of a run: the chosen one (.ci/full has 4.0), or the newest beside an older one.
RABBITMQ_4 = "rabbitmq" if rabbitmq_release() >= (4, 0) else "rabbitmq4"


def put(broker: Broker, protocol: str, queue: str, body: bytes = b"x") -> None:
    """Send one persistent message, and wait until the broker has confirmed it."""
    if protocol == "stomp":
        with RawStomp(broker) as stomp:
            stomp.send(queue, body)
    else:
        with RawAmqp(broker) as amqp:
            amqp.send(queue, body)


def take(broker: Broker, protocol: str, queue: str, timeout: float = 60.0) -> bytes | None:
    """Receive and acknowledge one message; None if none arrives in time."""
    if protocol == "stomp":
        with RawStomp(broker) as stomp:
            stomp.subscribe(queue)
            frame = stomp.next(timeout)
            if frame is not None:
                stomp.ack(frame)
            return None if frame is None else frame.body
    with RawAmqp(broker) as amqp:
        found = amqp.receive(queue, timeout=timeout)
    body = found[0].body if found else None
    assert body is None or isinstance(body, bytes)
    return body


def taken(broker: Broker, protocol: str, queue: str, expected: int = 0, limit: int = 5000) -> list[bytes]:
    """Take all messages of a queue, until none follows for 2 s; a broker may still hold some for a link that was cut.

    `expected`: as many as come within a minute.
    """

    def take() -> list[bytes]:
        if protocol == "amqp":
            with RawAmqp(broker) as amqp:
                bodies = [each.body for each in amqp.receive(queue, limit, 2.0)]
            return [
                body.encode() if isinstance(body, str) else body
                for body in bodies
                if isinstance(body, bytes | str)
            ]
        found: list[bytes] = []
        with RawStomp(broker) as stomp:
            stomp.subscribe(queue)
            while (frame := stomp.next(2.0)) is not None:
                stomp.ack(frame)
                found.append(frame.body)
        return found

    return gathered(take, expected)


def fill(broker: Broker, protocol: str, queue: str, bodies: Sequence[bytes], *, first: int = 0) -> None:
    """Send persistent messages with numbers from `first` and ids `m0`, `m1`, …, and wait until they are confirmed."""
    numbered = [(body, f"m{number}", {"number": str(number)}) for number, body in enumerate(bodies, first)]
    if protocol == "stomp":  # which has no id of a producer's
        numbered = [(body, name, {**told, "redeliveryId": name}) for body, name, told in numbered]
    pour(broker, protocol, queue, numbered)


def pour(
    broker: Broker, protocol: str, queue: str, messages: Iterable[tuple[bytes, str, Mapping[str, str]]]
) -> None:
    """Send persistent messages: a body, an id (AMQP only) and properties of each; wait until they are confirmed.

    Over AMQP they have a time, as those of JMS producers: Artemis need not mark what it redelivers after the end of a
    killed client's link, and without both a redelivery and a second message look alike (docs/measured/amqp.md).
    """
    if protocol == "stomp":
        with RawStomp(broker) as stomp:
            for body, _, properties in messages:
                headers = {**broker.send_headers, "persistent": "true", **properties}
                stomp.connection.send(broker.destination(queue), body, headers=headers)
            stomp.send(f"{queue}.end", b"")  # its receipt follows those of all others
        return
    with RawAmqp(broker, timeout=120) as amqp:
        link, last = amqp.declare(queue).link, None
        for number, (body, name, properties) in enumerate(messages):
            message = proton.Message(body=body, durable=True, id=name, properties=dict(properties))
            message.inferred, message.creation_time = True, time.time()
            if link.credit <= 0:
                amqp.connection.wait(lambda: link.credit > 0)
            last = link.delivery(f"t{number}")
            link.stream(message.encode())
            link.advance()
        amqp.connection.wait(lambda: last is None or last.remote_state)
