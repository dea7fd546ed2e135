"""A MESSAGE frame as a delivery. Its header block stays bytes until a header is read."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from redelivery.core.delivery import DIGEST, BodyKind, Delivery
from redelivery_stomp.frame_proof import BROWSES
from redelivery_stomp.frames import Headers, RawHeaders, date_of, number
from redelivery_stomp.identifying_headers import KNOWN_BY, OF_DELIVERY
from redelivery_stomp.made_up_names import makes_sense
from redelivery_stomp.unsettled_deliveries import UnsettledDeliveries

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from datetime import datetime

    from redelivery.core.commands import Subscribe
    from redelivery_stomp.column_rules import ColumnRule
    from redelivery_stomp.windows import Window

__all__ = ["DeliveryProfile", "StompDelivery", "Subscription"]

# Highest priority. RabbitMQ allows 255; JMS ends at 9.
MOST_URGENT = 255
# In a message that came to ActiveMQ Classic over AMQP. Its producer may have set its id:
# docs/measured/activemq-stomp-messages.md, "Ids of AMQP producers".
FROM_AMQP = b"\nJMS_AMQP_"
# Bytes. A header block up to this size stays whole in `let_go`. Ten thousand of them are kept.
SMALL = 4096
# A value that no header has.
NO_VALUE = b"\n"


class DeliveryProfile(Protocol):
    """The part of its broker's profile that a delivery uses: reads a MESSAGE, and settles it.

    `StompProfile` implements it, and describes each name.
    """

    handle: ClassVar[bytes]
    group_header: ClassVar[str]
    protocol_headers: ClassVar[frozenset[str]]
    makes: ClassVar[type[StompDelivery] | None]
    poison: ClassVar[bytes]
    release: ClassVar[bytes]
    gives_back: ClassVar[bool]

    def qualified(self, address: str, kind: str) -> str: ...
    def names_one_queue(self, destination: str) -> bool: ...
    def identity(self, message_id: str) -> str: ...
    def settles(self, message_id: str) -> bool: ...
    def body_kind(self, head: bytes, body: bytes, headers: RawHeaders) -> BodyKind: ...
    def origin(self, headers: RawHeaders) -> str | None: ...
    def moved(self, headers: RawHeaders) -> bool: ...
    def died_of(self, headers: RawHeaders) -> str | None: ...
    def window(self, command: Subscribe) -> Window | None: ...


class Subscription:
    """State that all deliveries of one subscription share."""

    __slots__ = (
        "asked",
        "command",
        "consumer",
        "destination",
        "ended",
        "epoch",
        "identity",
        "kind",
        "last",
        "make",
        "one_queue",
        "owner",
        "profile",
        "unsettled",
        "version",
        "window",
    )

    def __init__(
        self, command: Subscribe, epoch: int, profile: DeliveryProfile, version: str, owner: str = ""
    ) -> None:
        """Make the state; `owner`: name of the adapter, which no other adapter of any process has."""
        self.owner = owner
        self.command = command
        self.consumer = command.consumer
        self.destination = command.destination
        self.epoch = epoch
        self.profile = profile
        self.version = version
        # True after its SUBSCRIBE was written.
        self.asked = False
        self.ended = False
        self.identity = f"{BROWSES}{command.consumer}" if command.browse else str(command.consumer)
        self.kind = command.destination.partition("://")[0]
        self.one_queue = profile.names_one_queue(command.destination)
        # Destination of its last message: as on the wire, and qualified.
        self.last: tuple[bytes, str] = NO_VALUE, ""
        self.window = profile.window(command)
        self.make = profile.makes or StompDelivery
        # The broker drops the messages of a plain topic subscription when it ends: there is nothing to release.
        kept = not profile.gives_back and (self.kind != "topic" or command.subscription is not None)
        self.unsettled = UnsettledDeliveries() if kept else None


class StompDelivery(Delivery):
    """One MESSAGE frame."""

    __slots__ = ("_raw", "head", "source")
    # Properties that a subclass reads differently.
    columns: ClassVar[Mapping[str, ColumnRule]] = {}

    def __init__(self, source: Subscription, head: bytes, body: bytes) -> None:
        # Inline, because it runs for each message: a call of super().__init__ costs as much as the rest.
        self.consumer = source.consumer
        self.epoch = source.epoch
        self.body = body
        self.seq = 0
        self.state = "ready"
        self.outcome = None
        self.record = None
        self.source = source
        self.head = head
        self._raw: RawHeaders | None = None

    @property
    def raw(self) -> RawHeaders:
        """All headers, unescaped."""
        raw = self._raw
        if raw is None:
            raw = self._raw = RawHeaders(self.head)
        return raw

    def read_ahead(self) -> None:
        """Read all headers at once: one by one, each read is a search."""
        self.raw.read()

    def field(self, name: bytes) -> bytes:
        """Return one header as on the wire, without reading the others; empty if it is missing.

        The first header of a name is the broker's own: a producer's follows it.
        """
        head = self.head
        at = head.find(name)
        if at < 0:
            return b""
        at += len(name)
        end = head.find(b"\n", at)
        return head[at:end] if end >= 0 else head[at:]

    def stored(self) -> tuple[bytes, bytes]:
        return self.head, self.body

    @staticmethod
    def stored_all(deliveries: Sequence[Delivery]) -> tuple[list[bytes], list[bytes | None]]:
        own = cast("Sequence[StompDelivery]", deliveries)
        return [each.head for each in own], [each.body for each in own]

    def arrived_at(self, wall: float) -> None:
        """Set the time of the arrival, in seconds since the Unix epoch, if a property depends on it."""

    def let_go(self) -> Delivery:
        self.body = b""
        head = self.head
        if len(head) <= SMALL:
            return self
        # A new delivery: the application may still have this one, and read its headers.
        lines = [line for line in head.split(b"\n") if line.startswith(KNOWN_BY)]
        return self.source.make(self.source, b"\n".join((b"", *lines, b"")), b"")

    @property
    def settleable(self) -> bool:
        # Read for each message: most have no such property.
        return FROM_AMQP not in self.head or self.source.profile.settles(self.raw.get("message-id") or "")

    @property
    def nameable(self) -> bool:
        """True if a frame can name this delivery: it has a handle without NUL and line ends."""
        source = self.source
        names = (
            (source.profile.handle,) if source.version == "1.2" else (b"\nmessage-id:", b"\nsubscription:")
        )
        return all(
            (value := self.field(name)) and b"\0" not in value and b"\r" not in value for name in names
        )

    def settlement(self, command: bytes) -> bytes:
        """Return the `ACK` or `NACK` frame of this delivery, up to its last header."""
        if self.source.version == "1.2":
            return b"%b\nid:%b\n" % (command, self.field(self.source.profile.handle))
        return b"%b\nmessage-id:%b\nsubscription:%b\n" % (
            command, self.field(b"\nmessage-id:"), self.field(b"\nsubscription:"),
        )  # fmt: skip

    def poisoned(self) -> bytes:
        """Return the frame of the broker's own poison acknowledgement, up to its last header."""
        return self.settlement(b"NACK") + self.source.profile.poison

    def returned(self) -> bytes:
        """Return the frame that releases this delivery, if the broker has one; empty if no frame can name it."""
        if not self.nameable:
            return b""
        return b"%b%b\n\0" % (self.settlement(b"NACK"), self.source.profile.release)

    @property
    def key(self) -> Hashable | None:
        head, source = self.head, self.source
        if b"\\" in head or b"\r" in head:
            identity = source.profile.identity(self.raw.get("message-id") or "")
            return (self.destination, identity, self.raw.get("timestamp")) if identity else None
        # A ledger reads it for each message: finding three headers is faster than reading all.
        identity = source.profile.identity(self.field(b"\nmessage-id:").decode("utf-8", "replace"))
        if not identity:
            return None
        written = self.field(b"\ndestination:")
        if written != source.last[0]:
            source.last = written, self.destination
        timestamp = self.field(b"\ntimestamp:")
        return source.last[1], identity, timestamp.decode("utf-8", "replace") if timestamp else None

    @property
    def strong(self) -> bool:
        # If the producer may have set the id, the message is also identified by its bytes.
        return not self.digested

    def slim(self) -> int:
        return len(self.head) + len(self.body)

    @property
    def dated(self) -> bool:
        return self.field(b"\ntimestamp:") not in (b"", b"0")

    def digest(self) -> bytes:
        # Without any line of these names: a producer's may come first (ActiveMQ Classic, a line end in a property's
        # name).
        lines = [line for line in self.head.split(b"\n") if not line.startswith(OF_DELIVERY)]
        return blake2b(b"\n".join(sorted(lines)) + b"\0" + self.body, digest_size=DIGEST).digest()

    @property
    def identity(self) -> str | None:
        return self.source.profile.identity(self.raw.get("message-id") or "") or None

    @property
    def destination(self) -> str:
        source = self.source
        if source.one_queue:
            return source.destination
        told = source.profile.qualified(self.raw.get("destination") or "", source.kind)
        return told if told == source.destination or makes_sense(told) else source.destination

    @property
    def origin(self) -> str | None:
        return self.source.profile.origin(self.raw)

    @property
    def moved(self) -> bool:
        return self.source.profile.moved(self.raw)

    @property
    def died_of(self) -> str | None:
        return self.source.profile.died_of(self.raw)

    @property
    def redelivered(self) -> bool:
        return self.field(b"\nredelivered:") == b"true"

    @property
    def expires_at(self) -> float | None:
        head = self.head
        at = head.find(b"\nexpires:")
        # Runs for each message: no call that is not needed.
        if at < 0 or head.startswith(b"0\n", at + 9):
            return None
        value = number(self.field(b"\nexpires:"))
        return value / 1000 if value else None

    @property
    def group(self) -> str | None:
        return self.raw.get(self.source.profile.group_header)

    @property
    def persistent(self) -> bool:
        return self.field(b"\npersistent:") == b"true"

    @property
    def body_kind(self) -> BodyKind:
        return self.source.profile.body_kind(self.head, self.body, self.raw)

    @property
    def message_id(self) -> str | None:
        # The id that stays the same: a listed dead letter is found again by it.
        return self.identity

    @property
    def headers(self) -> Headers:
        return Headers(self.head, self.source.profile.protocol_headers, self._raw)

    @property
    def content_type(self) -> str | None:
        return self.raw.get("content-type")

    @property
    def correlation_id(self) -> str | None:
        return self.raw.get("correlation-id")

    @property
    def reply_to(self) -> str | None:
        value = self.raw.get("reply-to")
        return None if value is None else self.source.profile.qualified(value, "queue")

    @property
    def message_type(self) -> str | None:
        return self.raw.get("type")

    @property
    def priority(self) -> int:
        value = number(self.raw.get("priority"))
        return 4 if value is None or value > MOST_URGENT else value

    @property
    def timestamp(self) -> datetime | None:
        return date_of(self.raw.get("timestamp"))

    @property
    def expiration(self) -> datetime | None:
        return date_of(self.raw.get("expires"))
