"""Finding on a policy: how long it parks a message, and when the message is dead. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.cli.checks.finding import note, ok
from redelivery.cli.formatting import duration
from redelivery.core.policy.policy_guard import elapsed_of, limit_of
from redelivery.core.policy.time_limit import bounded

if TYPE_CHECKING:
    from redelivery.cli.checks.finding import Finding
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.policy.redelivery_policy import Policy

__all__ = ["schedule"]

# Milliseconds. A database restarts in about a minute: a policy that ends sooner makes dead letters of its messages.
OUTAGE = 60_000


def schedule(policy: Policy, able: Capabilities) -> Finding:
    """Return how long a policy parks a message here, and after how many deliveries the message is dead."""
    maximum, limit = limit_of(policy)[0], elapsed_of(policy)[0]
    worst = bounded(policy.worst_case_ms(), limit)
    if worst is None:
        return note(
            "policy",
            "redelivers for ever: a message that always fails is tried until it expires; give maximumRedeliveries, or "
            "redelivery.policy.maximumElapsed",
        )
    if not maximum:
        return note("policy", "one delivery, and no redelivery: each failure is a dead letter")
    times = f"dead after {duration(worst)}" if maximum < 0 else f"dead after {maximum + 1} deliveries"
    held = f"holds a message for up to {duration(worst)}, {times}"
    if able.most_delay is not None:
        held += f"; {able.broker} lets it be held for {duration(able.most_delay * 1000)}"
    if worst < OUTAGE:
        # No warning: only the program knows whether its classifier names them.
        return note(
            "policy",
            f"{held}: if a service is down for longer, its messages become dead letters, unless the breaker opens, "
            "which takes many of them; name its exceptions by Classifier().trip(), or use back-off "
            "(jms.redeliveryPolicy.useExponentialBackOff=true)",
        )
    return ok("policy", held)
