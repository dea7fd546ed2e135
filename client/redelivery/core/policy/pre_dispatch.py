"""Pre-dispatch check of the Java client: a message whose broker count exceeds the maximum is poison, undelivered.

It applies in transacted sessions only. It does not apply if the policy disables it, or if the broker itself has
redelivered the message: its redelivery plugin marks that with a property.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.delivery import Cause, Record
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy

if TYPE_CHECKING:
    from redelivery.core.delivery import Delivery
    from redelivery.core.policy.policy_guard import PolicyGuard
    from redelivery.core.policy.redelivery_policy import Policy

__all__ = ["exceeded", "seed"]

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
