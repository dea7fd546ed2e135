"""Which broker is at the other end: by the properties of its open frame, or by the user's word."""

from __future__ import annotations

import pytest

pytest.importorskip("proton")

from redelivery import ConfigurationError
from redelivery_amqp.profiles import AmqpArtemis, AmqpBrokerJ, AmqpClassic, AmqpRabbitMQ, profile_for

PRODUCTS = {
    "ActiveMQ": AmqpClassic,
    "apache-activemq-artemis": AmqpArtemis,
    "Apache Qpid Broker-J Core": AmqpBrokerJ,
    "RabbitMQ": AmqpRabbitMQ,
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_broker_is_known_by_its_product(product: str) -> None:
    """The names are what the brokers send (docs/measured-amqp.md)."""
    assert isinstance(profile_for({"product": product}, "auto"), PRODUCTS[product])


def test_another_product_is_refused_unless_the_user_names_it() -> None:
    """`redelivery.broker` decides where a broker says nothing, or something else."""
    with pytest.raises(ConfigurationError, match="Solace over AMQP is not supported yet"):
        profile_for({"product": "Solace"}, "auto")
    assert isinstance(profile_for({"product": "Solace"}, "rabbitmq"), AmqpRabbitMQ)
    assert isinstance(profile_for({}, "artemis"), AmqpArtemis)
