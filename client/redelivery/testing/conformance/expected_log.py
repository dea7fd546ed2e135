"""One program for every pair, and the log of its deliveries: the same on all pairs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal, NamedTuple, assert_never

import redelivery
from redelivery.testing.conformance.bench import MARK, PATIENCE, Suite

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
# Seconds that two rounded times of the log may differ from the real ones.
ROUNDING = 0.001


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
        while (message := consumer.receive(PATIENCE if any(left.values()) else 0.2)) is not None:
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


def _due_times(log: list[Attempt]) -> list[float]:
    """Return when each delivery of `EXPECTED_LOG` was due after those before it in `log`; 0 for a first delivery."""
    at = {each[:3]: each.at for each in log}
    last: dict[str, Attempt] = {}
    due: list[float] = []
    for each in EXPECTED_LOG:
        before = last.get(each.body)
        due.append(0.0 if before is None else at[before[:3]] + each.at - before.at)
        last[each.body] = each
    return due


class AttemptLog(Suite):
    """All pairs have the same log."""

    def test_the_attempt_log_is_the_same_everywhere(self, broker_under_test: BrokerUnderTest) -> None:
        """The log has the expected deliveries with their outcomes, none early or more than `late` seconds late.

        First deliveries are in order, and redeliveries in that of their due times.
        """
        log = attempt_log(broker_under_test)
        expected = [each[:3] for each in EXPECTED_LOG]
        assert sorted(each[:3] for each in log) == sorted(expected)
        due = dict(zip(expected, _due_times(log), strict=True))
        for each in log:
            assert due[each[:3]] - ROUNDING <= each.at <= due[each[:3]] + broker_under_test.late, each
        # On a machine that stands still, a redelivery may be due before the last first delivery has arrived.
        firsts = expected[: len(PROGRAM)]
        assert [each[:3] for each in log if each[:3] in firsts] == firsts
        assert [each[:3] for each in log if each[:3] not in firsts] == sorted(
            expected[len(firsts) :], key=due.__getitem__
        )
