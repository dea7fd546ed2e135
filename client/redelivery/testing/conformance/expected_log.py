"""One program for every pair, and the log of its deliveries: the same on all pairs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal, NamedTuple, assert_never

import redelivery
from redelivery.testing.conformance.bench import MARK, Suite

if TYPE_CHECKING:
    from redelivery import Message
    from redelivery.testing.conformance.broker_under_test import BrokerUnderTest

__all__ = ["EXPECTED_LOG", "Attempt", "AttemptLog", "attempt_log"]

Step = Literal["accept", "fail", "poison", "discard", "defer"]

PROGRAM: dict[str, tuple[Step, ...]] = {
    "fine": ("accept",),
    "once": ("fail", "accept"),
    "bad": ("fail", "fail", "fail"),
    "poison": ("poison",),
    "discard": ("discard",),
    "later": ("defer", "accept"),
    "last": ("accept",),
}
OPTIONS = {
    "jms__redeliveryPolicy__maximumRedeliveries": 2,
    "jms__redeliveryPolicy__initialRedeliveryDelay": 300,
    "jms__redeliveryPolicy__redeliveryDelay": 600,
}
DEFERRED = 0.6  # seconds
# Seconds in which the first deliveries come before the first redelivery is due; and of rounded times.
TOLERANCE, ROUNDING = 0.25, 0.002


class Attempt(NamedTuple):
    """One delivery: body, delivery count, outcome, and seconds since the first delivery."""

    body: str
    delivery_count: int
    outcome: str
    at: float


EXPECTED_LOG = [
    Attempt("fine", 1, "accepted", 0.0),
    Attempt("once", 1, "redelivered", 0.0),
    Attempt("bad", 1, "redelivered", 0.0),
    Attempt("poison", 1, "poisoned", 0.0),
    Attempt("discard", 1, "discarded", 0.0),
    Attempt("later", 1, "deferred", 0.0),
    Attempt("last", 1, "accepted", 0.0),
    Attempt("once", 2, "accepted", 0.3),
    Attempt("bad", 2, "redelivered", 0.3),
    Attempt("later", 1, "accepted", 0.6),
    Attempt("bad", 3, "poisoned", 0.9),
]
FIRST = EXPECTED_LOG[: len(PROGRAM)]


def attempt_log(broker: BrokerUnderTest) -> list[Attempt]:
    """Run the program on its own queue; return all deliveries, in order."""
    run = uuid.uuid4().hex[:8]
    queue = f"conformance.log.{run}"
    for body in PROGRAM:
        broker.send(queue, body, headers={MARK: run})
    left = {body: list(steps) for body, steps in PROGRAM.items()}
    log: list[Attempt] = []
    with redelivery.connect(broker.uri(**OPTIONS), clock=broker.clock) as connection:
        consumer = connection.consumer(queue)
        began = None
        while (message := consumer.receive(timeout=2.0 if any(left.values()) else 0.2)) is not None:
            now = broker.clock.monotonic()
            began = now if began is None else began
            steps = left[message.text]
            with message:
                _take(message, steps.pop(0) if steps else "accept")
            log.append(
                Attempt(message.text, message.delivery_count, str(message.outcome), round(now - began, 3))
            )
    return log


def _take(message: Message, step: Step) -> None:
    """Do with a message what its program says."""
    match step:
        case "accept":
            return
        case "fail":
            raise ValueError(f"{message.text} fails")
        case "poison":
            raise redelivery.Poison("at once")
        case "discard":
            raise redelivery.Discard("at once")
        case "defer":
            raise redelivery.Defer(DEFERRED)
        case _:
            assert_never(step)


class AttemptLog(Suite):
    """All pairs have the same log."""

    def test_the_attempt_log_is_the_same_everywhere(self, broker_under_test: BrokerUnderTest) -> None:
        """Each message has its expected deliveries and outcomes, none early or too late; in order if none is late."""
        log = attempt_log(broker_under_test)
        for body in PROGRAM:
            own = [each for each in log if each.body == body]
            expected = [each for each in EXPECTED_LOG if each.body == body]
            assert [each[:3] for each in own] == [each[:3] for each in expected]
            for attempt, wanted in zip(own, expected, strict=True):
                assert wanted.at - ROUNDING <= attempt.at, attempt
                # Each redelivery may be late, and with it the ones behind it.
                assert attempt.at <= wanted.at + broker_under_test.late * attempt.delivery_count, attempt
        expected_first = [each[:3] for each in FIRST]
        firsts = [each for each in log if each[:3] in expected_first]
        assert [each[:3] for each in firsts] == expected_first
        # On a machine that stands still, a redelivery may be due before the last message was handled.
        if firsts[-1].at <= TOLERANCE:
            assert log[: len(firsts)] == firsts
