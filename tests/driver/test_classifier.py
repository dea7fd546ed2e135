"""Classifiers: rules by the type of an exception, on threads and on a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import Classifier, ConfigurationError, Defer, Discard, Poison, RedeliveryPolicy
from redelivery.core.capabilities import Capabilities
from redelivery.core.delivery import Delivery
from redelivery.core.destination import Destination
from redelivery.core.events import Deferred, Discarded, Failed, Poisoned
from redelivery.driver.consumer.plan import planned

if TYPE_CHECKING:
    from tests.driver.twins import Twin

QUICK = RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=0.1, redelivery_delay=0.2)
PATIENT = RedeliveryPolicy(maximum_redeliveries=5, initial_redelivery_delay=10, redelivery_delay=20)
POLICIES = redelivery.RedeliveryPolicyMap(default=QUICK)


class Busy(OSError):
    """Failure by a busy service."""


class BusyDisk(Busy):
    """Failure with its parent's rule, unless it has its own."""


class AlreadyDone(Exception):
    """Failure of an action that was done before."""


class Mixed(BusyDisk, ValueError):
    """Exception with two parents that have rules."""


class OwnPoison(Poison):
    """Poison of the application's own type."""


def rules() -> Classifier:
    return Classifier().poison(ValueError).retry(OSError, policy=PATIENT).discard(AlreadyDone).defer(Busy, 3)


def told(error: Exception, errors: Classifier | None = None) -> tuple[str, Any, str]:
    """Return an exception's verdict, its delay or policy, and its cause."""
    event = (rules() if errors is None else errors).event_for(Delivery(1, 1, b""), error)
    match event:
        case Failed():
            return "retry", event.policy, event.cause.text
        case Deferred():
            return "defer", event.delay, event.cause.text
        case Poisoned():
            return "poison", None, event.cause.text
        case Discarded():
            return "discard", None, event.cause.text
        case _:
            raise AssertionError(event)


def test_the_most_specific_class_decides() -> None:
    """The first class along the MRO with a rule decides; no type is special by default."""
    vectors: list[tuple[Exception, tuple[str, Any]]] = [
        (ValueError("no"), ("poison", None)),
        (UnicodeError("no"), ("poison", None)),
        (OSError("no"), ("retry", PATIENT)),
        (ConnectionError("no"), ("retry", PATIENT)),
        (Busy("no"), ("defer", 3.0)),
        (BusyDisk("no"), ("defer", 3.0)),
        (Mixed("no"), ("defer", 3.0)),
        (AlreadyDone("no"), ("discard", None)),
        (KeyError("no"), ("retry", None)),
        (Defer(7), ("defer", 7.0)),
        (Discard(), ("discard", None)),
        (OwnPoison("no"), ("poison", None)),
    ]
    for error, expected in vectors:
        assert told(error)[:2] == expected, repr(error)
    for kind in (ValueError, OSError, Busy, AlreadyDone, TypeError):
        assert told(kind("no"), Classifier()) == ("retry", None, f"{kind.__name__}: no")


def test_the_last_rule_of_a_type_counts() -> None:
    """The last rule of a type counts; a rule for `Exception` does not change steering exceptions."""
    errors = rules().retry(ValueError).poison(Exception, Busy)
    vectors = {ValueError: "retry", Busy: "poison", KeyError: "poison", AlreadyDone: "discard"}
    assert {kind: told(kind("x"), errors)[0] for kind in vectors} == vectors
    assert told(Discard(), errors)[0] == "discard"
    assert told(OwnPoison("x"), errors.retry(OwnPoison))[0] == "retry"


def test_of_a_group_the_gravest_decides() -> None:
    """In a group Poison comes first, then a failure, the longest deferral, a discard; its text is the cause."""
    value, busy, done, os, key = ValueError("v"), Busy("b"), AlreadyDone("d"), OSError("o"), KeyError("k")
    vectors: list[tuple[list[Exception], tuple[str, Any, str]]] = [
        ([done, busy, os, value], ("poison", None, "ValueError: v")),
        ([done, busy, os], ("retry", PATIENT, "OSError: o")),
        ([key, os], ("retry", None, "KeyError: 'k'")),
        ([done, busy], ("defer", 3.0, "Busy: b")),
        ([Defer(2), busy, Defer(9, "nine")], ("defer", 9.0, "Defer: nine")),
        ([done, AlreadyDone("e")], ("discard", None, "AlreadyDone: d")),
        ([done, ExceptionGroup("inner", [busy, ExceptionGroup("", [value])])], ("poison", None, "ValueError: v")),
    ]  # fmt: skip
    for leaves, expected in vectors:
        assert told(ExceptionGroup("tasks", leaves)) == expected, leaves
    assert told(ExceptionGroup("tasks", [key, Poison("now")]), Classifier())[0] == "poison"
    own = rules().discard(ExceptionGroup)
    assert told(ExceptionGroup("tasks", [value]), own)[0] == "discard", "a rule for the group itself"
    deep: ExceptionGroup[Any] = ExceptionGroup("", [value])
    for _ in range(5000):
        deep = ExceptionGroup("", [deep])
    assert told(deep)[0] == "poison"


def test_what_makes_no_sense_is_refused() -> None:
    """A rule is refused for a non-exception, a steering exception, no type, and without a policy or delay."""
    wrong: list[tuple[Any, str]] = [
        (lambda: Classifier().poison(), r"poison\(\) needs an exception type"),
        (lambda: Classifier().poison(ValueError("x")), "types of exceptions.*give the class itself"),  # type: ignore[arg-type]
        (lambda: Classifier().retry(KeyboardInterrupt), "types of exceptions.*ends the program"),
        (lambda: Classifier().trip((OSError, KeyError)), "types of exceptions.*give each type by itself"),  # type: ignore[arg-type]
        (lambda: Classifier().discard(Poison), "redelivery.Poison decides by itself; leave it out"),
        (lambda: Classifier().retry(OSError, policy=3), "must be a redelivery policy"),  # type: ignore[arg-type]
        (lambda: Classifier().defer(OSError, -1), "defer: delay"),
        (lambda: redelivery.connect("memory://x", errors=Classifier), "did you mean redelivery.Classifier()"),  # type: ignore[arg-type]
    ]
    for make, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            make()


@pytest.mark.parametrize("way", ["handler", "with", "fail"])
def test_one_count_over_all_policies(twin: Twin, way: str) -> None:
    """All failures use one count; the policy of each failure gives the maximum and the delay."""
    connection = twin.connect(policies=POLICIES, errors=rules())
    script = iter([OSError("1"), KeyError("2"), OSError("3"), OSError("4"), KeyError("5")])
    seen: list[tuple[int, float]] = []
    began = twin.clock.monotonic()

    def handle(message: redelivery.Message) -> None:
        seen.append((message.delivery_count, round(twin.clock.monotonic() - began, 3)))
        if way == "fail":
            message.fail(next(script))
        elif way == "with":
            with message:
                raise next(script)
        else:
            raise next(script)

    twin.listen(connection, "orders", handle)
    twin.broker.send("orders", "body")
    twin.advance(3600)
    # 10 s before redelivery 1, then QUICK's 0.2 s, then PATIENT's 20 s twice; the fifth failure passes QUICK's maximum.
    assert seen == [(1, 0.0), (2, 10.0), (3, 10.2), (4, 30.2), (5, 50.2)]
    (letter,) = twin.broker.dead_letters()
    assert (letter.cause, letter.count) == ("KeyError: '5'", 5)
    assert twin.call(connection.drain()) == redelivery.Report(redelivered=4, poisoned=1)


def test_each_rule_in_a_handler(twin: Twin) -> None:
    """A listener's classifier replaces the connection's; a later change has no effect."""
    errors = rules()
    connection = twin.connect(policies=POLICIES, errors=errors)
    outcomes: list[tuple[str, str]] = []
    kinds = {kind.__name__: kind for kind in (ValueError, AlreadyDone, Busy)}

    def handle(message: redelivery.Message) -> None:
        outcomes.append((message.destination, message.text))
        if message.delivery_count == 1 and not message.redelivered and outcomes.count(outcomes[-1]) == 1:
            raise kinds[message.text]("x")

    twin.listen(connection, "orders", handle)
    twin.listen(connection, "others", handle, errors=Classifier().discard(ValueError))
    errors.retry(ValueError)
    for name in kinds:
        twin.broker.send("orders", name)
        twin.broker.send("others", name)
    twin.advance(60)
    assert twin.call(connection.drain()) == redelivery.Report(
        accepted=3, redelivered=2, poisoned=1, discarded=2, deferred=1
    )
    (letter,) = twin.broker.dead_letters()
    assert (letter.text, letter.original_destination) == ("ValueError", "queue://orders")


def test_a_policy_that_outlasts_the_broker_is_refused() -> None:
    """A classifier's policy is compared with the time that the broker leaves a message unsettled."""
    settings = redelivery.connect("memory://plan").settings
    able = Capabilities("impatient", max_hold=60.0)
    with pytest.raises(ConfigurationError, match="for OSError holds a message for 90 s"):
        planned(1, Destination.parse("orders"), {"errors": rules()}, settings, able)


def test_sessions_that_settle_by_themselves(twin: Twin) -> None:
    """A transacted session refuses a classifier; a client session uses it for messages settled one by one."""
    connection = twin.connect(policies=POLICIES, errors=rules())
    with pytest.raises(ConfigurationError, match="in a transacted session"):
        twin.call(connection.session("transacted").consumer("orders", errors=rules()))
    session = connection.session("client")
    consumer = twin.call(session.consumer("orders"))
    twin.broker.send("orders", "body")
    twin.receive(consumer).fail(ValueError("no"))
    assert [letter.cause for letter in twin.broker.dead_letters()] == ["ValueError: no"]
