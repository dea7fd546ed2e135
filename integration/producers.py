"""Producers of four protocols that set all they can, and what a reader of the same kind finds on a message.

What is found is a mapping of names to values as text, typed where the protocol types them: the names are those of the
protocol, headers and properties have their kind before them.
"""

from __future__ import annotations

import datetime as dt
import importlib
import uuid
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from integration.java_client import JavaClient
from integration.raw_amqp import RawAmqp, proton
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from integration.brokers import Broker
    from integration.java_client import Property

__all__ = ["PIKA", "Java", "Pika", "Producer", "Proton", "Stomp", "producers_of"]

BODY = b"\x1f\x8b the body"
PIKA = find_spec("pika") is not None
WHEN = dt.datetime(2023, 11, 14, 22, 13, 20)  # noqa: DTZ001 - pika takes no other
# One value of each type. pika has no floats; its decimals would stop an AMQP 1.0 consumer of RabbitMQ 4.
_TYPES: dict[str, Any] = {
    "text": "b", "int": 3, "long": 2**40, "boolean": True, "none": None, "bytes": b"\xff\1", "time": WHEN,
    "list": ["a", 1, {"k": True}], "table": {"a": {"b": [1]}},
}  # fmt: skip


class Producer(ABC):
    """A client of one kind, connected to one broker; use it in a `with`."""

    name: str

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def __enter__(self) -> Self:
        """Connect where the client keeps a connection."""
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 - most keep no connection
        """Close."""

    @abstractmethod
    def send(self, queue: str) -> None:
        """Send one persistent message with all that this client can set; the queue exists from then on."""

    @abstractmethod
    def read(self, queue: str, timeout: float) -> dict[str, str] | None:
        """Take one message; return what it has, without handles and counts; None if none arrives in time."""


class Pika(Producer):
    """AMQP 0.9.1."""

    name = "AMQP 0.9.1 (pika)"

    def __enter__(self) -> Self:
        """Connect, with confirmations."""
        pika: Any = importlib.import_module("pika")
        self._properties = pika.BasicProperties
        login = pika.PlainCredentials(self.broker.user, self.broker.password)
        where = pika.ConnectionParameters(self.broker.host, self.broker.ports["amqp"], credentials=login)
        self._connection = pika.BlockingConnection(where)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self._connection.close()

    def send(self, queue: str) -> None:
        """Publish with each property, and each type of a header twice: RabbitMQ 4 treats `x-…` differently."""
        headers = {**_TYPES, **{f"x-{name}": value for name, value in _TYPES.items()}}
        told = self._properties(
            headers=headers, delivery_mode=2, content_type="application/json", content_encoding="gzip",
            type="order.created", app_id="shop", user_id=self.broker.user, timestamp=1_700_000_000,
            message_id=f"m-{uuid.uuid4().hex}", correlation_id="c-1", priority=7, reply_to="answers",
        )  # fmt: skip
        self._channel.queue_declare(queue, durable=True, arguments=dict(self.broker.queue_arguments))
        self._channel.basic_publish("", queue, BODY, told)

    def read(self, queue: str, timeout: float) -> dict[str, str] | None:
        """Take one message."""
        self._channel.queue_declare(queue, durable=True, arguments=dict(self.broker.queue_arguments))
        for _, told, body in self._channel.consume(queue, auto_ack=True, inactivity_timeout=timeout):
            self._channel.cancel()
            if told is None:
                return None
            found = {name: value for name, value in vars(told).items() if value is not None}
            headers = found.pop("headers", None) or {}
            return _texts(found | {"body": body} | _named("header", headers), "message_id", "timestamp")
        return None


class Proton(Producer):
    """AMQP 1.0. With `simple` types only: over STOMP brokers end the consumer of a message that has the others."""

    def __init__(self, broker: Broker, *, simple: bool) -> None:
        super().__init__(broker)
        self._simple = simple
        self.name = f"AMQP 1.0 (proton), {'simple' if simple else 'all'} types"

    def send(self, queue: str) -> None:
        """Send with each field, and values of each type as properties and annotations."""
        symbol = proton.symbol
        typed = {
            "text": "b",
            "int": proton.int32(3),
            "ulong": proton.ulong(2**40),
            "boolean": True,
            "double": 1.5,
        }
        nested: dict[str, Any] = {}
        if not self._simple:
            typed |= {
                "bytes": b"\xff\1",
                "time": proton.timestamp(7000),
                "uuid": uuid.UUID(int=7),
                "symbol": symbol("s"),
            }
            nested = {"list": ["a", proton.int32(1)], "map": {"k": True, "m": ["x"]}}
        notes = {symbol(f"x-opt-{name}"): value for name, value in {**typed, **nested}.items()}
        with RawAmqp(self.broker) as raw:
            raw.send(
                queue, BODY, inferred=True, priority=7, user_id=self.broker.user.encode(), subject="order.created",
                content_type=symbol("application/json"), content_encoding=symbol("gzip"), group_id="g",
                group_sequence=3, reply_to_group_id="r", correlation_id=uuid.UUID(int=9), properties=typed,
                reply_to=self.broker.address("answers"), annotations=notes,
            )  # fmt: skip

    def read(self, queue: str, timeout: float) -> dict[str, str] | None:
        """Take one message."""
        with RawAmqp(self.broker) as raw:
            raw.declare(queue)
            address, options = self.broker.address(queue), raw._options("source")
            receiver = raw.connection.create_receiver(address, credit=1, name="reads", options=options)
            try:
                told = receiver.receive(timeout)
            except proton.Timeout:
                return None
            receiver.accept()
            if self.broker.declares:
                receiver.close()
        fields = ("user_id", "subject", "content_type", "content_encoding", "group_id", "group_sequence", "priority",
                  "reply_to_group_id", "correlation_id", "reply_to", "durable", "body")  # fmt: skip
        found = {name: getattr(told, name) for name in fields}
        return _texts(
            {name: value for name, value in found.items() if value not in (None, "", b"", 0)}
            | _named("annotation", told.annotations or {})
            | _named("property", told.properties or {}),
            "annotation x-exchange",
            "annotation x-routing-key",
        )


class Stomp(Producer):
    """STOMP 1.2."""

    name = "STOMP"

    def send(self, queue: str) -> None:
        """SEND with each header that a broker knows, and two of the application's."""
        rabbit = {"content-encoding": "gzip", "app-id": "shop", "user-id": self.broker.user}
        known = rabbit if self.broker.name.startswith("rabbitmq") else {"JMSXGroupID": "g"}
        told = {
            "content-type": "application/json", "correlation-id": "c-1", "reply-to": self.broker.destination("answers"),
            "type": "order.created", "priority": "7", "persistent": "true", "text": "b", "x-text": "b", **known,
            "content-length": str(len(BODY)),
        }  # fmt: skip
        with RawStomp(self.broker) as raw:
            raw.send_frame(queue, BODY, told)

    def read(self, queue: str, timeout: float) -> dict[str, str] | None:
        """Take one message."""
        with RawStomp(self.broker) as raw:
            raw.subscribe(queue)
            frame = raw.next(timeout)
            if frame is None:
                return None
            raw.ack(frame)
        dull = ("destination", "subscription", "ack", "message-id", "timestamp", "expires", "redelivered", "receipt",
                "amqp-message-id", "x-queue-type", "content-length", "destination-type")  # fmt: skip
        return _texts({**frame.headers, "body": frame.body}, *dull)


class Java(Producer):
    """JMS, by one of the Java clients."""

    def __init__(self, broker: Broker, kind: str) -> None:
        super().__init__(broker)
        self._kind = kind
        self.name = {"openwire": "JMS (OpenWire)", "core": "JMS (Core)", "qpid": "JMS (Qpid, AMQP 1.0)"}[kind]

    def __enter__(self) -> Self:
        """Start Java."""
        self._client = JavaClient(self.broker, self._kind).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._client.close()

    def send(self, queue: str) -> None:
        """Send a text with each header, and a property of each type."""
        typed: dict[str, Property] = {
            "text": "b", "boolean": True, "byte": ("byte", 1), "short": ("short", 2), "int": 3, "long": 2**40,
            "float": ("float", 0.5), "double": 1.5,
        }  # fmt: skip
        self._client.send(queue, b"body", properties=typed, priority=7, correlation_id="c-1", type="order.created",
                          reply_to=self.broker.jms_name("answers"), group="g")  # fmt: skip

    def read(self, queue: str, timeout: float) -> dict[str, str] | None:
        """Take one message."""
        for found in self._client.drain(queue, timeout=timeout, limit=1):
            typed = {
                name: f"{found.property_types[name]} {value}" for name, value in found.properties.items()
            }
            own = {
                "kind": found.kind, "body": found.body, "correlation id": found.correlation_id, "type": found.type,
                "reply to": found.reply_to, "priority": found.priority, "persistent": found.persistent,
            }  # fmt: skip
            own = {name: value for name, value in own.items() if value is not None}
            return _texts(own | _named("property", typed), "property JMSXDeliveryCount", "property __AMQ_CID")
        return None


def producers_of(broker: Broker) -> list[Producer]:
    """Return all producers of a broker."""
    found: list[Producer] = [Java(broker, kind) for kind in broker.java_clients]
    found += [Proton(broker, simple=simple) for simple in (True, False)]
    if "stomp" in broker.services:
        found.append(Stomp(broker))
    if broker.name.startswith("rabbitmq") and PIKA:
        found.append(Pika(broker))
    return found


def _named(kind: str, values: Mapping[Any, Any]) -> dict[str, Any]:
    return {f"{kind} {name}": value for name, value in values.items()}


def _texts(found: Mapping[str, Any], *without: str) -> dict[str, str]:
    return {name: _text(value) for name, value in found.items() if name not in without}


def _text(value: Any) -> str:
    plain = value.tobytes() if isinstance(value, memoryview) else value
    return plain if isinstance(plain, str) and type(plain) is str else f"{type(plain).__name__} {plain!r}"
