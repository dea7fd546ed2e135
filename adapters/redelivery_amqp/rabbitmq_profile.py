"""Profile of RabbitMQ 3 with its AMQP 1.0 plugin; measured (docs/measured/rabbitmq-amqp.md)."""

from __future__ import annotations

from typing import ClassVar

from redelivery.core.capabilities import CONSUMER_TIMEOUT, Capabilities
from redelivery.core.destination import no_such_kind
from redelivery_amqp.profile_base import AmqpProfile

__all__ = ["AmqpRabbitMQ"]

# A creation time of this value or above is in milliseconds, a lower one in seconds.
_MILLISECONDS = 10**11


class AmqpRabbitMQ(AmqpProfile):
    """RabbitMQ 3 with its AMQP 1.0 plugin: no transactions, and `modified` ends the session."""

    capabilities = Capabilities(
        broker="rabbitmq",
        forward="confirmed",
        flow=True,
        release=True,
        # True for quorum queues, up to their delivery limit; over this protocol the type of a queue is not known.
        release_counts=True,
        counts=False,
        # The broker echoes the filter, and sends every message.
        selectors=False,
        # The group of a message is a property like any other.
        binds_groups=False,
        # The link of a durable subscription is attached, and gets no messages.
        subscriptions=False,
        queue_wildcards=False,
        # A rejected message goes to the dead-letter exchange; without one it is dropped.
        poison_on_request=True,
        ack_caution=(
            "redelivery.deadLetter=ack: RabbitMQ drops a poison message of a queue without a dead-letter exchange; "
            "give the queue one, or use auto"
        ),
        # consumer_timeout: after it the broker ends the session, and the messages are on the queue again.
        max_hold=CONSUMER_TIMEOUT,
        dead_letter_destination="queue://DLQ",
        reschedule_needs="it takes a queue with arguments for each delay, which are declared over STOMP only",
        not_delivered="all headers of AMQP 0.9.1 and STOMP producers, with their type, app-id and user-id",
    )
    durable_terminus = True
    sessions_in_turn = True
    checks_user = True
    tells_count = False  # always 0, of quorum queues too
    _prefixes: ClassVar = {"queue": "/queue/", "topic": "/topic/", "native": ""}

    def created(self, at: int | None) -> int | None:
        # The value of a message that arrived over STOMP is in seconds (3.10.8): read as milliseconds it is in 1970.
        return at * 1000 if at is not None and 0 < at < _MILLISECONDS else at

    def problem(self, destination: str) -> str | None:
        if destination.startswith("temp-"):
            return f"{destination}: RabbitMQ has no temporary queues or topics over AMQP 1.0"
        return None

    def address(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        if kind not in self._prefixes:
            raise no_such_kind(destination)
        return self._prefixes[kind] + name

    def standing(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        return f"/amq/queue/{name}" if kind == "queue" else self.address(destination)

    def qualified(self, address: str, kind: str) -> str:
        for prefix, read in (("/queue/", "queue"), ("/amq/queue/", "queue"), ("/topic/", "topic")):
            if address.startswith(prefix):
                return f"{read}://{address[len(prefix) :]}"
        return super().qualified(address, kind)

    def redelivered(self, first_acquirer: bool | None) -> bool:
        # The only redelivered mark of RabbitMQ 3; other brokers never set the field.
        return first_acquirer is False
