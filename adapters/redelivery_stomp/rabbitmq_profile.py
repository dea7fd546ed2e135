"""Profile of RabbitMQ over STOMP; measured (docs/measured/rabbitmq-stomp.md).

A message has another id at each delivery. Only the end of the connection releases unsettled messages. No ERROR names
the request that it refuses.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote

from redelivery.brokers.facts import numbers
from redelivery.brokers.rabbitmq import DELIVERY_LIMIT, RABBITMQ
from redelivery.core.dead_lettering.routing import COPY
from redelivery.core.destination import no_such_kind
from redelivery.settings import QUEUE_ARGUMENTS
from redelivery_stomp.delivery import ColumnRule, StompDelivery, Subscription
from redelivery_stomp.frame_limits import RABBITMQ_LIMITS
from redelivery_stomp.frames import NEVER, number, unescape
from redelivery_stomp.profile_base import PROTOCOL, StompProfile
from redelivery_stomp.receipts import REQUEST
from redelivery_stomp.windows import SlotWindow

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Forward, Subscribe
    from redelivery.core.delivery import BodyKind
    from redelivery.core.outgoing import Outgoing
    from redelivery.settings import Settings
    from redelivery_stomp.frames import RawHeaders
    from redelivery_stomp.windows import Window

__all__ = ["RabbitDelivery", "StompRabbitMQ"]

# Headers that declare, type, expire or sign a message, and those of a message from an AMQP 1.0 client.
OWN = QUEUE_ARGUMENTS | {
    "amqp-message-id", "app-id", "auto-delete", "content-encoding", "durable", "exclusive", "expiration",
    "prefetch-count", "user-id", "x-acquired-count", "x-amqp-1.0-app-properties",
    "x-amqp-1.0-delivery-annotations", "x-amqp-1.0-footer",
    "x-amqp-1.0-header", "x-amqp-1.0-message-annotations", "x-amqp-1.0-properties", "x-delivery-count", "x-queue-name",
}  # fmt: skip
FROM_AMQP = b"\nx-amqp-1.0-"
# Properties of AMQP 0.9.1 that SEND sets by a header of the same name.
KEPT = ("content-encoding", "app-id", "user-id")
# Of an answer's address that is a plain queue. In SEND the address must be without it.
REPLIES = "/reply-queue/"
# RabbitMQ 3.10.8: names in the text of an ERROR. Nothing else in it identifies its request.
_RESOURCE, _QUOTED = re.compile(r"(?:queue|exchange) '([^']*)'"), re.compile(r"'([^']*)'")
# A line that the deliveries of a quorum queue have from the second one on, and those of a classic queue have not.
# Nothing else over STOMP shows the type of a queue that is there already (docs/measured/rabbitmq-stomp.md, "Messages").
COUNTED = b"\nx-delivery-count:"
_COPY = f"\n{COPY}:".encode()
EXPIRES = b"\nexpiration:"
# Highest x-message-ttl.
LONGEST_MS = 2**32 - 1
# RabbitMQ removes a queue that was made for one message after this time without use.
IDLE_MS = 60_000
# Versions from which a quorum queue has a limit by default, and from which only losses count against it.
_FIRST_LIMIT, _LOSSES_ONLY = (4,), (4, 3)
# RabbitMQ refuses a larger one.
MAX_PREFETCH = 65535
# A timestamp from this value on is in milliseconds, as AMQP 1.0 clients send it; a smaller one in seconds.
MILLISECONDS = 10**11


def _either(own: str | None, ours: str | None) -> str | None:
    return own or ours


def _time_of(value: str | bytes | None) -> datetime | None:
    at = number(value)
    if at is None or at >= NEVER:
        return None
    return datetime.fromtimestamp(at / 1000 if at >= MILLISECONDS else at, UTC)


class RabbitDelivery(StompDelivery):
    """One MESSAGE of RabbitMQ. The application's headers come before those that the broker makes of properties."""

    __slots__ = ("arrived",)
    digested: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, ColumnRule]] = {
        "identity": ColumnRule(("amqp-message-id", "redeliveryId"), _either),
        "timestamp": ColumnRule(("timestamp",), _time_of),
    }

    def __init__(self, source: Subscription, head: bytes, body: bytes) -> None:
        # Not by super(), which is slower: this runs for each message.
        StompDelivery.__init__(self, source, head, body)
        self.arrived = time.time()

    def arrived_at(self, wall: float) -> None:
        self.arrived = wall

    def plain(self, now: float) -> bool:
        head = self.head
        if not self.body or EXPIRES in head or _COPY in head or FROM_AMQP in head:
            return super().plain(now)
        return True

    def properties(self) -> Iterator[tuple[str, str]]:
        """Yield the properties that a copy has only if SEND names them, if they came."""
        for name in KEPT:
            if value := self._property(f"\n{name}:".encode()):
                yield name, unescape(value.decode("utf-8", "replace"))

    def _property(self, name: bytes) -> bytes:
        """Return a message property: the last header of its name, because the application's comes before it."""
        head = self.head
        at = head.rfind(name)
        return head[at + len(name) :].partition(b"\n")[0] if at >= 0 else b""

    @property
    def message_id(self) -> str | None:
        # Not the header `message-id`: it is the handle of this one delivery.
        return self.raw.get("amqp-message-id") or self.raw.get("redeliveryId")

    @property
    def key(self) -> Hashable | None:
        identity = self.message_id
        return None if identity is None else (self.destination, identity, self.raw.get("timestamp"))

    @property
    def identity(self) -> str | None:
        return self.message_id

    @property
    def destination(self) -> str:
        # For a queue the header names the exchange.
        return self.source.destination if self.source.kind == "queue" else super().destination

    @property
    def broker_count(self) -> int | None:
        return number(self.field(COUNTED))

    @property
    def persistent(self) -> bool:
        return self._property(b"\npersistent:") == b"true"

    @property
    def expires_at(self) -> float | None:
        head = self.head
        # Runs for each message: no call that is not needed.
        lives = number(self._property(EXPIRES)) if EXPIRES in head else None
        if lives is None and _COPY not in head:
            # Without the property, a header `expires` is the application's own. A delayed copy is the exception: a
            # delay queue drops the property.
            return None
        at = super().expires_at
        # This library writes `expires`, in milliseconds. How long another producer's message was in the queue is
        # unknown.
        return self.arrived + lives / 1000 if at is None and lives is not None else at

    @property
    def expiration(self) -> datetime | None:
        at = self.expires_at
        return datetime.fromtimestamp(at, UTC) if at is not None and at * 1000 < NEVER else None

    @property
    def content_encoding(self) -> str | None:
        return dict(self.properties()).get("content-encoding")

    @property
    def timestamp(self) -> datetime | None:
        return _time_of(self._property(b"\ntimestamp:"))


class StompRabbitMQ(StompProfile):
    """RabbitMQ 3 with its STOMP plugin. A part of a transaction may be carried out.

    A dead letter is confirmed before its message is acknowledged.
    """

    capabilities = replace(
        RABBITMQ.always,
        forward="confirmed",
        release=True,
        grows=True,
        reschedule="confirmed",
        reschedule_needs="the right to declare queues named redelivery.delay.*",
        longest_delay=LONGEST_MS / 1000,
        # Two keep the number of delay queues small.
        delay_digits=2,
        not_delivered="lists, tables, booleans, times, floating-point numbers and bytes in headers of AMQP producers",
    )
    handle = b"\nack:"
    # RabbitMQ 3.10.8: a message or a subscription that it does not have, or no longer has; an acknowledgement that came
    # too late; a shut-down (docs/measured/rabbitmq-stomp-errors.md). The last text is from 4.3: messages of a quorum
    # queue were unacknowledged for too long, or a queue was removed.
    no_refusal = re.compile(
        "[Ss]ubscription (not )?found|unknown delivery tag|delivery acknowledgement .*timed out|CONNECTION_FORCED|"
        "Server cancelled subscription"
    )
    frame_limits = RABBITMQ_LIMITS
    group_header = "JMSXGroupID"
    # RabbitMQ closes the connection after most ERRORs. After the others this library does: no ERROR names the request
    # that was refused.
    closes = True
    # The answer to a SEND or SUBSCRIBE that follows one which ended the channel, if RabbitMQ reads it before the
    # channel's end, less than a millisecond later: 248 of 300 times for three refused SENDs in one write (3.10.8).
    vague = "Processing error"
    protocol_headers = PROTOCOL | OWN
    makes = RabbitDelivery
    # With `persistent:false` RabbitMQ may declare a queue that it removes with this connection.
    non_persistent = None
    poison = b"requeue:false\n"
    release = b"requeue:true\n"
    gives_back = False
    declares = True
    queue_mark = COUNTED
    _prefixes: ClassVar = {"queue": "/queue/", "topic": "/topic/"}
    _read: ClassVar = (("/queue/", "queue"), ("/amq/queue/", "queue"), ("/topic/", "topic"))

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self.user = None if settings is None else settings.user_name

    def able(self, version: str) -> Capabilities:
        found = super().able(version)
        # Of a quorum queue; over STOMP the broker does not report the type of a queue (4.0.5).
        counts = _FIRST_LIMIT <= numbers(version) < _LOSSES_ONLY
        return replace(found, release_limit=DELIVERY_LIMIT) if counts else found

    def for_consumer(self, command: Subscribe, able: Capabilities) -> Capabilities | None:
        declared = ("x-queue-type", "quorum") in self.queue_arguments
        return self.for_marked(command, able) if declared else None

    def for_marked(self, command: Subscribe, able: Capabilities) -> Capabilities | None:
        if numbers(able.version) < _FIRST_LIMIT:
            return None
        kind, _, name = command.destination.partition("://")
        if command.subscription is not None:
            name = self._subscribed_queue(command)
        elif kind == "native":
            name = unquote(name.rpartition("/")[2])
        return replace(
            able,
            loss_limit=DELIVERY_LIMIT,
            caution=(
                f"a quorum queue of RabbitMQ {able.version} drops a message after {DELIVERY_LIMIT} lost connections, "
                "unless a policy or an argument of the queue says otherwise, which STOMP does not tell: rabbitmqctl "
                f"set_policy --apply-to quorum_queues redelivery '^{re.escape(name)}$' '{{\"delivery-limit\":-1}}'"
            ),
        )

    def address(self, destination: str) -> str:
        kind, _, name = destination.partition("://")
        if kind == "native":
            return name
        if kind not in self._prefixes:
            raise no_such_kind(destination)
        return self._prefixes[kind] + name.replace("%", "%25").replace("/", "%2F")

    def target(self, message: Outgoing) -> str:
        address = self.address(message.destination)
        if message.delay is None:
            return address
        return f"/queue/redelivery.delay.{self.capabilities.delay_ms(message.delay)}.{address.removeprefix('/queue/')}"

    def delay_headers(self, message: Outgoing) -> Iterator[tuple[str, object]]:
        # A queue for each delay: in one queue, a message would expire only after the longer ones before it.
        if message.delay is not None:
            yield "x-message-ttl", self.capabilities.delay_ms(message.delay)
            yield "x-dead-letter-exchange", ""
            yield "x-dead-letter-routing-key", message.destination.partition("://")[2]
            # Never for a queue of the application's messages: RabbitMQ removes it with its messages.
            yield "x-expires", IDLE_MS if message.private else None

    def pattern(self, destination: str) -> str:
        address = self.address(destination)
        many = destination.startswith("topic://") and address.endswith(("/>", ".>"))
        return f"{address[:-1]}#" if many else address

    def standing(self, destination: str) -> str:
        address = self.address(destination)
        return f"/amq{address}" if address.startswith("/queue/") else address

    def qualified(self, address: str, kind: str) -> str:
        for prefix, read in self._read:
            if address.startswith(prefix):
                return f"{read}://{unquote(address[len(prefix) :])}"
        return f"native://{address}" if address.startswith("/") else f"{kind}://{address}"

    def identity(self, message_id: str) -> str:
        del message_id
        # The id differs at each delivery.
        return ""

    def body_kind(self, head: bytes, body: bytes, headers: RawHeaders) -> BodyKind:
        del body
        if FROM_AMQP in head:
            # The properties, and most bodies, arrive in AMQP's encoding.
            return "partial"
        return "text" if headers.get("amq-msg-type") == "text" else "bytes"

    def window(self, command: Subscribe) -> Window | None:
        # A further subscription cannot end before its consumer: RabbitMQ would not release its prefetched messages.
        return SlotWindow(command, 1, one_by_one=False) if self.grows(command) else None

    def subscribe_headers(self, command: Subscribe) -> Iterator[tuple[str, object]]:
        yield "prefetch-count", min(self.first_window(command), MAX_PREFETCH)
        if command.subscription is not None:
            yield "durable", True
            yield "auto-delete", False
            yield "x-queue-name", self._subscribed_queue(command)
        elif command.private:
            yield "x-expires", IDLE_MS
        elif command.destination.startswith("queue://") and not command.existing:
            yield from self.queue_arguments

    def _subscribed_queue(self, command: Subscribe) -> str:
        return f"stomp-subscription-{self.client_id}.{command.subscription}"

    def send_headers(self, message: Outgoing) -> Iterator[tuple[str, object]]:
        yield "content-length", len(message.body)
        if message.body_kind == "text":
            yield "amq-msg-type", "text"
        if message.expires_at is not None:
            yield "expiration", max(0, int((message.expires_at - time.time()) * 1000))
        # RabbitMQ sets no time on a message. With a time, the bytes of a message identify it over its deliveries.
        yield "timestamp", int(time.time())
        if "redeliveryId" in message.headers and "amqp-message-id" not in message.headers:
            yield "amqp-message-id", message.headers["redeliveryId"]

    def reply_address(self, destination: str) -> str:
        return self.address(destination).removeprefix(REPLIES)

    def copy_headers(self, command: Forward) -> Iterator[tuple[str, object]]:
        delivery = command.delivery
        yield "amqp-message-id", delivery.message_id
        if isinstance(delivery, RabbitDelivery):
            for name, value in delivery.properties():
                # The broker ends the connection over a `user-id` that is not the user of the connection.
                if name != "user-id" or value == self.user:
                    yield name, value

    def redrive_headers(self, command: Forward) -> Iterator[tuple[str, object]]:
        yield from self.copy_headers(command)
        # A delayed copy has another id than its message.
        if command.delayed:
            yield "amqp-message-id", command.copy.headers.get(COPY)

    def origin(self, headers: RawHeaders) -> str | None:
        queue = headers.get("x-first-death-queue")
        return f"queue://{queue}" if queue else None

    def died_of(self, headers: RawHeaders) -> str | None:
        reason = headers.get("x-first-death-reason")
        # "rejected" is not a cause: only the consumer knows the reason.
        return None if reason == "rejected" else reason

    def problem(self, destination: str) -> str | None:
        if destination.startswith("temp-"):
            return f"{destination}: RabbitMQ has no temporary queues or topics over STOMP"
        return None

    def cannot_keep(self, destination: str) -> str | None:
        if destination.startswith(("native:///amq/queue/", "native:///exchange/")):
            return (
                f"{destination}: RabbitMQ confirms and drops a message there if no queue takes it; "
                "use queue://NAME, which is declared"
            )
        return self.problem(destination)

    def cannot_send(self, message: Outgoing) -> str | None:
        if message.delay is not None and not message.private:
            return "RabbitMQ cannot delay messages over STOMP: remove delay="
        if message.reply_to is not None and (wrong := self.problem(message.reply_to)) is not None:
            return wrong
        return self.problem(message.destination)

    def names(self, text: str, address: str, request: str = REQUEST) -> bool:
        kind, _, name = address.removeprefix("/amq").lstrip("/").partition("/")
        parts = [unquote(part) for part in name.split("/")]
        # The right to write to a queue is that of the exchange through which its messages go.
        exchanges = {"topic": ["amq.topic"], "queue": [] if request == REQUEST else ["amq.default"]}
        known = {address, f"/{name}", unquote(name), *parts[:1], *exchanges.get(kind, ())}
        # An ERROR also quotes the virtual host and the user, which may have the same name as a queue.
        quoted = _RESOURCE.findall(text) or _QUOTED.findall(text)
        return not known.isdisjoint(quoted)
