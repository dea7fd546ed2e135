"""Tools of the tests of `examples/embedding`: their queue, requests, and the output of the programs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import redelivery
from integration.again import QUEUES
from integration.eventually import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.brokers import Broker
    from integration.program import Program

__all__ = ["GRACE", "QUEUE", "asked", "handled", "left", "protocol", "sent", "status", "uri"]

QUEUE = "orders"
# Seconds that Kubernetes gives a pod.
GRACE = 30.0


@pytest.fixture(params=["stomp", "amqp"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Each protocol."""
    return str(request.param)


@pytest.fixture
def uri(artemis: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """URI of Artemis, with an empty queue of orders."""
    request.node.stash.setdefault(QUEUES, []).append(QUEUE)
    left(artemis.uri(), QUEUE)
    yield artemis.uri()
    left(artemis.uri(), QUEUE)


def left(uri: str, queue: str, expected: int = 0) -> list[str]:
    """Receive all messages of a queue, and return their bodies; the first `expected` may take a minute each."""
    found: list[str] = []
    with redelivery.connect(uri) as connection, connection.consumer(queue) as consumer:
        while (message := consumer.receive(PATIENCE if len(found) < expected else 0.5)) is not None:
            message.accept()
            found.append(message.text)
    return found


def sent(uri: str, count: int, queue: str = QUEUE) -> list[str]:
    """Send messages, and return their bodies."""
    bodies = [f"item-{number}" for number in range(count)]
    with redelivery.connect(uri) as connection:
        for body in bodies:
            connection.send(queue, body)
    return bodies


def asked(url: str, body: bytes | None = None) -> tuple[int, str]:
    """Return status and body of an answer."""
    try:
        with urlopen(Request(url, data=body), timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def status(url: str) -> int:
    """Return the status of an answer; 0 without an answer."""
    try:
        return asked(url)[0]
    except OSError:
        return 0


def handled(program: Program) -> list[str]:
    """Return the bodies that a program reports as handled."""
    return re.findall(r"^\d+ handled (\S+)", program.output, re.MULTILINE)
