"""Facts of the brokers; the description of a version that no integration test has covered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redelivery.brokers import BROKERS, untested
from redelivery.brokers.facts import numbers
from redelivery_amqp.profiles import AmqpArtemis, AmqpBrokerJ, AmqpClassic
from redelivery_amqp.rabbitmq_profile import AmqpRabbitMQ, AmqpRabbitMQ4
from redelivery_stomp.profiles import StompArtemis, StompClassic, StompRabbitMQ

if TYPE_CHECKING:
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_stomp.profile_base import StompProfile


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("4.3.6", None),
        ("4.3.11", None),
        ("4.3.7-rc.1", None),
        ("4.4.0", "is newer than every tested version, and is treated as 4.3.6"),
        ("5.0.0+beta", "is newer than every tested version, and is treated as 4.3.6"),
        ("4.1.2", "was not tested itself; 4.0.5 and 4.3.6 were"),
        ("3.13.7", "was not tested itself; 3.10.8 and 4.0.5 were"),
        ("3.9.29", "is older than every tested version"),
        ("", "reports no version, and is treated as 4.3.6"),
        ("main", "reports no version, and is treated as 4.3.6"),
    ],
)
def test_a_version_is_compared_by_its_first_two_numbers(version: str, said: str | None) -> None:
    """A version like a tested one has no description; every other one has a clause of its own."""
    assert untested("rabbitmq", version) == said


def test_nothing_is_said_of_a_broker_that_is_not_known() -> None:
    """The memory broker has no versions, and no description."""
    assert untested("memory", "1.0") is None


@given(st.sampled_from(sorted(BROKERS)), st.text(max_size=20))
def test_every_version_has_an_answer(broker: str, version: str) -> None:
    """Every text that a broker reports as its version has a description, or none is needed."""
    assert (
        untested(broker, version) is None
        or numbers(version)
        or "reports no version" in str(untested(broker, version))
    )


@pytest.mark.parametrize("broker", sorted(BROKERS))
def test_the_tested_versions_are_listed_oldest_first(broker: str) -> None:
    """The last version is the one that an unknown one is treated as."""
    assert sorted(BROKERS[broker].tested, key=numbers) == [*BROKERS[broker].tested]


PROFILES = (
    AmqpArtemis, AmqpBrokerJ, AmqpClassic, AmqpRabbitMQ, AmqpRabbitMQ4((4, 0)), AmqpRabbitMQ4((4, 3)), StompArtemis,
    StompClassic, StompRabbitMQ,
)  # fmt: skip


@pytest.mark.parametrize("profile", PROFILES, ids=[f"{n}" for n in range(len(PROFILES))])
def test_each_profile_has_the_facts_of_its_broker(profile: AmqpProfile | StompProfile) -> None:
    """A profile adds what its protocol can: what the record says of names and places holds over each."""
    able = profile.capabilities
    always = BROKERS[able.broker].always
    names = ("dead_letter_destination", "individual_prefixes", "duplicate_property", "management_address")
    assert [getattr(able, name) for name in names] == [getattr(always, name) for name in names]
