"""Work is shared: a consumer with credit N is given about N messages, whatever waits there; the others get the rest."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import redelivery
from integration.eventually import PATIENCE, eventually, settled
from integration.peers import PAIRS, fill
from integration.work import POLICY, Running
from redelivery_stomp.byte_windows import AHEAD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from integration.brokers import Broker
    from integration.conftest import Session

CREDIT = 4
CONSUMERS = 4
MESSAGES = 200
PARKED = 20
WORK = 0.01  # seconds of each message
# Messages that a broker may hand out beyond the credit: over AMQP while that changes (integration/test_conformance.py),
# over STOMP by room that was not given back yet. Artemis counts bytes over STOMP, so its windows are of about so many.
BEYOND = {"amqp": 8, "stomp": 2, "artemis-stomp": CREDIT}
# The same for one that has just handled 200 at full speed: 13, 15, 20 and 24 held, 4 times in 100 on a busy machine. At
# each flow RabbitMQ 3.10 forgets what is still on its way from the queue to the link (docs/measured/amqp.md).
BEYOND_AT_SPEED = {"rabbitmq-amqp": 48}
LONG = redelivery.RedeliveryPolicyMap(default=POLICY(initial_redelivery_delay=600.0))
SHORT = redelivery.RedeliveryPolicyMap(default=POLICY(initial_redelivery_delay=2.0))

pytestmark = pytest.mark.parametrize(
    "pair", [one for one in PAIRS if one[0] != "brokerj"], ids="-".join, indirect=True
)


@pytest.fixture
def pair(request: pytest.FixtureRequest, session: Session) -> tuple[Broker, str]:
    """Return a running broker, and the protocol."""
    name, protocol = request.param
    return session.broker(name), protocol


class Consumer:
    """One connection with one consumer. It works while its gate is open; "bad" fails, at first or always."""

    def __init__(
        self,
        pair: tuple[Broker, str],
        queue: str,
        policies: redelivery.RedeliveryPolicyMap,
        **options: object,
    ) -> None:
        broker, protocol = pair
        uri = broker.uri(protocol=protocol, redelivery__credit=CREDIT)
        self._connection = redelivery.connect(uri, policies=policies)
        self._queue = queue
        self._stack = ExitStack()
        self.gate = threading.Event()
        self.done: list[str] = []
        self.began = 0

    def _handle(self, message: redelivery.Message) -> None:
        self.began += 1
        assert self.gate.wait(PATIENCE)
        time.sleep(WORK)
        body = message.body.decode()
        if body.startswith("bad") and not message.redelivery_count:
            raise ValueError(body)
        self.done.append(body)

    def __enter__(self) -> Self:
        connection = self._stack.enter_context(self._connection)
        connection.listen(self._queue, self._handle)
        self._stack.enter_context(Running(connection))
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._stack.close()


@pytest.fixture
def consumers(pair: tuple[Broker, str], unique_queue: str) -> Iterator[list[Consumer]]:
    """Four at their gates, on a queue with 200 messages: each begins when those before it have what they get."""
    put(pair, unique_queue, "good", MESSAGES)
    with ExitStack() as stack:
        made: list[Consumer] = []
        for number in range(CONSUMERS):
            made.append(stack.enter_context(Consumer(pair, unique_queue, LONG)))
            eventually(lambda: made[-1].began, message=f"something is left for consumer {number + 1}")
        yield made


def most(pair: tuple[Broker, str]) -> int:
    """Return how many messages a consumer may be given that works at none."""
    broker, protocol = pair
    return CREDIT + BEYOND.get(f"{broker.name}-{protocol}", BEYOND[protocol])


def most_at_speed(pair: tuple[Broker, str]) -> int:
    """Return how many messages a consumer may be given that has just worked at full speed, and works at none now."""
    return CREDIT + BEYOND_AT_SPEED.get(f"{pair[0].name}-{pair[1]}", most(pair) - CREDIT)


def put(pair: tuple[Broker, str], queue: str, name: str, count: int) -> None:
    """Send so many messages of a name."""
    fill(*pair, queue, [f"{name}{number}".encode() for number in range(count)])


def test_each_gets_its_share(pair: tuple[Broker, str], consumers: list[Consumer]) -> None:
    """Four with credit 4, 200 messages of 10 ms: none has more than half as much again as an even share."""
    for each in consumers:
        each.gate.set()
    eventually(lambda: sum(len(each.done) for each in consumers) == MESSAGES, message="all are done")
    shares = [len(each.done) for each in consumers]
    print(f"{pair[0].name} {pair[1]}: shares {shares}")
    assert max(shares) <= 1.5 * MESSAGES / CONSUMERS


def test_who_waits_holds_no_more_than_the_credit(pair: tuple[Broker, str], consumers: list[Consumer]) -> None:
    """Three whose handlers do not end keep about 4 each; the fourth does all the others."""
    *busy, free = consumers
    free.gate.set()
    left = len(busy) * most(pair)
    eventually(lambda: len(free.done) >= MESSAGES - left, message="it does what the others do not hold")
    print(f"{pair[0].name} {pair[1]}: held by three {MESSAGES - settled(lambda: len(free.done))}")


def test_parked_messages_take_nothing_from_anybody(pair: tuple[Broker, str], unique_queue: str) -> None:
    """One with credit 4 has 20 that wait for ten minutes: it goes on, and while it is busy another gets the rest."""
    put(pair, unique_queue, "bad", PARKED)
    # There room is made for several times what is parked, so that few subscriptions do (docs/measured/stomp.md, n).
    ahead = round(AHEAD * PARKED) if (pair[0].name, pair[1]) == ("artemis", "stomp") else 0
    with Consumer(pair, unique_queue, LONG) as first:
        first.gate.set()
        eventually(lambda: first.began == PARKED, message="all have failed")
        put(pair, unique_queue, "good", MESSAGES)
        eventually(lambda: len(first.done) == MESSAGES, message="it goes on beside them")
        first.gate.clear()
        with Consumer(pair, unique_queue, LONG) as second:
            second.gate.set()
            put(pair, unique_queue, "more", MESSAGES)
            eventually(
                lambda: len(second.done) >= MESSAGES - most_at_speed(pair) - ahead,
                message="the other has the rest",
            )
            held = MESSAGES - settled(lambda: len(second.done))
            print(f"{pair[0].name} {pair[1]}: held beside {PARKED} parked {held}")


def test_room_is_given_back_when_nothing_is_parked(pair: tuple[Broker, str], unique_queue: str) -> None:
    """When the 20 are done, the consumer holds what its credit says."""
    if (pair[0].name, pair[1]) == ("rabbitmq", "stomp"):
        pytest.skip("over STOMP RabbitMQ takes nothing back at the end of a subscription: room stays")
    put(pair, unique_queue, "bad", PARKED)
    with Consumer(pair, unique_queue, SHORT) as first:
        first.gate.set()
        eventually(lambda: len(first.done) == PARKED, message="all are done at the second attempt")
        put(pair, unique_queue, "good", MESSAGES)
        eventually(lambda: len(first.done) == PARKED + MESSAGES, message="and others")
        first.gate.clear()
        with Consumer(pair, unique_queue, LONG) as second:
            second.gate.set()
            put(pair, unique_queue, "more", MESSAGES)
            eventually(
                lambda: len(second.done) >= MESSAGES - most_at_speed(pair),
                message="the other has the rest",
            )
            held = MESSAGES - settled(lambda: len(second.done))
            print(f"{pair[0].name} {pair[1]}: held after {PARKED} parked {held}")


def test_a_group_that_waits_holds_up_nobody(pair: tuple[Broker, str], unique_queue: str) -> None:
    """Its first message waits for ten minutes; the group, and all that is behind it, goes on."""
    broker, protocol = pair
    with Consumer(pair, unique_queue, LONG) as first, Consumer(pair, unique_queue, LONG) as second:
        first.gate.set()
        second.gate.set()
        with redelivery.connect(broker.uri(protocol=protocol)) as connection:
            for number in range(MESSAGES):
                text = "bad" if number == 0 else f"good{number}"
                group = None if number % 4 == 3 else f"group{number % 3}"
                connection.send(unique_queue, text.encode(), group=group)
        eventually(lambda: len(first.done) + len(second.done) == MESSAGES - 1, message="all others are done")
        print(f"{broker.name} {protocol}: {len(first.done)} and {len(second.done)} beside a group that waits")
