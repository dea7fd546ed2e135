"""A thousand messages of ten destinations, and ten places for their dead letters: each is where it belongs, once."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.matrix import named, some

import redelivery
from integration.eventually import eventually, gathered
from integration.peers import PAIRS
from integration.work import Running

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker
    from integration.conftest import Client

EACH = 100  # messages of one destination
TWICE: dict[str, Any] = {
    "jms__redeliveryPolicy__maximumRedeliveries": 1,
    "jms__redeliveryPolicy__initialRedeliveryDelay": 20,
}
WAYS = [(pair, way) for pair in PAIRS for way in ("uri", "program")]
IN_CI = [
    (("artemis", "amqp"), "program"), (("artemis", "stomp"), "uri"), (("rabbitmq", "amqp"), "uri"),
    (("activemq", "stomp"), "program"),
]  # fmt: skip


class Invalid(Exception):
    """A failure whose place is that of its kind."""


class Forbidden(Exception):
    """Another one."""


class Ten:
    """Ten destinations below a name, and the ten places of their dead letters."""

    def __init__(self, run: str) -> None:
        """Name the destinations: two of their own, two of a pattern, four individual ones, two of their consumers."""
        self.run = run
        self.queues = [f"{run}.{name}" for name in ("a", "b", "p.a", "p.b", "c", "d", "e", "f", "g", "h")]
        self.chosen = self.queues[-2:]

    def place(self, queue: str, kind: type[Exception]) -> str:
        """Return where a failure of this kind belongs."""
        if kind is not ValueError:
            return f"{self.run}.{kind.__name__}"
        name = queue.removeprefix(f"{self.run}.")
        if queue in self.chosen:
            return f"{self.run}.chosen"
        if name.startswith("p."):
            return f"{self.run}.pattern"
        return f"{self.run}.own.{name}" if name in "ab" else f"{self.run}.DEAD.{queue}"

    @staticmethod
    def kind(number: int) -> type[Exception]:
        """Return how the message of this number fails: a tenth each in the two ways that have a place."""
        return {3: Invalid, 7: Forbidden}.get(number % 10, ValueError)

    def map(self) -> redelivery.DeadLetterMap:
        """Return the map of these places."""
        to = redelivery.DeadLetterStrategy
        return redelivery.DeadLetterMap(
            {
                **{f"{self.run}.{name}": to(destination=f"{self.run}.own.{name}") for name in "ab"},
                f"{self.run}.p.>": to(destination=f"{self.run}.pattern"),
            },
            default=to(strategy="individual", queue_prefix=f"{self.run}.DEAD."),
        )

    def options(self) -> dict[str, Any]:
        """Return the same map as options of a URI."""
        entry = "redelivery__deadLetterMap__{}__destination"
        return {
            "redelivery__deadLetterStrategy": "individual", "redelivery__queuePrefix": f"{self.run}.DEAD.",
            **{entry.format(f"{self.run}.{name}"): f"{self.run}.own.{name}" for name in "ab"},
            entry.format(f"{self.run}.p.>"): f"{self.run}.pattern",
        }  # fmt: skip

    def fail(self, message: redelivery.Message) -> None:
        """Fail as the message's number says."""
        raise self.kind(int(message.text.rpartition(" ")[2]))(message.text)

    def expected(self) -> dict[str, Counter[tuple[str, str, str]]]:
        """Return body, cause and origin of each dead letter, by its place."""
        found: dict[str, Counter[tuple[str, str, str]]] = {}
        for queue in self.queues:
            for number in range(EACH):
                body, kind = f"{queue} {number}", self.kind(number)
                cause = f"{kind.__name__}: {body}"
                found.setdefault(self.place(queue, kind), Counter())[body, cause, f"queue://{queue}"] += 1
        return found


@pytest.mark.parametrize(
    ("peer", "said"),
    some(WAYS, [], ci=IN_CI, why="1,000 dead letters, half a minute on some brokers", spread=True),
    ids=named,
    indirect=["peer"],
)
def test_each_letter_is_in_its_place(
    peer: tuple[Broker, str], said: str, client_for: Callable[[Broker, str], Client], unique_queue: str
) -> None:
    """Of 1,000 messages each leaves one dead letter, in the place of its exception, consumer or destination."""
    broker, protocol = peer
    ten, began = Ten(unique_queue), time.monotonic()
    expected = ten.expected()
    assert len(expected) == len(ten.queues) == 10
    rules = redelivery.Classifier()
    for kind in (Invalid, Forbidden):
        rules = rules.poison(kind, to=ten.place("", kind))
    options = ten.options() if said == "uri" else {}
    places = ten.map() if said == "program" else None
    uri = broker.uri(protocol=protocol, **TWICE, **options)
    with redelivery.connect(uri, dead_letters=places, errors=rules) as connection:
        for queue in ten.queues:
            chosen = f"{unique_queue}.chosen" if queue in ten.chosen else None
            connection.listen(queue, ten.fail, dead_letter=chosen)
        connection.start()
        with Running(connection):
            for number in range(EACH):
                for queue in ten.queues:
                    connection.send(queue, f"{queue} {number}")
            eventually(lambda: connection.report().poisoned == 10 * EACH, 240, message="1,000 dead letters")
        report = connection.report()
    assert (report.poisoned, report.redelivered, report.discarded) == (10 * EACH, 8 * EACH, 0)
    client = client_for(broker, protocol)
    for place, letters in expected.items():
        found = gathered(partial(client.drain, place), letters.total())
        told = ("redeliveryCause", "redeliveryOriginalDestination")
        assert letters == Counter(
            ((one.body or b"").decode(), *(str(one.properties[name]) for name in told)) for one in found
        ), place
    print(
        f"\n{broker.name} over {protocol}: {10 * EACH} letters, 10 places, {time.monotonic() - began:.0f} s"
    )
    assert [client.drain(queue, timeout=0.1) for queue in ten.queues] == [[]] * 10
