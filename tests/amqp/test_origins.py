"""Origins of dead letters over AMQP: the marks that count, and those that a copy leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import proton
from tests.amqp.test_delivery import AT, delivery, message

if TYPE_CHECKING:
    from redelivery_amqp.delivery import AmqpDelivery
    from redelivery_amqp.profile_base import AmqpProfile

from redelivery.core.commands import Forward
from redelivery.core.dead_lettering.dead_letter_headers import origin_of
from redelivery.core.delivery import Cause
from redelivery.core.outgoing import Outgoing
from redelivery.dlq.dead_letter import read_letter
from redelivery.errors import ConfigurationError
from redelivery_amqp.message_copies import copied
from redelivery_amqp.profiles import AmqpArtemis, AmqpBrokerJ, AmqpClassic, AmqpRabbitMQ


def died(annotations: dict[str, Any], **properties: Any) -> AmqpDelivery:
    """Return a dead letter with these marks."""
    return delivery(
        message(
            annotations={proton.symbol(name): value for name, value in annotations.items()},
            properties=properties,
        )
    )


def test_whose_record_is_believed_on_artemis() -> None:
    """On Artemis the origin is in annotations or in properties; if the two differ it is ambiguous."""
    claim = {"redeliveryOriginalDestination": "queue://admin"}
    by_broker = {"x-opt-ORIG-ADDRESS": "orders", "x-opt-ORIG-QUEUE": "orders", "x-opt-ORIG-MESSAGE-ID": 7}
    core = {"_AMQ_ORIG_ADDRESS": "orders", "_AMQ_ORIG_QUEUE": "orders", "_AMQ_ORIG_MESSAGE_ID": 44}
    assert died(by_broker, **claim).origin == "queue://orders"
    assert died({}, **core, **claim).origin == "queue://orders"
    assert died({}, **core | {"_AMQ_ORIG_ROUTING_TYPE": 0}).origin == "topic://orders"
    assert died(by_broker, **core, **claim).origin == "queue://orders"
    assert origin_of(died(by_broker, _AMQ_ORIG_ADDRESS="admin", **claim)) is None
    assert origin_of(died(by_broker | {"x-opt-ORIG-ADDRESS": "admin"}, **core, **claim)) is None
    copy = {"x-opt-ORIG-ADDRESS": "orders", "x-opt-ORIG-QUEUE": "orders"}
    assert origin_of(died(copy, redeliveryOriginalDestination="topic://orders")) == "topic://orders"


def test_a_record_that_is_no_one_name_is_nobodys() -> None:
    """A recorded address with a comma, which is not one destination, is not an origin."""
    by_broker = {"x-opt-ORIG-ADDRESS": "a,", "x-opt-ORIG-QUEUE": "a,", "x-opt-ORIG-MESSAGE-ID": 7}
    letters = [
        died(by_broker),
        died({}, _AMQ_ORIG_ADDRESS="a,", _AMQ_ORIG_QUEUE="a,", _AMQ_ORIG_MESSAGE_ID=7),
    ]
    for letter in letters:
        assert read_letter(letter, "queue://DLQ").original_destination is None


@pytest.mark.parametrize(
    "profile", [AmqpClassic(), AmqpBrokerJ(), AmqpRabbitMQ()], ids=lambda p: type(p).__name__
)
def test_other_brokers_have_no_record(profile: AmqpProfile) -> None:
    """Other brokers' dead letters have no origin: an annotation with Artemis' name is a producer's."""
    forged = {proton.symbol("x-opt-ORIG-ADDRESS"): "admin"}
    assert delivery(message(annotations=forged), profile=profile).origin is None


def test_what_classic_has_dead_lettered_is_no_copy() -> None:
    """A dead letter was made by Classic itself if it has Classic's own cause or its `original-destination`."""
    for properties, moved in (
        ({"dlqDeliveryFailureCause": "java.lang.Throwable: Message Expired", "redeliveryCause": "x"}, True),
        (
            {"original-destination": "queue://admin", "dlqDeliveryFailureCause": "x", "redeliveryCause": "x"},
            True,
        ),
        ({"dlqDeliveryFailureCause": "x", "redeliveryCause": "x"}, False),
        ({}, False),
    ):
        assert delivery(message(properties=properties), profile=AmqpClassic()).moved is moved


FORGED = (
    "original-destination", "_AMQ_ORIG_ADDRESS", "JMS_AMQP_MA_x-opt-ORIG-ADDRESS", "x-first-death-queue", "x-death",
)  # fmt: skip


@pytest.mark.parametrize(
    "profile", [AmqpClassic(), AmqpArtemis(), AmqpBrokerJ(), AmqpRabbitMQ()], ids=lambda p: type(p).__name__
)
def test_a_copy_has_no_record_of_its_producers(profile: AmqpProfile) -> None:
    """A copy has no property that a broker writes on dead letters: a redrive would trust a producer's."""
    forged = dict.fromkeys(FORGED, "admin")
    raw = message(
        properties={**forged, "mine": "1"}, annotations={proton.symbol("x-opt-ORIG-ADDRESS"): "admin"}
    )
    dead = delivery(raw, profile=profile)
    for redrive in (False, True):
        out = Outgoing("queue://DLQ", b"x", headers=dead.headers)
        copy = delivery(copied(Forward(dead, out, Cause("why"), 1, redrive=redrive), dead, profile, AT))
        assert "admin" not in str(copy.annotations) + str(copy.headers)
        assert copy.headers["mine"] == "1"


def test_temporary_destinations_of_rabbitmq() -> None:
    """A temporary destination is refused on RabbitMQ over AMQP before anything is written."""
    for destination in ("temp-queue://a", "temp-topic://a"):
        assert "no temporary queues" in str(AmqpRabbitMQ().problem(destination))
    with pytest.raises(ConfigurationError, match="'bogus://x' must start with one of queue://"):
        AmqpRabbitMQ().address("bogus://x")
