"""The reference's pre-dispatch check: what the broker has counted beyond its limit is not shown again, but poison.

Only in transacted sessions, unless the policy says otherwise, or the broker itself has redelivered the message: its
redelivery plugin marks that with a property.
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
    """Return the count to start from: the broker's, which without the check never poisons before a dispatch.

    Brokers count closes, kills and prefetched messages that nobody saw. `maximum`: the policy's.
    """
    if maximum < 0 or count <= maximum:
        return count
    checks = not isinstance(policy, RedeliveryPolicy) or policy.pre_dispatch_check
    return count if transacted and checks and BY_THE_BROKER not in delivery.headers else maximum


def exceeded(delivery: Delivery, policies: PolicyGuard) -> Record | None:
    """Return the record of a message that must not be shown any more, with its cause; else None."""
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
