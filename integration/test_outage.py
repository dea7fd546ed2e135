"""A service that handlers need is down: the breaker keeps the messages.

REDELIVERY_OUTAGE_MESSAGES and REDELIVERY_OUTAGE_SECONDS: 1,000 messages and 6 s, or 5,000 and 60 s in the full run.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.tiers import amount

import redelivery
from integration.eventually import eventually
from integration.peers import PAIRS, fill
from integration.work import Running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from integration.brokers import Broker
    from integration.conftest import Session

MESSAGES = amount("REDELIVERY_OUTAGE_MESSAGES", quick=1000, ci=1000, full=5000)
OUTAGE = amount("REDELIVERY_OUTAGE_SECONDS", quick=6, ci=6, full=60)
WORKERS = 4
# Seconds after an outage in which its last probe runs, and all other messages are handled.
LATE = 30.0
DEFAULT_FAILURES = 200

# Over STOMP no credit can be withdrawn, RabbitMQ may count a release, and Classic hands out 200 unacknowledged messages
# of a queue: there the first consumer may keep all.
GIVE_BACK = [("artemis", "amqp"), ("brokerj", "amqp")]
# Classic: 900 bad ones do not fit into those 200.
MANY_AT_ONCE = [pair for pair in PAIRS if pair[0] != "activemq"]

pytestmark = pytest.mark.ci("an outage beside 1,000 messages")


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest, session: Session) -> tuple[Broker, str]:
    """Return a running broker, and the protocol."""
    name, protocol = request.param
    return session.broker(name), protocol


class DatabaseDown(ConnectionError):
    """Error of a handler's database driver."""


class Service:
    """A handler that needs a service, and counts its failed calls and the handled messages."""

    def __init__(self) -> None:
        """Begin with the service down."""
        self.up = threading.Event()
        self.vain = 0
        self.done: Counter[str] = Counter()
        self.last = 0.0
        self._lock = threading.Lock()

    def __call__(self, message: redelivery.Message) -> None:
        """Handle one delivery."""
        time.sleep(0.001)
        with self._lock:
            if not self.up.is_set():
                self.vain += 1
                raise DatabaseDown("connection refused")
            self.done[message.text] += 1
            self.last = time.monotonic()


def filled(pair: tuple[Broker, str], queue: str, messages: int) -> Sequence[str]:
    """Put messages on a queue."""
    names = [f"order {number}" for number in range(messages)]
    fill(*pair, queue, [name.encode() for name in names])
    return names


def consuming(stack: ExitStack, uri: str, queue: str, service: Service) -> Running:
    """Start a consumer with default options."""
    connection = stack.enter_context(redelivery.connect(uri))
    connection.listen(queue, service, workers=WORKERS)
    return stack.enter_context(Running(connection))


def test_an_outage_dead_letters_nothing(pair: tuple[Broker, str], unique_queue: str) -> None:
    """An outage with default options dead-letters no message, charges few failures, and all are handled soon after."""
    names, service = filled(pair, unique_queue, MESSAGES), Service()
    with ExitStack() as stack:
        running = consuming(stack, pair[0].uri(protocol=pair[1]), unique_queue, service)
        eventually(lambda: service.vain >= DEFAULT_FAILURES, message="everything fails")
        time.sleep(OUTAGE)
        service.up.set()
        up = time.monotonic()
        eventually(lambda: len(service.done) == MESSAGES, LATE, message="all is done soon after")
    report = running.report
    assert report is not None
    print(
        f"{pair[0].name} {pair[1]}: {service.vain} calls in vain, all done {service.last - up:.1f} s after; {report}"
    )
    assert report.poisoned == report.unconfirmed == report.set_aside == 0
    assert service.done == Counter(names), "each message is done once"
    assert report.redelivered < DEFAULT_FAILURES, (
        "no failure is charged that came after the breaker had opened"
    )
    assert report.redelivered + report.spared == service.vain


@pytest.mark.full("for comparison only")
def test_the_same_outage_without_a_breaker(pair: tuple[Broker, str], unique_queue: str) -> None:
    """An outage with the breaker off dead-letters messages by their policy."""
    filled(pair, unique_queue, MESSAGES)
    service = Service()
    with ExitStack() as stack:
        uri = pair[0].uri(protocol=pair[1], redelivery__breaker="off")
        running = consuming(stack, uri, unique_queue, service)
        time.sleep(OUTAGE)
        service.up.set()
    assert running.report is not None
    print(f"{pair[0].name} {pair[1]}, breaker off: {service.vain} calls in vain; {running.report}")
    assert running.report.poisoned > 0


@pytest.mark.parametrize("pair", GIVE_BACK, ids="-".join, indirect=True)
def test_another_process_takes_over(pair: tuple[Broker, str], unique_queue: str) -> None:
    """Messages that were not handled go to a consumer whose service is up, if a release is not counted (AMQP)."""
    broker, protocol = pair
    filled(pair, unique_queue, MESSAGES)
    down, healthy = Service(), Service()
    healthy.up.set()
    with ExitStack() as stack:
        consuming(stack, broker.uri(protocol=protocol), unique_queue, down)
        eventually(lambda: down.vain >= DEFAULT_FAILURES, message="everything fails here")
        consuming(stack, broker.uri(protocol=protocol), unique_queue, healthy)
        # Failed messages stay here, as only this process has their counts; and those of the first rounds of tries.
        eventually(
            lambda: len(healthy.done) >= MESSAGES - DEFAULT_FAILURES - 100,
            LATE,
            message="the other has the rest",
        )
        print(f"{broker.name} {protocol}: the other has done {len(healthy.done)} of {MESSAGES}")
        down.up.set()
        eventually(lambda: len(healthy.done) + len(down.done) == MESSAGES, LATE, message="all is done")


@pytest.mark.full("a minute for each pair")
@pytest.mark.parametrize("pair", MANY_AT_ONCE, ids="-".join, indirect=True)
def test_bad_messages_in_one_go_are_passed(pair: tuple[Broker, str], unique_queue: str) -> None:
    """Good messages behind 900 bad ones are handled within a minute, with default options; the bad ones are dead later.

    On ActiveMQ Classic, which hands out 200 unacknowledged messages of a queue, it takes the ten minutes.
    """
    names = [f"bad {number}" for number in range(900)] + [f"good {number}" for number in range(20)]
    fill(*pair, unique_queue, [name.encode() for name in names])
    done: dict[str, float] = {}

    def handle(message: redelivery.Message) -> None:
        if message.text.startswith("bad"):
            raise DatabaseDown("refused")
        done.setdefault(message.text, time.monotonic())

    with ExitStack() as stack:
        connection = stack.enter_context(redelivery.connect(pair[0].uri(protocol=pair[1])))
        connection.listen(unique_queue, handle, workers=WORKERS)
        began = time.monotonic()
        running = stack.enter_context(Running(connection))
        eventually(lambda: len(done) == 20, 75.0, message="the good ones are handled")
        print(f"{pair[0].name} {pair[1]}: the last good one after {max(done.values()) - began:.1f} s")
        eventually(lambda: connection.report().poisoned == 900, LATE, message="the bad ones are dead")
    assert running.report is not None
    print(f"{pair[0].name} {pair[1]}: {running.report}")


def reached(service: Service, many: int) -> bool:
    """True if this number of messages is handled."""
    return len(service.done) >= many


def test_a_pause_in_the_middle_of_arrivals_ends_with_all(pair: tuple[Broker, str], unique_queue: str) -> None:
    """A consumer that is paused and resumed three times during arrivals gets all messages, each once."""
    names, service = filled(pair, unique_queue, 3000), Service()
    service.up.set()
    with ExitStack() as stack:
        connection = stack.enter_context(redelivery.connect(pair[0].uri(protocol=pair[1])))
        connection.listen(unique_queue, service)
        connection.pause()
        running = stack.enter_context(Running(connection))
        for many in (1, 100, 400):
            connection.resume()
            eventually(partial(reached, service, many), interval=0.001, message="messages are handled")
            connection.pause()
            # Messages on the wire arrive, and are released if that is possible.
            eventually(lambda: connection.report().running == 0)
            stands = len(service.done)
            time.sleep(0.2)
            assert len(service.done) == stands, "nothing is dispatched while it is paused"
        connection.resume()
        eventually(lambda: len(service.done) == 3000, LATE, message="all are handled after the last resume")
    assert running.report is not None
    print(f"{pair[0].name} {pair[1]}: {running.report}")
    # Each pause may release the messages that are here and on the wire, but no message again and again.
    assert running.report.released <= 3 * 2 * 1000
    assert service.done == Counter(names)
