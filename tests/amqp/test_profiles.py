"""Profiles: chosen by the properties of the broker's open frame, or by the user's option."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from redelivery import ConfigurationError
from redelivery.uri.parser import parse_uri
from redelivery_amqp.profiles import (
    AmqpArtemis,
    AmqpBrokerJ,
    AmqpClassic,
    AmqpRabbitMQ,
    AmqpRabbitMQ4,
    profile_for,
)

if TYPE_CHECKING:
    from redelivery_amqp.profile_base import AmqpProfile

PRODUCTS = {
    "ActiveMQ": AmqpClassic,
    "apache-activemq-artemis": AmqpArtemis,
    "Apache Qpid Broker-J Core": AmqpBrokerJ,
    "RabbitMQ": AmqpRabbitMQ,
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_broker_is_known_by_its_product(product: str) -> None:
    """A broker is recognised by its product name (docs/measured/amqp.md)."""
    assert isinstance(profile_for({"product": product, "version": "3.10.8"}, "auto"), PRODUCTS[product])


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("3.13.7", AmqpRabbitMQ),
        ("4.0.0", AmqpRabbitMQ4),
        ("4.3.6+beta.1", AmqpRabbitMQ4),
        ("10.0", AmqpRabbitMQ4),
    ],
)
def test_rabbitmq_has_a_profile_for_its_version(version: str, kind: type[AmqpProfile]) -> None:
    """RabbitMQ from 4.0 on has its own profile; a version newer than the known ones is taken for the newest."""
    assert type(profile_for({"product": "RabbitMQ", "version": version}, "auto")) is kind


@pytest.mark.parametrize("version", ["", "dev", "x4.3", "\u0664.3"])
def test_a_version_that_cannot_be_read_is_taken_for_the_newest(version: str) -> None:
    """A version that cannot be parsed is taken for the newest: an old broker refuses unknown addresses."""
    profile = profile_for({"product": "RabbitMQ", "version": version}, "auto")
    assert profile.address("queue://a b/c") == "/queues/a%20b%2Fc"
    assert profile.capabilities.max_hold is None


def test_another_product_is_refused_unless_the_user_names_it() -> None:
    """`redelivery.broker` chooses the profile of an unknown product; without it the product is refused."""
    with pytest.raises(ConfigurationError, match="Solace over AMQP is not supported; ActiveMQ Classic"):
        profile_for({"product": "Solace"}, "auto")
    assert isinstance(profile_for({"product": "Solace"}, "rabbitmq"), AmqpRabbitMQ4)
    assert isinstance(profile_for({"product": "Solace", "version": "3.8"}, "rabbitmq"), AmqpRabbitMQ)
    assert isinstance(profile_for({}, "artemis"), AmqpArtemis)


@pytest.mark.parametrize(
    ("version", "options", "hold", "asked"),
    [
        ("4.3.6", "", 60.0, 1800.0),
        ("4.3.6", "", 7200.0, 9000.0),
        ("4.3.6", "", 1e6, 43200.0),
        ("4.3.6", "", None, 43200.0),
        ("4.3.6", "?redelivery.consumerTimeout=10000", 7200.0, 10.0),
        ("4.3.6", "?redelivery.consumerTimeout=0", 7200.0, None),
        ("4.2.9", "", 60.0, None),
        ("4.2.9", "?redelivery.consumerTimeout=10000", 60.0, None),
    ],
)
def test_a_consumer_asks_for_the_time_that_its_policy_needs(
    version: str, options: str, hold: float | None, asked: float | None
) -> None:
    """A consumer asks for 1.25 times its policy's longest time, 30 min to 12 h, or for the user's timeout."""
    settings = parse_uri(f"amqp://h{options}")
    profile = profile_for({"product": "RabbitMQ", "version": version}, "auto", settings)
    assert profile.consumer_timeout(hold) == asked


def test_rabbitmq_3_has_seconds_where_a_message_came_over_stomp() -> None:
    """A creation time of RabbitMQ 3 in seconds is converted: `--older-than` would take the message for one of 1970."""
    profile = profile_for({"product": "RabbitMQ", "version": "3.10.8"}, "auto")
    assert profile.created(1_795_656_042) == 1_795_656_042_000
    assert profile.created(1_795_656_042_123) == 1_795_656_042_123
    assert (profile.created(None), profile.created(0)) == (None, 0)
