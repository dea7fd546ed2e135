"""Profiles of the brokers over AMQP 1.0, one for each; measured (docs/measured/amqp.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from redelivery.brokers.artemis import ARTEMIS
from redelivery.brokers.broker_j import BROKER_J
from redelivery.brokers.classic import CLASSIC
from redelivery.brokers.facts import numbers
from redelivery.core.dead_lettering.artemis_places import ORIGIN as FILTERED
from redelivery.core.dead_lettering.dead_letter_headers import ORIGIN, moved_by_classic
from redelivery.errors import ConfigurationError
from redelivery_amqp.profile_base import AmqpProfile
from redelivery_amqp.rabbitmq_profile import AmqpRabbitMQ, AmqpRabbitMQ4

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Forward, Subscribe
    from redelivery.settings import BrokerName, Settings
    from redelivery_amqp.queue_facts import QueueFacts

__all__ = [
    "AmqpArtemis",
    "AmqpBrokerJ",
    "AmqpClassic",
    "AmqpRabbitMQ",
    "AmqpRabbitMQ4",
    "named_profile",
    "profile_for",
]


# Attribute of a queue of Broker-J: deliveries of a message, after which the broker gives it up; 0: no limit.
_LIMIT = "maximumDeliveryAttempts"


class AmqpClassic(AmqpProfile):
    """ActiveMQ Classic: a rejected durable message is dead-lettered at once, a rejected non-durable one is dropped."""

    capabilities = replace(
        CLASSIC.always,
        # Of the messages with one id it keeps one dead letter, and over AMQP nothing shows that other queues have the
        # message (docs/measured/activemq-fan-out.md). Each body arrives whole: all can be copied.
        own_poison="asked",
        ack_caution=(
            "redelivery.deadLetter=ack: ActiveMQ Classic keeps one dead letter for each message id; where a virtual "
            "topic or a composite destination feeds several queues, those of the others are lost: use auto, or an "
            "individualDeadLetterStrategy of the broker"
        ),
        forward="atomic",
        flow=True,
        release=True,
        counts=True,
    )
    delay_prolongs = True
    delay = "x-opt-delivery-delay"
    accepts_shown = True
    rest = ">"

    def address(self, destination: str) -> str:
        return destination.removeprefix("native://")

    def fans_out(self, destination: str) -> bool:
        # A rejection by a topic's plain subscriber leaves no dead letter, one by two durable subscribers one
        # (docs/measured/activemq-fan-out.md). A native address may be a topic.
        return not destination.startswith(("queue://", "temp-queue://"))

    def moved(self, headers: Mapping[str, Any]) -> bool:
        # Neither Classic over AMQP nor a copy has an `original-destination`: a property of this name is a producer's.
        return "original-destination" in headers or moved_by_classic(headers.get)

    def copy_properties(self, command: Forward) -> Iterator[tuple[str, str]]:
        yield "dlqDeliveryFailureCause", command.cause.text


class AmqpArtemis(AmqpProfile):
    """ActiveMQ Artemis: without a capability an address becomes a topic."""

    capabilities = replace(
        ARTEMIS.always,
        # A rejected message goes to the dead-letter address, if there is one.
        poison_on_request=True,
        ack_caution=(
            "redelivery.deadLetter=ack: Artemis drops a poison message of an address without a dead-letter-address, "
            "and where that one has no queue; look at both, or use auto"
        ),
        forward="atomic",
        transactions=True,
        flow=True,
        release=True,
        counts=True,
        browse=True,
        reschedule="atomic",
    )
    capability = True
    delay = "x-opt-delivery-delay"

    def address(self, destination: str) -> str:
        return destination.partition("://")[2]

    def origin(self, annotations: Mapping[str, Any], headers: Mapping[str, Any]) -> str | None:
        # Artemis records the origin in annotations if the message arrived over AMQP, else in properties (2.40.0). The
        # other of the two can be a producer's: an annotation of a STOMP or Core client is a property `JMS_AMQP_MA_…`.
        records = [
            found
            for marks, prefix in ((annotations, "x-opt-ORIG-"), (headers, "_AMQ_ORIG_"))
            if isinstance(address := marks.get(f"{prefix}ADDRESS"), str)
            and address
            and (found := self._recorded(address, marks, prefix))
        ]
        if not records:
            return None
        itself = "x-opt-ORIG-MESSAGE-ID" in annotations or "_AMQ_ORIG_MESSAGE_ID" in headers
        if not itself and ORIGIN in headers:
            # A copy has its own header with the original destination, which can be a topic.
            return None
        return records[0] if len(set(records)) == 1 else ""

    def _recorded(self, address: str, marks: Mapping[str, Any], prefix: str) -> str:
        queue, routing = marks.get(f"{prefix}QUEUE"), marks.get(f"{prefix}ROUTING_TYPE")
        multicast = routing in (0, "0") or (routing is None and queue not in (None, address))
        return self.qualified(address, "topic" if multicast else "queue")

    def copy_properties(self, command: Forward) -> Iterator[tuple[str, str]]:
        for name, value in self._origin_of(command):
            yield f"_AMQ_ORIG_{name}", value

    def _origin_of(self, command: Forward) -> Iterator[tuple[str, str]]:
        address, _, queue = self.address(command.delivery.destination).partition("::")
        # The place may ask for the address of the queue, which can be another one.
        yield "ADDRESS", dict(command.marks).get(FILTERED, address)
        yield "QUEUE", queue or address

    def copy_annotations(self, command: Forward) -> Iterator[tuple[str, str]]:
        # For a message that arrived over AMQP, `retryMessages` reads these only. Without them it counts the message as
        # redriven, but does not move it.
        for name, value in self._origin_of(command):
            yield f"x-opt-ORIG-{name}", value


class AmqpBrokerJ(AmqpProfile):
    """Qpid Broker-J: a rejection only raises the count. A poison message is dead-lettered in a transaction."""

    capabilities = replace(
        BROKER_J.always,
        forward="atomic",
        transactions=True,
        flow=True,
        release=True,
        counts=True,
        browse=True,
        reschedule="atomic",
        # Held until the broker's housekeeping runs: every 30 s by default.
        reschedule_proof="held",
    )
    delay = "x-opt-delivery-time"
    delay_is_time = True
    reports_queues = True

    def for_queue(self, facts: QueueFacts, command: Subscribe) -> Capabilities | None:  # noqa: ARG002 - as the broker says
        told, alternate = facts.arguments.get(_LIMIT), facts.arguments.get("alternateBinding")
        limit = int(told) if isinstance(told, int) else 0
        if not isinstance(alternate, Mapping):
            return replace(self.capabilities, caution=_drops_after(limit) if limit > 0 else "")
        place = cast("Mapping[object, object]", alternate).get("destination")
        after = f" (after {limit} deliveries)" if limit > 0 else ""
        return replace(self.capabilities, own_dead_letters=f"the queue's alternateBinding {place}{after}")

    def address(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        return f"amq.topic/{name}" if kind == "topic" else name

    def qualified(self, address: str, kind: str) -> str:
        if address.startswith("amq.topic/"):
            return f"topic://{address[10:]}"
        return super().qualified(address, kind)


def _drops_after(limit: int) -> str:
    return (
        f"a message is dropped after {limit} deliveries that are lost with their connection ({_LIMIT}); give the queue "
        f"an alternateBinding, or {_LIMIT}=0, which is no limit"
    )


_PRODUCTS: dict[str, type[AmqpProfile]] = {
    "ActiveMQ": AmqpClassic,
    "apache-activemq-artemis": AmqpArtemis,
    "Apache Qpid Broker-J Core": AmqpBrokerJ,
    "RabbitMQ": AmqpRabbitMQ,
}
_NAMED = {profile.capabilities.broker: profile for profile in _PRODUCTS.values()}


def profile_for(
    properties: Mapping[str, object], broker: BrokerName, settings: Settings | None = None
) -> AmqpProfile:
    """Return the profile for the properties of the broker's open frame, or for the `broker` that the user names.

    Raises ConfigurationError for other brokers, and for settings that this broker does not support.
    """
    product = str(properties.get("product", ""))
    profile = _PRODUCTS.get(product) if broker == "auto" else _NAMED[broker]
    if profile is None:
        name = product or "a broker that does not send its name (set redelivery.broker)"
        raise ConfigurationError(
            f"{name} over AMQP is not supported; ActiveMQ Classic, ActiveMQ Artemis, Qpid Broker-J and RabbitMQ are"
        )
    if profile is AmqpRabbitMQ:
        version = numbers(str(properties.get("version", "")))
        if AmqpRabbitMQ4.speaks(version):
            return AmqpRabbitMQ4(version, settings)
    return profile(settings)


def named_profile(broker: str, version: str) -> AmqpProfile:
    """Return the profile of a broker by its name in `Capabilities` and its version.

    Raises ConfigurationError if there is no profile of that name.
    """
    if broker not in _NAMED:
        raise ConfigurationError(f"{broker} over AMQP is not supported; {', '.join(_NAMED)} are")
    return profile_for({"version": version}, cast("BrokerName", broker))
