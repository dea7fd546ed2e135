"""Artemis drops a second message with a known `_AMQ_DUPL_ID`: subscribers whose messages fail have a dead letter each.

docs/measured/artemis-stomp.md, "Duplicate ids", says which ids copies have.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually
from integration.program import Program
from integration.test_dead_letters import NO_RETRY, received

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker

Consumer = tuple[dict[str, str], str, dict[str, Any]]
"""Options of a connection, destination, and arguments of `listen`."""

PROTOCOLS = ["stomp", pytest.param("amqp", marks=pytest.mark.ci("copies over AMQP have no such id"))]


def fails(name: str, message: redelivery.Message) -> None:
    """Fail, and name the subscriber."""
    raise ValueError(f"{name} {message.text}")


def died(uri: str, letters: str, consumers: list[Consumer], to: str) -> list[str]:
    """Send one message to consumers that fail; return the causes of their dead letters."""
    with ExitStack() as stack:
        open_now: list[redelivery.Connection] = []
        for number, (options, destination, arguments) in enumerate(consumers):
            added = "".join(f"&{name}={value}" for name, value in options.items())
            own = f"{uri}{added}&redelivery.deadLetterDestination={letters}"
            connection = stack.enter_context(redelivery.connect(own, policies=NO_RETRY))
            connection.listen(destination, partial(fails, str(number)), **arguments)
            connection.start()
            open_now.append(connection)
        open_now[0].send(to, "body")
        eventually(lambda: all(each.report().poisoned == 1 for each in open_now), 30)
    with redelivery.connect(f"{uri}&redelivery.deadLetterDestination={letters}.2") as connection:
        found = received(connection, letters, len(consumers))
        return sorted(str(each.headers["redeliveryCause"]) for each in found)


SUBSCRIBERS: dict[str, Callable[[str], list[Consumer]]] = {
    "plain": lambda name: [({}, f"topic://{name}", {})] * 3,
    "durable": lambda name: [
        ({"jms.clientID": f"{client}{name}"}, f"topic://{name}", {"subscription": "same"}) for client in "ABC"
    ],
    "wildcards": lambda name: [({}, each, {}) for each in (f"topic://{name}", *[f"topic://{name}.>"] * 2)],
    "temporary": lambda name: [({}, f"temp-topic://{name}", {})] * 3,
    "native": lambda name: [({}, f"native://{name}", {})] * 3,
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", SUBSCRIBERS)
def test_each_subscriber_of_a_topic_has_its_dead_letter(
    artemis: Broker, new_queue: Callable[[], str], protocol: str, kind: str
) -> None:
    """A message that fails at three subscribers leaves three dead letters, whatever the subscribers differ in."""
    name, letters = new_queue(), new_queue()
    consumers = SUBSCRIBERS[kind](name)
    to = f"topic://{name}" if kind != "temporary" else consumers[0][1]
    assert died(artemis.uri(protocol=protocol), letters, consumers, to) == [
        f"ValueError: {n} body" for n in range(3)
    ]


WORKER = """
import os, sys, redelivery
import redelivery_stomp.adapter  # before the forks, as an application server that loads the application first
uri, topic = sys.argv[1:]

def fails(message):
    raise ValueError("worker")

for _ in range(3):
    if not os.fork():
        with redelivery.connect(uri) as connection:
            connection.listen(topic, fails)
            connection.start()
            print("ready", flush=True)
            connection.wait(60)
        os._exit(0)
for _ in range(3):
    os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_each_forked_worker_has_its_dead_letter(
    artemis: Broker, new_queue: Callable[[], str], tmp_path: Path
) -> None:
    """A message that fails at the plain subscribers of three forked workers leaves three dead letters."""
    topic, letters = f"topic://{new_queue()}", new_queue()
    uri = artemis.uri(protocol="stomp")
    (tmp_path / "worker.py").write_text(WORKER)
    own = f"{uri}&redelivery.deadLetterDestination={letters}&jms.redeliveryPolicy.maximumRedeliveries=0"
    with (
        Program(["worker.py", own, topic], folder=tmp_path) as program,
        redelivery.connect(f"{uri}&redelivery.deadLetterDestination={letters}.2") as connection,
    ):
        eventually(lambda: program.output.count("ready") == 3, 60, message="three workers")
        connection.send(topic, "body")
        found = received(connection, letters, 3)
    assert [each.headers["redeliveryCause"] for each in found] == ["ValueError: worker"] * 3


@pytest.mark.ci("a redrive beside the dead letters of two subscribers")
def test_dead_letters_of_two_subscribers_are_redriven(artemis: Broker, new_queue: Callable[[], str]) -> None:
    """Both dead letters of a message that failed at two subscribers are redriven to one queue."""
    name, letters, back = new_queue(), new_queue(), new_queue()
    uri = artemis.uri(protocol="stomp")
    own = f"{uri}&redelivery.deadLetterDestination={letters}"
    with ExitStack() as stack:
        both = [stack.enter_context(redelivery.connect(own, policies=NO_RETRY)) for _ in range(2)]
        for connection in both:
            connection.listen(f"topic://{name}", partial(fails, "x"))
            connection.start()
        both[0].send(f"topic://{name}", "body")
        with redelivery.dead_letters(uri, letters, take=True) as dead:
            eventually(lambda: len(list(dead)) == 2, 30)
            assert dead.redrive(to=back).redriven == 2
    with redelivery.connect(uri) as connection:
        assert [each.text for each in received(connection, back, 2)] == ["body", "body"]


@pytest.mark.ci("a wildcard and its queue")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_message_in_two_queues_has_two_dead_letters(
    artemis: Broker, new_queue: Callable[[], str], protocol: str
) -> None:
    """A message that fails in a queue, and as the copy that a wildcard has of it, leaves two dead letters."""
    name, letters = new_queue(), new_queue()
    consumers: list[Consumer] = [
        ({}, f"queue://{name}.a", {}),
        ({"redelivery.wildcards": "address"}, f"queue://{name}.>", {}),
    ]
    found = died(artemis.uri(protocol=protocol), letters, consumers, f"queue://{name}.a")
    assert found == ["ValueError: 0 body", "ValueError: 1 body"]
