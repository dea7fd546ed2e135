"""Dead letters: by each route there is exactly one, and its source is empty."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, get_args

import pytest

import redelivery
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterRoute
from redelivery.testing.conformance.bench import Suite, as_text, refused

if TYPE_CHECKING:
    from redelivery import Connection, Consumer
    from redelivery.core.capabilities import Capabilities
    from redelivery.testing.conformance.bench import Bench
    from redelivery.testing.conformance.broker_under_test import Found

__all__ = ["DeadLetters", "can_acknowledge", "check_copy", "is_native"]

NONE = redelivery.RedeliveryPolicy(maximum_redeliveries=0)
HEADERS = {"colour": "red: ü", "empty": ""}


def can_acknowledge(capabilities: Capabilities) -> bool:
    """True if `deadLetter=ack` is possible.

    Some brokers keep poison only if they are configured for it.
    """
    return capabilities.poison_persistent or getattr(capabilities, "poison_on_request", False)


def is_native(route: DeadLetterRoute, capabilities: Capabilities, *, persistent: bool) -> bool:
    """True if a message leaves by the broker's own acknowledgement, to its own dead-letter queue."""
    kept = capabilities.poisons(persistent=persistent, asked=route == "ack")
    if route == "ack":
        return kept or getattr(capabilities, "poison_on_request", False)
    return kept and route == "auto" and capabilities.own_poison == "first"


def check_copy(letter: Found, source: str, *, cause: str, count: int, persistent: bool = True) -> None:
    """Check that a copy has its cause, its delivery count, and its original destination."""
    headers = letter.headers
    assert headers["redeliveryCause"] == cause
    assert as_text(headers["redeliveryCount"]) == str(count)
    assert headers["redeliveryOriginalDestination"] == f"queue://{source}"
    assert headers["redeliveryOriginalId"]
    mode = "PERSISTENT" if persistent else "NON_PERSISTENT"
    assert headers["redeliveryOriginalDeliveryMode"] == mode
    if cause != "expired":
        first, last = (
            datetime.fromisoformat(headers[f"redelivery{which}Failure"]) for which in ("First", "Last")
        )
        assert first <= last
        assert last.tzinfo is not None


def fail_all(bench: Bench, connection: Connection, deliveries: int) -> None:
    """Handle this number of deliveries; each fails, and no further one arrives."""
    consumer = connection.consumer(bench.queue)
    for _ in range(deliveries):
        bench.pull(consumer).fail(ValueError("a: b\\c"))
    bench.nothing(consumer)


class DeadLetters(Suite):
    """Routes, destinations and properties of dead letters."""

    @pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
    @pytest.mark.parametrize("route", get_args(DeadLetterRoute))
    def test_each_route_takes_poison_away(
        self, bench: Bench, route: DeadLetterRoute, *, persistent: bool
    ) -> None:
        """A poison message leaves one whole dead letter, and nothing on the queue.

        `discard` leaves none; `ack` may be refused.
        """
        connection = bench.connect(redelivery__deadLetter=route)
        if route == "ack" and not can_acknowledge(bench.capabilities):
            refused(lambda: connection.consumer(bench.queue), "redelivery.deadLetter=ack")
            return
        bench.send("bad", headers=HEADERS, persistent=persistent)
        persistent = persistent or not bench.broker.persistence
        fail_all(bench, connection, 3)
        if route == "discard":
            assert bench.left() == []
            assert bench.letters() == []
            assert connection.report() == redelivery.Report(redelivered=2, discarded=1)
            return
        (letter,) = bench.buried(connection, 1)
        assert (letter.body, letter.kind) == (b"bad", "text")
        assert HEADERS.items() <= letter.headers.items()
        native = is_native(route, bench.capabilities, persistent=persistent)
        assert letter.persistent or (native and not persistent), "a copy is always kept"
        if not native:
            check_copy(letter, bench.queue, cause="ValueError: a: b\\c", count=3, persistent=persistent)
        assert bench.left() == []
        assert connection.report() == redelivery.Report(redelivered=2, poisoned=1)

    @pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])
    @pytest.mark.parametrize("route", ["auto", "ack", "forward"])
    def test_each_subscriber_of_a_topic_leaves_a_letter(
        self, bench: Bench, route: DeadLetterRoute, *, durable: bool
    ) -> None:
        """Two subscribers of a topic fail with one message: there are two dead letters.

        With `ack` only where the broker keeps poison without being configured for it.
        """
        if route == "ack" and not bench.capabilities.poison_persistent:
            return
        topic = f"topic://{bench.queue}"
        subscribers: list[tuple[Connection, Consumer]] = []
        for name in ("a", "b"):
            connection = bench.connect(
                NONE, redelivery__deadLetter=route, jms__clientID=f"{name}-{bench.run}"
            )
            subscription = name if durable else None
            if ("durable" if durable else "topics") not in bench.broker.features:
                refused(partial(connection.consumer, topic, subscription=subscription), subscription or topic)
                return
            subscribers.append((connection, connection.consumer(topic, subscription=subscription)))
        bench.post(bench.connect(), "bad", topic)
        for connection, consumer in subscribers:
            bench.pull(consumer).fail("no")
            bench.settled(connection, 1)
        bench.leave()
        letters = bench.eventually(lambda: bench.letters() if len(bench.letters()) > 1 else [], "two letters")
        assert [letter.text for letter in letters] == ["bad", "bad"]

    def test_a_destination_of_ones_own(self, bench: Bench) -> None:
        """`redelivery.deadLetterDestination` gets the copies; the broker's own queue gets none."""
        own = f"{bench.queue}.graveyard"
        connection = bench.connect(NONE, redelivery__deadLetterDestination=own)
        bench.send("bad")
        fail_all(bench, connection, 1)
        (letter,) = bench.buried(connection, 1, own)
        check_copy(letter, bench.queue, cause="ValueError: a: b\\c", count=1)
        assert bench.letters() == []
        assert bench.left() == []

    def test_each_destination_has_its_own_place(self, bench: Bench) -> None:
        """A map gives each destination its dead-letter destination; a consumer, or an exception, has its own first."""
        names = [f"{bench.queue}.{each}" for each in ("mapped", "alone", "other")]
        mapped, alone, other = names
        chosen, invalid = f"{bench.queue}.chosen", f"{bench.queue}.invalid"
        places = redelivery.DeadLetterMap(
            {mapped: redelivery.DeadLetterStrategy(destination=f"{mapped}.dead")},
            default=redelivery.DeadLetterStrategy(
                strategy="individual", queue_prefix="", queue_suffix=".dead"
            ),
        )
        rules = redelivery.Classifier().poison(KeyError, to=invalid)
        connection = bench.connect(NONE, dead_letters=places, errors=rules)
        for name in (mapped, alone, other, mapped):
            bench.send(name, name)
        first = connection.consumer(mapped)
        bench.pull(first).fail(ValueError("a"))
        bench.pull(first).fail(KeyError("b"))
        bench.pull(connection.consumer(alone, dead_letter=chosen)).fail(ValueError("c"))
        bench.pull(connection.consumer(other)).fail(ValueError("d"))
        expected = [
            (f"{mapped}.dead", mapped, "ValueError: a"), (invalid, mapped, "KeyError: 'b'"),
            (chosen, alone, "ValueError: c"), (f"{other}.dead", other, "ValueError: d"),
        ]  # fmt: skip
        bench.eventually(lambda: connection.report().poisoned == 4, "4 poisoned")
        for place, name, cause in expected:
            (letter,) = bench.left(place, 1)
            assert letter.body == name.encode()
            check_copy(letter, name, cause=cause, count=1)
        assert bench.letters() == []

    def test_a_consumer_of_the_dead_letters_names_another_destination(self, bench: Bench) -> None:
        """A consumer of the dead-letter queue needs another destination for its own dead letters.

        Without it, its poison would circulate, and it is refused.
        """
        own, other = f"{bench.queue}.graveyard", f"{bench.queue}.second"
        connection = bench.connect(NONE, redelivery__deadLetterDestination=own)
        refused(lambda: connection.consumer(own), own, "redelivery.deadLetterDestination")
        bench.send("bad", own)
        connection = bench.connect(NONE, redelivery__deadLetterDestination=other)
        bench.pull(connection.consumer(own)).fail("again")
        (letter,) = bench.buried(connection, 1, other)
        check_copy(letter, own, cause="again", count=1)

    def test_a_copy_keeps_what_the_message_had(self, bench: Bench) -> None:
        """A copy keeps priority, correlation id and properties.

        It never expires unless an option says so.
        """
        connection = bench.connect(NONE, redelivery__deadLetter="forward")
        identity = bench.post(
            connection, "bad", headers=HEADERS, priority=7, correlation_id="c: 1", ttl=60, reply_to="answers"
        )
        fail_all(bench, connection, 1)
        (letter,) = bench.buried(connection, 1)
        check_copy(letter, bench.queue, cause="ValueError: a: b\\c", count=1)
        assert {**HEADERS, "redeliveryId": identity}.items() <= letter.headers.items()
        assert (letter.priority, letter.correlation_id, letter.expires_at) == (7, "c: 1", None)

    def test_a_copy_may_expire(self, bench: Bench) -> None:
        """`redelivery.deadLetterExpiration` is the time until a copy expires."""
        connection = bench.connect(
            NONE, redelivery__deadLetter="forward", redelivery__deadLetterExpiration=60_000
        )
        bench.send("bad")
        fail_all(bench, connection, 1)
        (letter,) = bench.buried(connection, 1)
        assert letter.expires_at is not None
        assert 0 < letter.expires_at - bench.clock.time() <= 60

    @pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
    def test_poison_that_nobody_wants(self, bench: Bench, *, persistent: bool) -> None:
        """`processNonPersistent=false` drops non-persistent poison, and counts it as discarded."""
        connection = bench.connect(NONE, redelivery__processNonPersistent=False)
        bench.send("bad", persistent=persistent)
        persistent = persistent or not bench.broker.persistence
        fail_all(bench, connection, 1)
        if persistent:
            assert len(bench.buried(connection, 1)) == 1
        assert bench.left() == []
        assert len(bench.letters()) == persistent
        assert connection.report() == redelivery.Report(poisoned=persistent, discarded=not persistent)

    def test_many_poison_messages_leave_at_once(self, bench: Bench) -> None:
        """Fifty poison messages have a dead letter each, none twice."""
        connection = bench.connect(NONE)
        for number in range(50):
            bench.send(str(number), persistent=number % 2 == 0)
        fail_all(bench, connection, 50)
        letters = bench.buried(connection, 50)
        assert sorted(int(letter.text) for letter in letters) == list(range(50))
        assert bench.left() == []
