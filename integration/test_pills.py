"""AMQP messages that could kill or stop a consumer: the consumer and the tools handle the messages after them."""

from __future__ import annotations

import itertools
import json
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, cast

import pytest

import redelivery
from integration.raw_amqp import AmqpError, RawAmqp

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker
    from redelivery_amqp.delivery import AmqpDelivery

HEADER, PROPERTIES, BODY = b"\0Sp\xc0\x02\x01A", b"\0Ss\xc0\x05\x01\xa1\x02id", b"\0Su\xa0\x03bad"
GOOD = HEADER + b"\0Su\xa0\x04good"


def nested(depth: int) -> bytes:
    """Return a list in a list, and so on."""
    heads, size = list[bytes](), 1
    for _ in range(depth):
        heads.append(b"\xd0" + struct.pack(">II", size + 4, 1))
        size += 9
    return b"".join(reversed(heads)) + b"\x45"


def in_map(section: bytes, key: bytes, value: bytes) -> bytes:
    """Return a section with one entry."""
    return section + b"\xd1" + struct.pack(">II", len(key + value) + 4, 2) + key + value


def one_hash(count: int) -> bytes:
    """Return a map whose keys are UUIDs with the same hash in Python."""
    entries = b"".join(
        b"\x98" + (number * (2**61 - 1)).to_bytes(16, "big") + b"\x40" for number in range(count)
    )
    return b"\xd1" + struct.pack(">II", len(entries) + 4, 2 * count) + entries


TEXT = b"\0St\xc1\x07\x02\xa1\x01a\xa1\x01b" + b"\0Sw\xa1\x02hi"
ODD = {
    "user-id as text": b"\0Ss\xc0\x06\x02@\xa1\x02me" + TEXT,
    "a fourteenth field": b"\0Ss\xc0\x0f\x0e" + b"@" * 14 + TEXT,
    "annotations of null": b"\0Sr@" + TEXT,
    "a property that is no UTF-8": b"\0St\xc1\x0d\x04\xa1\x01x\xa1\x01\xff\xa1\x01a\xa1\x01b\0Sw\xa1\x02hi",
    "a property that is an array": b"\0St\xc1\x0f\x04\xa1\x01x\xe0\x03\x01\x50\x07\xa1\x01a\xa1\x01b\0Sw\xa1\x02hi",
}
PILLS = {
    # proton's encoder crashes on it, and the descriptor with eight bytes caused it to be encoded.
    "five nulls in an array that says 65,535": bytes.fromhex("00800000000000000077f0000000050000ffff40"),
    "the same, with properties": HEADER
    + PROPERTIES
    + bytes.fromhex("00800000000000000077f0000000050000ffff40"),
    "four billion nulls": HEADER + b"\0Sw\xf0\0\0\0\x05\xff\xff\xff\xff\x40",
    # proton's Python code recurses. (Broker-J itself crashes on 2,000 in a property or an annotation.)
    "nested values as the body": HEADER + PROPERTIES + b"\0Sw" + nested(2000),
    "nested values as a property": HEADER + in_map(b"\0St", b"\xa1\x01k", nested(1000)) + BODY,
    "nested values as an annotation": HEADER
    + in_map(b"\0Sr", b"\xa3\x01k", nested(1000))
    + PROPERTIES
    + BODY,
    # 20,000 of them stopped the connection's thread for half a minute.
    "keys of one hash as an annotation": HEADER
    + in_map(b"\0Sr", b"\xa3\x01k", one_hash(1500))
    + PROPERTIES
    + BODY,
    "keys of one hash as the body": HEADER + PROPERTIES + b"\0Sw" + one_hash(1500),
    # Two million took half a gigabyte when they arrived.
    "sections without end": HEADER + b"\0Su\xa0\0" * 6000 + BODY,
    "sections by name": b"\0\xa3\x10amqp:header:list\xc0\x02\x01A\0\xa3\x10amqp:data:binary\xa0\x03bad",
}


def taken(broker: Broker, queue: str, message: bytes) -> bool:
    """True if the broker accepts it; the broker may close the connection."""
    try:
        with RawAmqp(broker, timeout=20.0) as raw:
            return raw.send_encoded(queue, message)
    except AmqpError:
        return False


def ran(*arguments: str) -> str:
    """Return the output of a program, which must end with 0."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{arguments}: exit code {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout


def listed(uri: str, queue: str, options: list[str]) -> list[dict[str, object]]:
    """Return the output of `redelivery dlq list`."""
    lines = ran("redelivery.cli", "dlq", "list", uri, queue, "--output", "jsonl", *options)
    return [json.loads(line) for line in lines.splitlines()]


def test_no_message_kills_or_stops_a_consumer(
    any_broker: Broker, new_queue: Callable[[], str], tmp_path: Path
) -> None:
    """A bad message is dead-lettered, those after it are handled, and the tools list, redrive and purge it."""
    queue = new_queue()
    dead_letters, uri = f"{queue}.dead", any_broker.uri(protocol="amqp")
    numbers = itertools.count()

    def consumed(goods: int, letters: int) -> None:
        """Consume in a process of its own, as it may crash, until no message arrives."""
        log = tmp_path / f"log-{next(numbers)}"
        log.touch()
        consuming = any_broker.uri(
            protocol="amqp",
            redelivery__deadLetterDestination=dead_letters,
            redelivery__ledger=f"sqlite:///{tmp_path / 'ledger'}",
        )
        ran("integration.crashing_client", str(log), "1", "0", consuming, queue)
        assert log.read_text().count("done good") == goods
        assert len(listed(uri, dead_letters, options)) == letters

    options = [] if any_broker.name in ("activemq", "artemis", "brokerj") else ["--take"]
    sent = [what for what, message in PILLS.items() if taken(any_broker, queue, message)]
    assert taken(any_broker, queue, GOOD)
    print(f"\n{any_broker.name} takes: {'; '.join(sent)}")
    pills = len(sent)
    if not options:
        # Artemis 2.56 stores an empty message for each one that it refuses. It is handled like any other.
        refused = len(PILLS) - pills if any_broker.name == "artemis" else 0
        assert len(listed(uri, queue, options)) == pills + 1 + refused, "not handled yet"
        ran("redelivery.cli", "dlq", "summary", uri, queue)
    consumed(1, pills)
    ran("redelivery.cli", "dlq", "summary", uri, dead_letters, *options)
    for identity in {
        letter["message_id"] or letter["original_id"] for letter in listed(uri, dead_letters, options)
    }:
        # Most have no id: a consumer and the tools work without one.
        if identity is not None:
            ran("redelivery.cli", "dlq", "show", uri, dead_letters, str(identity), *options)
    again = ran("redelivery.cli", "dlq", "redrive", uri, dead_letters)
    print(again)
    assert taken(any_broker, queue, GOOD)
    consumed(1, pills)
    ran("redelivery.cli", "dlq", "purge", uri, dead_letters, "--yes")
    assert not listed(uri, dead_letters, options)


def test_the_digest_is_the_same_at_every_delivery(any_broker: Broker, new_queue: Callable[[], str]) -> None:
    """A message has the same digest at each delivery, whatever the broker changes in header and annotations."""
    queue, seen = new_queue(), list[list[tuple[bytes, bytes]]]()
    sent = [
        PILLS[name] for name in ("the same, with properties", "nested values as the body", "sections by name")
    ]
    for message in (*sent, GOOD, HEADER + PROPERTIES + in_map(b"\0St", b"\xa1\x01k", b"\xa1\x01v") + BODY):
        taken(any_broker, queue, message)
    for _ in range(3):
        with redelivery.connect(any_broker.uri(protocol="amqp")) as connection:
            consumer = connection.consumer(queue)
            found = [came for _ in range(3) if (came := consumer.receive(timeout=60)) is not None]
            deliveries = [each._delivery for each in found]
            seen.append(sorted((each.body, cast("AmqpDelivery", each).digest()) for each in deliveries))
    assert len(seen[0]) == 3
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.own_broker("reads its dead-letter queue")
def test_an_odd_message_is_its_own_dead_letter(any_broker: Broker, new_queue: Callable[[], str]) -> None:
    """A message with one wrong field reaches the handler with the others, also after a redrive."""
    sent = list[str]()
    once = redelivery.RedeliveryPolicyMap(default=redelivery.RedeliveryPolicy(maximum_redeliveries=0))
    for what, odd in ODD.items():
        # Artemis stores an empty message for each one that it refuses.
        queue = new_queue()
        uri = any_broker.uri(protocol="amqp", redelivery__deadLetterDestination=f"{queue}.dead")
        if not taken(any_broker, queue, HEADER + odd):
            continue
        sent.append(what)
        for again in range(2):
            with redelivery.connect(uri, policies=once) as connection:
                message = connection.consumer(queue).receive(timeout=60)
                assert message is not None, what
                assert (message.body, message.headers["a"]) == (b"hi", "b"), what
                message.fail("odd")
            with redelivery.dead_letters(uri, take=any_broker.name == "rabbitmq") as dead:
                (letter,) = dead.list()
                assert (letter.body, letter.headers["a"], letter.whole) == (b"hi", "b", True), what
                assert dead.purge().purged if again else dead.redrive(to=queue).redriven, what
    print(f"\n{any_broker.name} takes: {'; '.join(sent)}")
