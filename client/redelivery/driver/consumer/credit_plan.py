"""Credit of a new consumer: a given number, or `auto`, which begins small and follows the rate of its handlers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.core.credit_pace import MOST_CREDIT, CreditPace, first_credit

if TYPE_CHECKING:
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.destination import Destination
    from redelivery.core.rate import Rate
    from redelivery.driver.arguments import ConsumerOptions
    from redelivery.settings import Settings

__all__ = ["CreditPlan", "credit_of"]

# Seconds. A consumer with a rate limit prefetches messages for so long: a broker may limit how long one is unsettled.
AHEAD = 60.0


@dataclass(frozen=True, slots=True)
class CreditPlan:
    """Credit of a consumer.

    `most`: messages that the application may have unsettled; `first`: messages that the broker may send at first.
    """

    most: int
    first: int
    pace: CreditPace | None = None


def credit_of(
    destination: Destination,
    options: ConsumerOptions,
    settings: Settings,
    capabilities: Capabilities,
    *,
    rate: Rate | None,
    workers: int | None,
) -> CreditPlan:
    """Return the credit of a consumer.

    `workers`: number of workers of its listener; 0: the application pulls; None: never `auto`.
    """
    asked = _asked(destination, options, settings)
    most = MOST_CREDIT if asked is None else asked
    most = most if rate is None else min(most, rate.ahead(AHEAD))
    order = options.get("ordering") or settings.ordering
    # Over STOMP a consumer grows by further subscriptions; the broker may not keep the order over several of them.
    able = capabilities.flow or (capabilities.grows and order == "non_blocking")
    if asked is not None or workers is None or destination.kind != "queue" or not able:
        return CreditPlan(most, most)
    first = first_credit(workers)
    return CreditPlan(most, first, CreditPace(first, most)) if first < most else CreditPlan(most, most)


def _asked(destination: Destination, options: ConsumerOptions, settings: Settings) -> int | None:
    """Return the credit that the arguments or settings give; None: `auto`."""
    credit = options.get("credit")
    if credit is not None:
        return credit
    if not destination.is_topic:
        return settings.credit
    return settings.topic_credit if options.get("subscription") is None else settings.durable_topic_credit
