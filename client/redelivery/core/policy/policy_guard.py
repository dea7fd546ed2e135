"""Asking a policy for its maximum and its delays: a user's own policy may raise anything, or return anything.

Nothing of that comes out of the engine with a message half charged: the answer of a plain `RedeliveryPolicy()` is taken
instead, so the message still has a bound and a delay, and the driver logs the fault.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, SupportsIndex, cast

from redelivery.core.commands import PolicyFault
from redelivery.core.delivery import Cause
from redelivery.core.option_values import shown
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from redelivery.core.commands import Command
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.core.policy.redelivery_policy import Policy

__all__ = ["LONGEST", "PolicyGuard", "limit_of"]

LONGEST = 1e11
"""Seconds: 3,168 years, the longest delay. A later date has no four digits for its year, and no adapter could write it
down. The reference's longest delay, 2^63-1 ms, is meant as "never"."""
# Redeliveries: more than ever happen, and fewer than Python refuses to write down.
MOST = 2**63 - 1
DEFAULT = RedeliveryPolicy()


class PolicyGuard:
    """Asks policies on behalf of one engine, and keeps what was wrong with their answers until the engine takes it."""

    __slots__ = ("_policies", "_random", "faults")

    def __init__(self, policies: RedeliveryPolicyMap, random: Random | None) -> None:
        self._policies = policies
        self._random = random
        self.faults: list[PolicyFault] = []

    def policy_for(self, destination: str) -> Policy:
        """Return the policy that serves a destination."""
        return self._policies.policy_for(destination)

    def limit(self, policy: Policy) -> int:
        """Return the maximum of redeliveries; below 0: none."""
        limit, fault = limit_of(policy)
        if fault is not None:
            self.faults.append(fault)
        return limit

    def delay(self, policy: Policy, redelivery: int, *, jitter: bool = True) -> float:
        """Return the seconds before the redelivery of this number, `LONGEST` at most."""
        error: BaseException | None = None
        try:
            answer: object = policy.redelivery_delay_ms(redelivery, self._random if jitter else None)
            seconds = _seconds(answer)
            wrong = f"returned {shown(answer)}" if seconds is None else ""
        except BaseException as raised:  # noqa: BLE001 - a policy that ends the program would end it at each start
            error, seconds, wrong = raised, None, f"raised {Cause.of(raised).text}"
        if seconds is not None:
            return seconds
        instead = DEFAULT.redelivery_delay_ms(redelivery) / 1000
        text = f"redelivery_delay_ms({redelivery}) {wrong}; {instead:g} s are waited instead"
        self.faults.append(PolicyFault(policy, "redelivery_delay_ms", text, error))
        return instead

    def with_faults(self, commands: Sequence[Command]) -> Sequence[Command]:
        """Return commands, and behind them what was wrong with policies that were asked since the last call."""
        if not self.faults:
            return commands
        faults, self.faults = self.faults, []
        return [*commands, *faults]


def limit_of(policy: Policy) -> tuple[int, PolicyFault | None]:
    """Return a policy's maximum of redeliveries, or the default one and why."""
    error: BaseException | None = None
    try:
        answer: object = policy.maximum_redeliveries
        limit = _whole(answer)
        if limit is not None:
            return min(limit, MOST), None
        wrong = f"is {shown(answer)}, no whole number"
    except BaseException as raised:  # noqa: BLE001 - as above
        error, wrong = raised, f"raised {Cause.of(raised).text}"
    instead = DEFAULT.maximum_redeliveries
    text = f"maximum_redeliveries {wrong}; {instead} are allowed instead"
    return instead, PolicyFault(policy, "maximum_redeliveries", text, error)


def _whole(answer: object) -> int | None:
    if isinstance(answer, bool):
        return None
    if isinstance(answer, float):
        return int(answer) if answer.is_integer() else None
    # Also the integers of numpy, as computed policies have them.
    return index(cast("SupportsIndex", answer)) if hasattr(answer, "__index__") else None


def _seconds(answer: object) -> float | None:
    """Return milliseconds as seconds, `LONGEST` at most; None for what is no duration."""
    if isinstance(answer, bool):
        return None
    ms = answer if isinstance(answer, float) else _whole(answer)
    # Not NaN, nor infinite: a whole number may be beyond all floats, and is compared as it is.
    if ms is None or not 0 <= ms < float("inf"):
        return None
    return min(ms, LONGEST * 1000) / 1000
