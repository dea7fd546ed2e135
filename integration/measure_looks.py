"""Measures what looks at a dead-letter queue leave of it: `python -m integration.measure_looks [stomp|amqp ...]`.

Both of a RabbitMQ 4: REDELIVERY_VERSION_RABBITMQ=trixie is 4.0, testing the newest. The source of "Looking at a quorum
queue" in docs/measured/rabbitmq-amqp.md.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import redelivery
from integration.brokers import RabbitMQ
from integration.raw_amqp import RawAmqp
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from collections.abc import Callable

LOOKS = 26
MESSAGES = 3
IDLE = 0.2  # seconds
LASTING = {"durable": True, "exclusive": False, "auto_delete": False}
QUORUM = {"x-queue-type": "quorum"}
QUEUES: dict[str, dict[str, object]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
    "quorum, limit 5": {"x-queue-type": "quorum", "x-delivery-limit": 5},
    "quorum, limit -1": {"x-queue-type": "quorum", "x-delivery-limit": -1},
}
RUNS: dict[str, Callable[[redelivery.DeadLetterQueue], Any]] = {
    "list": lambda dead: len(list(dead)),
    "purge of another cause": lambda dead: dead.purge(cause="NoSuch").skipped,
}


def looked(
    broker: RabbitMQ, protocol: str, queue: str, run: Callable[[redelivery.DeadLetterQueue], Any]
) -> str:
    """Return what each look has shown, and how many messages are there afterwards."""
    shown: list[int] = []
    for _ in range(LOOKS):
        with redelivery.dead_letters(broker.uri(protocol=protocol), queue, take=True, idle=IDLE) as dead:
            shown.append(run(dead))
        if not shown[-1]:
            break
    listed = broker.control("list_queues", "name", "messages").splitlines()
    left = [line.split()[-1] for line in listed if line.startswith(f"{queue}\t")]
    return f"{len(shown)} looks showed {shown}, then {left} are left"


def measure(broker: RabbitMQ, protocol: str) -> None:
    """Look at queues of each kind."""
    for kind, arguments in QUEUES.items():
        for what, run in RUNS.items():
            queue = f"looks.{protocol}.{kind}.{what}".replace(" ", "_").replace(",", "")
            with RawAmqp(broker) as raw:
                raw.declare(queue, arguments)
                for number in range(MESSAGES):
                    raw.send(queue, b"%d" % number)
            print(
                f"{broker.version} {protocol} {kind}: {what}: {looked(broker, protocol, queue, run)}",
                flush=True,
            )


def declared(broker: RabbitMQ) -> None:
    """Print which declarations of an argument the broker takes, and whether a STOMP client can use such a queue."""
    limit = {"x-delivery-limit": -1}
    for number, arguments in enumerate((limit, {"x-queue-type": "classic", **limit}, {**QUORUM, **limit})):
        with RawAmqp(broker) as raw:
            path = broker.address(f"declared.{number}")
            status, body = raw.manage_rabbitmq("PUT", path, {**LASTING, "arguments": arguments})
            print(f"{broker.version} amqp declares {arguments}: {status} {str(body)[:200]}", flush=True)
    for queue, headers in (("declared.2", QUORUM), ("declared.2", {})):
        with RawStomp(broker) as raw_stomp:
            raw_stomp.connection.send(f"/queue/{queue}", b"x", headers={**headers, "receipt": "r"})
            frames = raw_stomp.messages(2.0)
            errors = [frame.body for frame in frames if frame.command == "ERROR"]
            print(f"{broker.version} stomp sends to limit -1 with {headers}: {errors or 'taken'}", flush=True)
    for queue, arguments in (("first.classic", {}), ("first.quorum", QUORUM)):
        with RawAmqp(broker) as raw:
            raw.declare(queue, arguments)
        for look in (1, 2):
            with RawStomp(broker) as raw_stomp:
                if look == 1:
                    raw_stomp.connection.send(f"/amq/queue/{queue}", b"x")
                raw_stomp.connection.subscribe(f"/amq/queue/{queue}", "1", "client-individual")
                found = [
                    dict(frame.headers) for frame in raw_stomp.messages(2.0) if frame.command == "MESSAGE"
                ]
                print(f"{broker.version} stomp, delivery {look} from {queue}: {found}", flush=True)


def main(protocols: list[str]) -> None:
    """Measure each protocol, or the named ones."""
    logging.getLogger("redelivery").setLevel(logging.ERROR)
    RabbitMQ.obtain()
    with RabbitMQ() as broker:
        declared(broker)
        for protocol in protocols or ["stomp", "amqp"]:
            measure(broker, protocol)


if __name__ == "__main__":
    main(sys.argv[1:])
