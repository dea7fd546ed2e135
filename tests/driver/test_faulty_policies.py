"""Faulty policies, classifiers, observers and deferrals: no worker ends because of them."""

from __future__ import annotations

import logging
from datetime import timedelta
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import eventually

import redelivery
from redelivery import Classifier, Defer, RedeliveryPolicy, RedeliveryPolicyMap

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message

ONCE = RedeliveryPolicyMap(default=RedeliveryPolicy(maximum_redeliveries=0))


class Faulty:
    """Policy that raises."""

    maximum_redeliveries = 1

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def redelivery_delay_ms(self, redelivery: int, random: object = None) -> int:
        raise self.error

    def delays_ms(self, n: int, random: object = None) -> list[int]:
        return [1] * n

    def worst_case_ms(self) -> int | None:
        return 1


class Unbounded(Faulty):
    """Policy whose maximum raises, too, after it was checked for being a policy."""

    checked = False

    @property
    def maximum_redeliveries(self) -> int:  # type: ignore[override]
        if self.checked:
            raise self.error
        return 1


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit(3)], ids=type)
def test_a_policy_that_raises_is_logged_once(
    twin: Twin, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """A message with a policy that raises is charged, waits a second, and is poison in the end; others go on."""
    for body in ("bad", "good", "bad"):
        twin.broker.send("q", body)
    handled: list[str] = []

    def handle(message: Message) -> None:
        handled.append(message.text)
        if message.text == "bad":
            raise ValueError("x")

    connection = twin.connect(policies=RedeliveryPolicyMap(default=Faulty(error)))
    twin.listen(connection, "q", handle)
    eventually(twin, lambda: len(handled) == 3)
    twin.advance(0.9)
    assert handled == ["bad", "good", "bad"]
    twin.advance(0.2)
    eventually(twin, lambda: len(twin.broker.dead_letters()) == 2)
    assert connection.report() == redelivery.Report(accepted=1, redelivered=2, poisoned=2)
    (line,) = errors(caplog)
    assert line.startswith("queue://q: the policy Faulty: redelivery_delay_ms(1) raised ")
    assert line.endswith("; the delay is 1 s instead")


def test_a_policy_without_a_maximum_has_the_default_one(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A maximum that cannot be read is 6, and both faults are logged once."""
    twin.broker.send("q", "bad")
    counts: list[int] = []

    def handle(message: Message) -> None:
        counts.append(message.delivery_count)
        raise ValueError("x")

    policy = Unbounded(RuntimeError("x"))
    connection = twin.connect(policies=RedeliveryPolicyMap(default=policy))
    policy.checked = True
    twin.listen(connection, "q", handle)
    twin.advance(60)
    eventually(twin, twin.broker.dead_letters)
    assert counts == [1, 2, 3, 4, 5, 6, 7]
    assert len(errors(caplog)) == 2


def test_a_policy_of_a_classifier_that_raises(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A classifier's policy that raises is handled as a destination's."""
    twin.broker.send("q", "bad")
    handled: list[int] = []

    def handle(message: Message) -> None:
        handled.append(message.delivery_count)
        if message.delivery_count == 1:
            raise ValueError("x")

    chosen = Classifier().retry(ValueError, policy=Faulty(RuntimeError("x")))
    connection = twin.connect(errors=chosen)
    twin.listen(connection, "q", handle)
    twin.advance(1.1)
    eventually(twin, lambda: connection.report().accepted)
    assert handled == [1, 2]
    assert len(errors(caplog)) == 1


@pytest.mark.parametrize("delay", [nan, -1, inf, "x", None, timedelta(-1)], ids=str)
def test_a_deferral_that_makes_no_sense(twin: Twin, delay: Any) -> None:
    """`Defer` with a wrong delay raises, which is a failure of the handler."""
    twin.broker.send("q", "bad")

    def handle(message: Message) -> None:
        raise Defer(delay)

    connection = twin.connect(policies=ONCE)
    twin.listen(connection, "q", handle)
    eventually(twin, twin.broker.dead_letters)
    (letter,) = twin.broker.dead_letters()
    assert letter.cause.startswith("ConfigurationError: Defer: delay must be ")


def test_a_deferral_that_is_broken_afterwards(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """A `Defer` whose delay was changed to a wrong one is logged, and its message follows the policy."""

    class Never(Defer):
        def __init__(self) -> None:
            Exception.__init__(self, "never")
            self.delay = nan

    for body in ("defer", "good"):
        twin.broker.send("q", body)
    handled: list[str] = []

    def handle(message: Message) -> None:
        handled.append(message.text)
        if message.text == "defer":
            raise Never

    connection = twin.connect(policies=ONCE)
    twin.listen(connection, "q", handle)
    eventually(twin, lambda: handled == ["defer", "good"])
    eventually(twin, twin.broker.dead_letters)
    assert errors(caplog) == ["errors=: Never cannot be classified; its message follows the policy"]


@pytest.mark.parametrize("delay", [1e300, 1e15, timedelta.max], ids=str)
def test_a_deferral_for_ever(twin: Twin, delay: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A message that is deferred for ever stays parked, and the log says so."""
    caplog.set_level(logging.INFO)
    twin.broker.send("q", "bad")
    twin.broker.send("q", "good")

    def handle(message: Message) -> None:
        if message.text == "bad":
            raise Defer(delay)

    connection = twin.connect()
    twin.listen(connection, "q", handle)
    eventually(twin, lambda: connection.report().accepted)
    assert connection.report() == redelivery.Report(accepted=1, deferred=1)
    (line,) = [record.getMessage() for record in caplog.records if "deferred" in record.getMessage()]
    assert line.endswith("; no redelivery for 100 years")


def test_an_observer_that_raises(twin: Twin, caplog: pytest.LogCaptureFixture) -> None:
    """An observer's exception is logged, and has no effect on messages."""

    def observe(_: object) -> None:
        raise RuntimeError("x")

    twin.broker.send("q", "a")
    connection = twin.connect(observers=[observe])
    handled: list[str] = []
    twin.listen(connection, "q", lambda message: handled.append(message.text))
    eventually(twin, lambda: connection.report().accepted)
    assert handled == ["a"]
    assert set(errors(caplog)) == {"the observer failed; that has no effect on messages"}
