"""Safe use of policies: a user's own policy may raise anything, or return anything.

Such a fault never leaves a message half charged: the value of a plain `RedeliveryPolicy()` is used instead. The message
still has a maximum and a delay, and the driver logs the fault.
"""

from __future__ import annotations

from datetime import timedelta
from operator import index
from typing import TYPE_CHECKING, SupportsIndex, cast

from redelivery.core.commands import PolicyFault
from redelivery.core.delivery import Cause, Record
from redelivery.core.option_values import shown
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy, mark_late, outlasted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from redelivery.core.commands import Command
    from redelivery.core.delivery import Delivery
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.core.policy.redelivery_policy import Policy

__all__ = ["LONGEST", "PolicyGuard", "elapsed_of", "exceeded", "limit_of", "seed", "would_exhaust"]


# ---- Policy guard ----------------------------------------------------------------------------------------

LONGEST = 1e11
"""Longest delay in seconds: 3,168 years. A later date has more than four digits for its year, and no adapter could
write it. ActiveMQ's longest delay, 2^63-1 ms, is used as "never"."""
# Redeliveries: more than ever happen, and fewer digits than Python refuses to format.
MOST = 2**63 - 1
# Seconds. Shortest limit of time, as in `RedeliveryPolicy`.
SHORTEST = 0.001
DEFAULT = RedeliveryPolicy()


class PolicyGuard:
    """Reads policies for one engine, and keeps the faults it finds until the engine takes them."""

    __slots__ = ("_policies", "_random", "faults")

    def __init__(self, policies: RedeliveryPolicyMap, random: Random | None) -> None:
        self._policies = policies
        self._random = random
        self.faults: list[PolicyFault] = []

    def policy_for(self, destination: str) -> Policy:
        """Return the policy that serves a destination."""
        return self._policies.policy_for(destination)

    def limit(self, policy: Policy) -> int:
        """Return the maximum of redeliveries; below 0: no limit."""
        limit, fault = limit_of(policy)
        if fault is not None:
            self.faults.append(fault)
        return limit

    def next_delay(self, policy: Policy, record: Record, now: float) -> float | None:
        """Return the seconds before the next redelivery of a message that was just charged; None: it is poison.

        It is poison above the maximum of redeliveries, or if the redelivery would begin after the policy's limit of
        time. In that case its cause says so.
        """
        if 0 <= self.limit(policy) < record.count:
            return None
        delay = self.delay(policy, record.count)
        limit = self._elapsed(policy)
        if limit is None:
            return delay
        # If a clock was set back, or a producer sent the date, the time since then could stay below the limit for ever.
        record.first_failure = now if record.first_failure is None else min(record.first_failure, now)
        if not outlasted(record, limit, now + delay):
            return delay
        mark_late(record, limit)
        return None

    def used_up(self, policy: Policy, record: Record) -> bool:
        """Return True if a message has failed too often, or for too long, counting failures in other processes."""
        if 0 <= self.limit(policy) < record.count:
            return True
        limit, last = self._elapsed(policy), record.last_failure
        if limit is None or last is None or not outlasted(record, limit, last):
            return False
        mark_late(record, limit)
        return True

    def _elapsed(self, policy: Policy) -> int | None:
        limit, fault = elapsed_of(policy)
        if fault is not None:
            self.faults.append(fault)
        return limit

    def delay(self, policy: Policy, redelivery: int, *, jitter: bool = True) -> float:
        """Return the seconds before this redelivery (from 1), `LONGEST` at most."""
        delay, fault = delay_of(policy, redelivery, self._random if jitter else None)
        if fault is not None:
            self.faults.append(fault)
        return delay

    def with_faults(self, commands: Sequence[Command]) -> Sequence[Command]:
        """Return the commands, followed by the faults of policies found since the last call."""
        if not self.faults:
            return commands
        faults, self.faults = self.faults, []
        return [*commands, *faults]


def limit_of(policy: Policy) -> tuple[int, PolicyFault | None]:
    """Return a policy's maximum of redeliveries; or the default one, and the fault."""
    error: BaseException | None = None
    try:
        answer: object = policy.maximum_redeliveries
        limit = _whole(answer)
        if limit is not None:
            return min(limit, MOST), None
        wrong = f"is {shown(answer)}, which is no whole number"
    except BaseException as raised:  # noqa: BLE001 - as above
        error, wrong = raised, f"raised {Cause.of(raised).text}"
    instead = DEFAULT.maximum_redeliveries
    text = f"maximum_redeliveries {wrong}; {instead} redeliveries are allowed instead"
    return instead, PolicyFault(policy, "maximum_redeliveries", text, error)


def elapsed_of(policy: Policy) -> tuple[int | None, PolicyFault | None]:
    """Return a policy's limit of time in milliseconds; None: no limit. A fault also means no limit."""
    error: BaseException | None = None
    try:
        answer: object = getattr(policy, "maximum_elapsed", None)
        if answer is None:
            return None, None
        seconds = answer.total_seconds() if isinstance(answer, timedelta) else answer
        number = seconds if isinstance(seconds, float) else _whole(seconds)
        # Not NaN, and not too short. An integer may exceed every float, and is compared as an integer.
        if number is not None and number >= SHORTEST:
            return round(min(number, LONGEST) * 1000), None
        wrong = f"is {shown(answer)}, which is no duration in seconds"
    except BaseException as raised:  # noqa: BLE001 - as above
        error, wrong = raised, f"raised {Cause.of(raised).text}"
    text = f"maximum_elapsed {wrong}; only the maximum of redeliveries applies"
    return None, PolicyFault(policy, "maximum_elapsed", text, error)


def would_exhaust(policy: Policy, record: Record | None, now: float) -> bool:
    """Return True if a failure charged now would be poison. Changes nothing; the delay is computed without jitter."""
    count = 1 if record is None else record.count + 1
    limit, _ = limit_of(policy)
    if 0 <= limit < count:
        return True
    elapsed, _ = elapsed_of(policy)
    if elapsed is None:
        return False
    first = now if record is None or record.first_failure is None else min(record.first_failure, now)
    idle = 0.0 if record is None else record.idle
    return round((now + delay_of(policy, count, None)[0] - first - idle) * 1000) > elapsed


def delay_of(policy: Policy, redelivery: int, random: Random | None) -> tuple[float, PolicyFault | None]:
    """Return the seconds before this redelivery (from 1); or those of the default policy, and the fault."""
    error: BaseException | None = None
    try:
        answer: object = policy.redelivery_delay_ms(redelivery, random)
        seconds = _seconds(answer)
        if seconds is not None:
            return seconds, None
        wrong = f"returned {shown(answer)}"
    except BaseException as raised:  # noqa: BLE001 - a policy that ends the program would end it at each start
        error, wrong = raised, f"raised {Cause.of(raised).text}"
    instead = DEFAULT.redelivery_delay_ms(redelivery) / 1000
    text = f"redelivery_delay_ms({redelivery}) {wrong}; the delay is {instead:g} s instead"
    return instead, PolicyFault(policy, "redelivery_delay_ms", text, error)


def _whole(answer: object) -> int | None:
    if isinstance(answer, bool):
        return None
    if isinstance(answer, float):
        return int(answer) if answer.is_integer() else None
    # Includes the integers of numpy, as computed policies have them.
    return index(cast("SupportsIndex", answer)) if hasattr(answer, "__index__") else None


def _seconds(answer: object) -> float | None:
    """Return milliseconds as seconds, `LONGEST` at most; None for a value that is no duration."""
    if isinstance(answer, bool):
        return None
    ms = answer if isinstance(answer, float) else _whole(answer)
    # Neither NaN nor infinite. An integer may exceed every float, and is compared as an integer.
    if ms is None or not 0 <= ms < float("inf"):
        return None
    return min(ms, LONGEST * 1000) / 1000


# ---- Pre dispatch ----------------------------------------------------------------------------------------
# Pre-dispatch check of the Java client: a message whose broker count exceeds the maximum is poison, undelivered.
#
# It applies in transacted sessions only. It does not apply if the policy disables it, or if the broker itself has
# redelivered the message: its redelivery plugin marks that with a property.

BY_THE_BROKER = "redeliveryDelay"


def seed(count: int, delivery: Delivery, policy: Policy, maximum: int, *, transacted: bool) -> int:
    """Return the count to start from: the broker's; without the check, at most one that does not poison yet.

    Brokers also count closed connections, kills and prefetched messages. `maximum`: the policy's; below 0: no limit.
    """
    if maximum < 0 or count <= maximum:
        return count
    checks = not isinstance(policy, RedeliveryPolicy) or policy.pre_dispatch_check
    return count if transacted and checks and BY_THE_BROKER not in delivery.headers else maximum


def exceeded(delivery: Delivery, policies: PolicyGuard) -> Record | None:
    """Return the record of a message that must not be dispatched any more, with its cause; otherwise None."""
    record = delivery.record
    # With a cause it was charged here, and its own policy has decided.
    if record is None or record.cause is not None:
        return None
    maximum = policies.limit(policies.policy_for(delivery.destination))
    if not 0 <= maximum < record.count:
        return None
    record.exhausted = True
    record.cause = Cause(f"Dispatch[{record.count}] exceeds the redelivery policy's limit of {maximum}")
    return record
