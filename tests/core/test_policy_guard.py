"""A user's own policy may raise or return anything: the message keeps a maximum and a delay."""

from __future__ import annotations

from decimal import Decimal
from math import inf, nan
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.bench import CAUSE, Bench
from tests.core.model import WALL_OFFSET, Letter

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import Dispatch, Hold, PoisonAck, PolicyFault
from redelivery.core.events import Deferred, Failed, Known, Wanted
from redelivery.core.ledger_entry import Entry
from redelivery.core.policy.policy_guard import LONGEST, PolicyGuard, limit_of
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

if TYPE_CHECKING:
    from redelivery.core.commands import Command
    from redelivery.core.policy.random_source import RandomSource

FULL = Capabilities(
    "model", poison_persistent=True, poison_non_persistent=True, release=True, counts=True, transactions=True
)


class Own:
    """Policy that returns, or raises, the given values."""

    def __init__(self, delay: Any = 1000, maximum: Any = 3) -> None:
        self._delay = delay
        self._maximum = maximum
        self.checked = True

    @property
    def maximum_redeliveries(self) -> Any:
        return self._answer(self._maximum) if self.checked else 3

    def redelivery_delay_ms(self, redelivery: int, random: RandomSource | None = None) -> Any:
        return self._answer(self._delay)

    def delays_ms(self, n: int, random: RandomSource | None = None) -> list[int]:
        return [1] * n

    def worst_case_ms(self) -> int | None:
        return 1

    @staticmethod
    def _answer(answer: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer


class Index:
    """A whole number that is no `int`, like those of numpy."""

    def __index__(self) -> int:
        return 7


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def guard() -> PolicyGuard:
    return PolicyGuard(RedeliveryPolicyMap(), Random(1))


def benched(policy: Own, **options: Any) -> Bench:
    """Return a bench. Up to Python 3.11 a policy's maximum is read when it is checked for being a policy."""
    policy.checked = False
    bench = Bench(policy=policy, **options)  # type: ignore[arg-type]
    policy.checked = True
    return bench


def faults(commands: list[Command]) -> list[str]:
    return [command.text for command in commands if isinstance(command, PolicyFault)]


NO_DELAYS: list[Any] = [
    None,
    "5",
    nan,
    inf,
    -inf,
    -1,
    -0.5,
    True,
    Decimal(5),
    [],
    Unshown(),
    ValueError("x"),
    SystemExit(3),
]
NO_LIMITS: list[Any] = [None, "5", nan, inf, 2.5, True, Decimal(5), Unshown(), ValueError("x"), SystemExit(3)]


@pytest.mark.parametrize("answer", NO_DELAYS, ids=type)
def test_no_delay(answer: Any) -> None:
    """A value that is no duration is a fault, and the default policy's delay is used."""
    asked = guard()
    assert asked.delay(Own(answer), 2) == 1.0
    (fault,) = asked.with_faults(())
    assert isinstance(fault, PolicyFault)
    assert (fault.member, asked.faults) == ("redelivery_delay_ms", [])
    assert fault.text.startswith("redelivery_delay_ms(2) r")
    assert fault.text.endswith("; the delay is 1 s instead")


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [(0, 0), (1500, 1.5), (2.5, 0.0025), (Index(), 0.007), (2**63 - 1, LONGEST), (10**400, LONGEST), (1e300, LONGEST)],
    ids=type,
)  # fmt: skip
def test_a_delay(answer: Any, seconds: float) -> None:
    """Whole and real numbers are milliseconds; a number that means "never" is the longest delay."""
    asked = guard()
    assert asked.delay(Own(answer), 1) == seconds
    assert asked.faults == []


@pytest.mark.parametrize("answer", NO_LIMITS, ids=type)
def test_no_limit(answer: Any) -> None:
    """A value that is no whole number is a fault, and the default policy's maximum is used."""
    limit, fault = limit_of(Own(maximum=answer))
    assert limit == RedeliveryPolicy().maximum_redeliveries == 6
    assert fault is not None
    assert fault.text.startswith("maximum_redeliveries ")
    assert fault.text.endswith("; 6 redeliveries are allowed instead")


@pytest.mark.parametrize(
    ("answer", "limit"), [(0, 0), (-1, -1), (3.0, 3), (Index(), 7), (10**400, 2**63 - 1)]
)
def test_a_limit(answer: Any, limit: int) -> None:
    """A maximum may be a whole number of any type."""
    assert limit_of(Own(maximum=answer)) == (limit, None)


@pytest.mark.parametrize("raised", [RuntimeError("x"), SystemExit(3), KeyboardInterrupt()], ids=type)
def test_a_message_whose_policy_raises_is_charged_and_parked(raised: BaseException) -> None:
    """A message whose policy raises has the default delay and the default maximum."""
    bench = benched(Own(raised, raised))
    delivery = bench.run(Letter(1))
    for count in range(1, 7):
        commands = bench.fail(delivery)
        hold = commands[0]
        assert isinstance(hold, Hold)
        assert (hold.count, hold.delay) == (count, 1.0)
        assert len(faults(commands)) == 2
        bench.now += 1
        assert bench.want() is delivery
    commands = bench.fail(delivery)
    assert isinstance(commands[0], PoisonAck)
    assert len(faults(commands)) == 1
    assert bench.engine.load.running == 0


def test_a_policy_of_a_classifier_raises() -> None:
    """A classifier's policy that raises has the same effect as a destination's."""
    bench = Bench()
    delivery = bench.run(Letter(1))
    commands = bench.feed(Failed(delivery, CAUSE, Own(RuntimeError("x"))))
    assert (type(commands[0]), len(faults(commands))) == (Hold, 1)


def test_a_broker_count_with_a_policy_that_raises() -> None:
    """Where the broker counts, the policy is read when a message arrives."""
    bench = benched(Own(maximum=RuntimeError("x")), able=FULL)
    bench.arrive(Letter(1, attempts=9))
    assert len(faults(bench.commands)) == 1
    delivery = bench.want()
    assert delivery is not None
    assert delivery.record is not None
    assert delivery.record.count == 6


def test_a_transacted_dispatch_with_a_policy_that_raises() -> None:
    """The check before a dispatch uses the default maximum, and the message is dispatched."""
    bench = benched(Own(maximum=RuntimeError("x")), able=FULL, transacted=True)
    bench.arrive(Letter(1, attempts=3))
    assert bench.want() is not None
    first, *others = bench.commands
    assert isinstance(first, Dispatch)
    assert len(faults(others)) == 1


def test_a_ledger_with_a_policy_that_raises() -> None:
    """A ledger entry is compared with the default maximum, and the default delay is waited for."""
    bench = benched(Own(RuntimeError("x"), RuntimeError("y")), counted=True)
    (arrival,) = bench.arrive(Letter(1))
    bench.feed(Wanted())
    commands = bench.feed(Known(arrival, Entry(count=2, last=bench.now + WALL_OFFSET)))
    assert isinstance(commands[0], Hold)
    assert commands[0].delay == 1.0
    assert len(faults(commands)) == 2


def test_a_deferral_for_ever() -> None:
    """A delay beyond the calendar becomes the longest one."""
    bench = Bench()
    delivery = bench.run(Letter(1))
    (hold,) = bench.feed(Deferred(delivery, 1e300, CAUSE))
    assert isinstance(hold, Hold)
    assert hold.delay == LONGEST
