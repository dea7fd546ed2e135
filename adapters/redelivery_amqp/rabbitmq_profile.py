"""Profiles of RabbitMQ over AMQP 1.0: version 4, whose native protocol it is, and version 3 with its plugin."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote

from redelivery.brokers.rabbitmq import CONSUMER_TIMEOUT, DELIVERY_LIMIT, QUORUM_OPTIONS, RABBITMQ
from redelivery.core.capabilities import HOLDABLE, STREAM, Capabilities
from redelivery.core.dead_lettering.dead_letter_headers import ORIGIN
from redelivery.core.destination import no_such_kind
from redelivery_amqp.message_encoding import NULL
from redelivery_amqp.notes import noted
from redelivery_amqp.profile_base import AmqpProfile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.commands import Subscribe
    from redelivery.settings import QueueArguments, Settings
    from redelivery_amqp.queue_facts import QueueFacts

__all__ = ["QUEUES", "TOPICS", "AmqpRabbitMQ", "AmqpRabbitMQ4", "queue_address"]


# ---- Rabbitmq profile ------------------------------------------------------------------------------------
# Profile of RabbitMQ 3 with its AMQP 1.0 plugin; measured (docs/measured/rabbitmq-amqp.md).

# Nothing shows a stream before its first delivery: the plug-in has no management node, and attaches it as any queue
# (docs/measured/rabbitmq-amqp.md, "Streams").
_OF_A_STREAM = "x-stream-offset"
# A creation time of this value or above is in milliseconds, a lower one in seconds.
_MILLISECONDS = 10**11


class AmqpRabbitMQ(AmqpProfile):
    """RabbitMQ 3 with its AMQP 1.0 plugin: no transactions, and `modified` ends the session."""

    capabilities = replace(
        RABBITMQ.always,
        forward="confirmed",
        flow=True,
        release=True,
        # The link of a durable subscription is attached, and gets no messages.
        subscriptions=False,
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

    def for_delivered(self, annotations: Mapping[str, Any]) -> Capabilities | None:
        if _OF_A_STREAM not in annotations:
            return None
        return replace(
            self.capabilities, caution=f"a delivery has {_OF_A_STREAM}: this is a stream; {STREAM}"
        )

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


# ---- Rabbitmq4 profile -----------------------------------------------------------------------------------
# Profile of RabbitMQ 4, whose native protocol is AMQP 1.0: own address format, and queues that must be declared.

# Exchange of topics; STOMP and MQTT clients of the broker use it too.
TOPICS = "amq.topic"
_FIRST = (4,)
_SINCE_4_3 = (4, 3)
HOLDS_NOT_BACK = (
    "this is a classic queue, and stays one; in a new queue the broker can hold parked messages itself, over restarts "
    f"and for any consumer, with {QUORUM_OPTIONS}"
)
HOLDS_BACK = (
    "the broker can hold the parked messages of this queue itself, over restarts and for any consumer; set "
    "redelivery.scheduler=broker"
)
LONGEST_TIMEOUT = 12 * 3600.0
"""Seconds of the longest consumer timeout asked for. A message parked for longer is released before, and parked again
when it is redelivered."""
QUEUES = "/queues/"
"""Begin of the address of each queue, and of its path for the management node."""
_BY_TOPIC = f"/exchanges/{TOPICS}/"


class AmqpRabbitMQ4(AmqpProfile):
    """RabbitMQ from 4.0 on. `version`: the one that the broker reports; empty: unknown, and taken for the newest."""

    declares = True
    # Measured on 4.3.6 (docs/measured/rabbitmq-amqp.md, "A message that it cannot convert"): a decimal in a header of
    # AMQP 0.9.1 closes the connection, right after the consumer's credit. Over STOMP the message arrives.
    undelivered = "amqp:internal-error"
    deliver_elsewhere = (
        "consume the queue over STOMP, which delivers it, or remove it with the broker's console"
    )
    # Measured on 4.3.6: otherwise the next subscription after the end of one has no answer for 30 s.
    sessions_in_turn = True
    rest = "#"
    checks_user = True

    def __init__(self, version: tuple[int, ...] = (), settings: Settings | None = None) -> None:
        self._newest = not version or version >= _SINCE_4_3
        self.holds_back = self._newest
        self.capabilities = _capabilities(newest=self._newest)
        self._timeout = None if settings is None else settings.consumer_timeout
        self.queue_arguments = _typed(() if settings is None else settings.queue_arguments)
        self.dead_letter_arguments = self.lasting(
            _typed(() if settings is None else settings.dead_letter_arguments)
        )
        super().__init__(settings)

    def lasting(self, arguments: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        """Return the arguments of a dead-letter queue: without a limit, where each look would count against it.

        Measured on 4.0.5: the broker refuses the argument for a classic queue, also for one whose type is not given. On
        4.3.6 looks do not count; and a STOMP client, which cannot name the argument, could not use the queue.
        """
        if self._newest or arguments.get("x-queue-type") != "quorum":
            return arguments
        return {"x-delivery-limit": -1, **arguments}

    @staticmethod
    def speaks(version: tuple[int, ...]) -> bool:
        """True if a RabbitMQ of this version has this profile.

        Also for an unknown version: an older broker refuses what it does not know.
        """
        return not version or version >= _FIRST

    def problem(self, destination: str) -> str | None:
        if destination.startswith("temp-"):
            return f"{destination}: RabbitMQ has no temporary queues or topics over AMQP 1.0"
        return None

    def address(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        if kind == "native":
            return name
        if kind not in ("queue", "topic"):
            raise no_such_kind(destination)
        return queue_address(name) if kind == "queue" else _topic_address(name)

    def qualified(self, address: str, kind: str) -> str:
        for prefix, read in ((QUEUES, "queue"), (_BY_TOPIC, "topic")):
            if address.startswith(prefix):
                return f"{read}://{unquote(address[len(prefix) :])}"
        return super().qualified(address, kind)

    def consumer_timeout(self, hold: float | None) -> float | None:
        if not self._newest or self._timeout == 0.0:
            return None
        if self._timeout is not None:
            return self._timeout
        needed = LONGEST_TIMEOUT if hold is None else hold / HOLDABLE
        return min(max(CONSUMER_TIMEOUT, needed), LONGEST_TIMEOUT)

    def for_queue(self, facts: QueueFacts, command: Subscribe) -> Capabilities | None:
        quorum = facts.kind == "quorum"
        native = quorum and self._newest
        return replace(
            self.capabilities,
            counts=quorum or (self._newest and facts.kind == "classic"),
            # Otherwise the broker can drop a dead letter: without an exchange, or if no queue is bound to it.
            own_dead_letters=facts.own_dead_letters,
            poison_persistent=facts.keeps_dead_letters,
            poison_non_persistent=facts.keeps_dead_letters,
            reschedule="native" if native else "none",
            # RabbitMQ 4.3 takes no message of a classic queue back.
            max_hold=self.consumer_timeout(command.hold) if native else self.capabilities.max_hold,
            release_limit=None if self._newest else facts.delivery_limit,
            loss_limit=facts.delivery_limit,
            replicated=facts.kind in ("quorum", "stream"),
            caution=facts.drops_after("lost connections" if self._newest else "lost connections or releases"),
            advice=self._advice(facts, command),
        )

    def _advice(self, facts: QueueFacts, command: Subscribe) -> str:
        if command.rescheduled or not self._newest or not command.destination.startswith("queue://"):
            return ""
        return {"quorum": HOLDS_BACK, "classic": HOLDS_NOT_BACK}.get(facts.kind, "")

    def died_of(self, annotations: Mapping[str, Any], headers: Mapping[str, Any]) -> str | None:
        cause = noted({}, annotations).get("redeliveryCause", annotations.get("x-first-death-reason"))
        return cause if isinstance(cause, str) and cause else super().died_of(annotations, headers)

    def origin(self, annotations: Mapping[str, Any], headers: Mapping[str, Any]) -> str | None:
        queue = annotations.get("x-first-death-queue")
        if not isinstance(queue, str) or not queue or ORIGIN in headers:
            # A copy has its own header with the original destination, which can be a topic.
            return None
        return f"queue://{queue}"

    def sent_to(self, annotations: Mapping[str, Any]) -> str | None:
        # A producer may write any address into `to`.
        key, exchange = annotations.get("x-routing-key"), annotations.get("x-exchange")
        if not isinstance(key, str):
            return None
        if exchange == TOPICS:
            return _topic_address(key)
        return queue_address(key) if exchange == "" else None

    def takes_annotation(self, name: str, encoded: bytes) -> bool:
        # Measured on 4.3.6 (docs/measured/copies.md, "Annotations"): it detaches a sender over another name
        # ("reserved_annotation_key"). It takes a null, and ends the session of each consumer that it is delivered to.
        return name.startswith("x-") and encoded != NULL

    def redelivered(self, first_acquirer: bool | None) -> bool:
        return first_acquirer is False


def queue_address(name: str) -> str:
    """Return the address of a queue, which is also its path for the management node."""
    return f"{QUEUES}{quote(name, safe='')}"


def _topic_address(key: str) -> str:
    return f"{_BY_TOPIC}{quote(key, safe='')}"


def _capabilities(*, newest: bool) -> Capabilities:
    return replace(
        AmqpRabbitMQ.capabilities,
        # Before 4.3 a quorum queue counts released messages against its delivery limit.
        release_counts=not newest,
        release_limit=None if newest else DELIVERY_LIMIT,
        # Counts the messages that failed or were lost with their link; before 4.3 only quorum queues do.
        counts=newest,
        subscriptions=True,
        # Since 4.3 each consumer asks for its own timeout.
        max_hold=None if newest else CONSUMER_TIMEOUT,
        reschedule="native" if newest else "none",
        # The management node reports for each queue whether it can.
        reschedule_proof="certain",
        reschedule_needs="" if newest else "it takes version 4.3 and a quorum queue",
        not_delivered="lists and tables in headers of AMQP 0.9.1 producers, except in headers named x-…",
    )


def _typed(arguments: QueueArguments) -> dict[str, str | int | bool]:
    """Return arguments in the types that the broker requires: numbers as integers, `true` and `false` as booleans."""
    words = {"true": True, "false": False}
    return {
        name: int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else words.get(value, value)
        for name, value in arguments
    }
