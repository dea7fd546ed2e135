"""Declarations on RabbitMQ 4 before a link is attached: queues, and the queue and bindings of a topic's consumer.

A queue is looked up first, and declared only if it does not exist. If a user without the right to configure declares a
queue, the broker ends the session, even if the queue exists. Results are not cached, because any client can delete a
queue: each link costs one round trip. On Broker-J, where a link creates its queue, a queue is only looked up.

Every method runs under the wire's lock.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from redelivery.adapter_support.refusals import passes
from redelivery.core.capabilities import STREAM, cannot_spare
from redelivery.core.destination import Destination
from redelivery.errors import AdapterError, ConfigurationError, RedeliveryError, TransportError
from redelivery_amqp.queue_facts import QueueFacts
from redelivery_amqp.rabbitmq_profile import QUEUES, TOPICS, queue_address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redelivery.core.commands import Subscribe
    from redelivery_amqp.management_link import Management, Reply
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_amqp.receiver import ReceiverLink

    Answer = Callable[[RedeliveryError | None], None]
    Found = Callable[["QueueFacts | None", RedeliveryError | None], None]

__all__ = ["Declarations"]

# Characters of the broker's error text in an error message.
LONGEST = 500
_MISSING, _DIFFERENT = 404, 409
_UNKNOWN_TYPE = f"the broker does not tell this user the type of this queue; if it is a stream: {STREAM}"
TOPICS_OF = "x-redelivery-topics"
"""Queue argument that names the topics of a durable subscription; the broker keeps unknown arguments."""
_QUEUE: Mapping[str, object] = {"durable": True, "exclusive": False, "auto_delete": False, "arguments": {}}
# The queue ends with its connection, as the subscription does.
_OF_ONE_CONSUMER: Mapping[str, object] = {
    "durable": True,
    "exclusive": True,
    "auto_delete": True,
    "arguments": {},
}


class Declarations:
    """Declarations of one connection: none on brokers where a link creates its queue."""

    def __init__(self, management: Management, container: str, epoch: int, profile: AmqpProfile) -> None:
        self._profile = profile
        self._management = management
        self._container = container
        self._epoch = epoch

    def for_sender(
        self, destination: str | None, then: Answer, *, dead: bool, beside: Subscribe | None = None
    ) -> None:
        """Declare the destination of a sender, then call `then` with the error or None.

        Args:
            destination: Qualified destination; None: the transaction coordinator, which needs no declaration.
            then: Called once, perhaps before this method returns.
            dead: The destination is a dead-letter queue, with its own arguments.
            beside: Consumer whose dead letters it takes. Beside a quorum queue this becomes one, too: a classic queue
                is on one node, and no dead letter would get past its end.
        """
        kind, _, name = (destination or "").partition("://")
        if kind != "queue" or not self._profile.declares:
            then(None)
            return
        arguments = self._profile.dead_letter_arguments if dead else self._profile.queue_arguments

        def answer(_: QueueFacts | None, error: RedeliveryError | None) -> None:
            then(error)

        if beside is None or "x-queue-type" in arguments or not beside.destination.startswith("queue://"):
            self._queue(name, arguments, answer)
            return

        def found(facts: QueueFacts | None, _: RedeliveryError | None) -> None:
            kind = facts.kind if facts is not None else self._arguments_of(beside).get("x-queue-type")
            alike = self._profile.lasting({"x-queue-type": "quorum", **arguments})
            self._queue(name, alike if kind == "quorum" else arguments, answer)

        self._look(queue_address(beside.destination.partition("://")[2]), found)

    def for_receiver(self, receiver: ReceiverLink, then: Answer) -> None:
        """Declare the destination of a consumer, and set the receiver's `facts` to those of its queue."""

        def found(facts: QueueFacts | None, error: RedeliveryError | None) -> None:
            receiver.facts = facts
            self._warn_of_stream(receiver, facts)
            then(self._unable(receiver) if error is None else error)

        def found_native(facts: QueueFacts | None, error: RedeliveryError | None) -> None:
            self._warn_of_stream(receiver, facts)
            then(error or _unreadable(receiver, facts))

        kind, _, name = receiver.destination.partition("://")
        if self._profile.reports_queues and kind == "queue":
            self._look(name, found)
        elif not self._profile.declares:
            then(None)
        elif kind == "queue":
            arguments = self._arguments_of(receiver.command)
            self._queue(name, arguments, found, existing=receiver.command.existing)
        elif kind == "topic":
            _TopicQueue(self._management, receiver, self._topic_queue(receiver), found).declare()
        elif name.startswith(QUEUES):
            self._look(name, found_native)
        else:
            then(None)

    def _warn_of_stream(self, receiver: ReceiverLink, facts: QueueFacts | None) -> None:
        """Warn of a queue that this user may not look up: a stream is attached as any other queue is."""
        if facts is None and self._profile.declares:
            receiver.able = replace(self._profile.capabilities, caution=_UNKNOWN_TYPE)

    def _arguments_of(self, command: Subscribe) -> Mapping[str, object]:
        """Return the arguments with which the queue of a consumer is declared."""
        arguments = self._profile.queue_arguments
        # A queue of another type could not hold messages back, and would occupy the name.
        return {"x-queue-type": "quorum", **arguments} if command.rescheduled else arguments

    def _unable(self, receiver: ReceiverLink) -> RedeliveryError | None:
        """Return why the broker cannot do with a consumer's queue what the consumer needs; None: it can."""
        facts = receiver.facts
        if not self._profile.declares:
            return None
        if (unreadable := _unreadable(receiver, facts)) is not None:
            return unreadable
        if receiver.command.spared:
            return self._unspared(receiver)
        if not receiver.command.rescheduled or (facts is not None and facts.kind == "quorum"):
            return None
        if facts is None or not facts.kind:
            why = f"the broker does not report the type of {receiver.destination}"
        else:
            why = f"{receiver.destination} is a {facts.kind} queue, in which RabbitMQ holds no message back"
        return AdapterError(
            f"redelivery.scheduler=broker: {why}; use a quorum queue: delete this queue when it is empty, and it is "
            "declared again as one (redelivery.queueArguments=x-queue-type:quorum), or use another name"
        )

    def _unspared(self, receiver: ReceiverLink) -> RedeliveryError | None:
        """Return why messages of a queue that are released may be dropped; None: they are kept."""
        profile, facts, command = self._profile, receiver.facts, receiver.command
        able = None if facts is None else profile.for_queue(facts, command)
        why = cannot_spare(receiver.destination, able or profile.capabilities, known=able is not None)
        return None if why is None else ConfigurationError(why, option="despite_limit")

    def _topic_queue(self, receiver: ReceiverLink) -> str:
        subscription = receiver.command.subscription
        if subscription is not None:
            # The form in which Artemis names the queue of a durable subscription.
            return f"{self._container}.{subscription}"
        # Not the link's name: another process may have the same client id, or the broker may not have noticed the loss
        # of a connection with it. The broker refuses a queue that is exclusive to another connection.
        return f"{self._container}-{self._epoch}-{receiver.consumer}-{uuid.uuid4()}"

    def _queue(
        self,
        name: str,
        arguments: Mapping[str, object],
        then: Found,
        *,
        existing: bool = False,
    ) -> None:
        management, path = self._management, queue_address(name)

        def looked(reply: Reply) -> None:
            if reply.status == _MISSING and existing:
                then(None, AdapterError(f"the broker has no queue {name}"))
            elif reply.status == _MISSING:
                management.ask("PUT", path, {**_QUEUE, "arguments": dict(arguments)}, declared)
            else:
                known(reply)

        def declared(reply: Reply) -> None:
            if reply.status == _DIFFERENT:
                # Another client has declared the queue meanwhile, with other arguments.
                management.ask("GET", path, None, known)
            elif reply.done:
                known(reply)
            else:
                then(None, _refused(f"queue {name}", reply))

        known = partial(_known, then)
        management.ask("GET", path, None, looked)

    def _look(self, path: str, then: Found) -> None:
        self._management.ask("GET", path, None, partial(_known, then))


class _TopicQueue:
    """Queue of one consumer of a topic, and its bindings.

    An argument names the topics of a durable subscription's queue. Bindings cannot be listed without their keys
    (RabbitMQ 4.3.6), and a queue that is also bound to other topics would receive their messages for ever.
    """

    def __init__(
        self,
        management: Management,
        receiver: ReceiverLink,
        name: str,
        then: Found,
    ) -> None:
        self._management = management
        self._name = name
        self._then = then
        self._subscription = receiver.command.subscription
        self._keys = [_key(member.name) for member in Destination.parse(receiver.destination).members]
        self._topics = ",".join(self._keys)
        self._facts: QueueFacts | None = None
        receiver.address = queue_address(name)

    def declare(self) -> None:
        """Declare the queue, then its bindings."""
        body = _OF_ONE_CONSUMER
        if self._subscription is not None:
            body = {**_QUEUE, "arguments": {TOPICS_OF: self._topics}}
        self._management.ask("PUT", queue_address(self._name), body, self._declared)

    def _declared(self, reply: Reply) -> None:
        if not reply.done and reply.status != _DIFFERENT:
            self._then(None, _refused(f"queue {self._name}", reply))
            return
        self._facts = QueueFacts.of(reply.body) if reply.done else None
        topics = self._facts.arguments.get(TOPICS_OF) if self._facts is not None else None
        if self._subscription is not None and topics not in (None, self._topics):
            self._then(
                None,
                AdapterError(
                    f"the durable subscription {self._subscription} exists for {topics}, not for {self._topics}; use "
                    f"another name, or delete its queue {self._name} first"
                ),
            )
            return
        self._bind()

    def _bind(self) -> None:
        key, *self._keys = self._keys
        body: Mapping[str, object] = {
            "source": TOPICS,
            "destination_queue": self._name,
            "binding_key": key,
            "arguments": {},
        }
        self._management.ask("POST", "/bindings", body, self._bound)

    def _bound(self, reply: Reply) -> None:
        if not reply.done:
            self._then(None, _refused(f"queue {self._name} bound to {TOPICS}", reply))
        elif self._keys:
            self._bind()
        else:
            self._then(self._facts, None)


def _key(topic: str) -> str:
    """Return the binding key of a topic: `>` at the end becomes `#`, any number of words."""
    return f"{topic[:-1]}#" if topic == ">" or topic.endswith(".>") else topic


def _known(then: Found, reply: Reply) -> None:
    if isinstance(reply.error, TransportError):
        then(None, reply.error)
    else:
        # A user who may not look up a queue may be allowed to consume: the answer to the attach decides.
        then(QueueFacts.of(reply.body) if reply.done else None, None)


def _unreadable(receiver: ReceiverLink, facts: QueueFacts | None) -> AdapterError | None:
    if facts is None or facts.kind != "stream":
        return None
    return AdapterError(f"{receiver.destination} cannot be consumed: {STREAM}")


def _refused(what: str, reply: Reply) -> RedeliveryError:
    if isinstance(reply.error, TransportError):
        return reply.error
    why = str(reply.error if reply.error is not None else reply.body or f"status {reply.status}")
    # For a request that it cannot take, the broker sends pages of its stack trace.
    first = why.partition("\n")[0]
    return AdapterError(f"the broker refused to declare the {what}: {first[:LONGEST]}", passes=passes(why))
