"""The destination that a message names over STOMP, which may be a made-up name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.stomp.test_deliveries import ARTEMIS, delivery

from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery_stomp.profiles import StompArtemis, StompRabbitMQ

if TYPE_CHECKING:
    from redelivery_stomp.profile_base import StompProfile


@pytest.mark.parametrize(
    ("profile", "consumed", "header"),
    [
        (StompArtemis(), "queue://a.>", "a.b,"),
        (StompArtemis(), "queue://a.>", "a.b,topic://"),
        (StompArtemis(), "native://a.#", "queue://x,y://z"),
        (StompArtemis(), "queue://a.>", "a." + "b" * 2000),
        (StompRabbitMQ(), "topic://#", "/topic/a,"),
        (StompRabbitMQ(), "topic://#", "/topic/ "),
        (StompRabbitMQ(), "topic://#", "/topic/a%0Ab"),
    ],
)
def test_a_name_that_is_none_is_what_is_consumed(profile: StompProfile, consumed: str, header: str) -> None:
    """A made-up destination is replaced by the consumed one: using it would end the consumer at every start."""
    named = [line for line in ARTEMIS if not line.startswith("destination:")]
    seen = delivery(profile, [*named, f"destination:{header}"], to=consumed)
    assert seen.destination == consumed
    assert RedeliveryPolicyMap().pattern_for(seen.destination) is None
