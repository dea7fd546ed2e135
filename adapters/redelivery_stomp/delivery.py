"""A MESSAGE frame as a delivery. Its header block stays bytes until a header is read."""

from __future__ import annotations

import re
import threading
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, cast

from redelivery.core.broker_redelivery import original_expiry
from redelivery.core.dead_lettering.dead_letter_headers import LONGEST
from redelivery.core.delivery import DIGEST, BodyKind, Delivery
from redelivery.core.destination import Destination
from redelivery.core.policy.wildcards import covers, is_pattern
from redelivery.errors import ConfigurationError
from redelivery_stomp.frame_scanner import BROWSES
from redelivery_stomp.frames import Headers, RawHeaders, date_of, makes_sense, number, unescape

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from datetime import datetime

    from redelivery.core.commands import Subscribe
    from redelivery_stomp.windows import Window

__all__ = [
    "ArtemisDelivery",
    "ClassicDelivery",
    "ColumnRule",
    "Returnable",
    "StompDelivery",
    "Subscription",
    "UnsettledDeliveries",
    "kind_on_artemis",
]


# ---- Identifying headers ---------------------------------------------------------------------------------
# Header lines that identify a message over its deliveries, and those that differ between two deliveries of it.

# Header lines with a new value for each delivery (x-acquired-count: RabbitMQ 4.3, quorum queues).
OF_DELIVERY = (
    b"message-id:",
    b"ack:",
    b"subscription:",
    b"redelivered:",
    b"x-delivery-count:",
    b"x-acquired-count:",
)
# Header lines that identify a message if the broker made its id.
KNOWN_BY = (b"message-id:", b"timestamp:", b"destination:")


# ---- Unsettled deliveries --------------------------------------------------------------------------------
# Unsettled deliveries of a subscription whose end does not release them.


class Returnable(Protocol):
    """A delivery that can be released."""

    def returned(self) -> bytes:
        """Return the frame that releases it."""
        ...


class UnsettledDeliveries:
    """The unsettled deliveries of one subscription. The reading thread adds them; any thread settles them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[Returnable] = set()
        self._ended = False

    def take(self, deliveries: Sequence[Returnable]) -> bool:
        """Add deliveries that arrived; return True if their consumer has not ended."""
        with self._lock:
            self._held.update(deliveries)
            return not self._ended

    def settled(self, deliveries: Iterable[Returnable]) -> None:
        """Remove deliveries whose settlement is being written."""
        # Not at the same time as `end`, which would return a delivery that is just being settled: its release would
        # follow its settlement.
        with self._lock:
            self._held.difference_update(deliveries)

    def end(self) -> list[Returnable]:
        """Return the deliveries to release. Later arrivals are returned by the next call."""
        with self._lock:
            self._ended = True
            held, self._held = self._held, set()
            return list(held)


# ---- Delivery --------------------------------------------------------------------------------------------

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
    queue_mark: ClassVar[bytes]
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
        "mark",
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
        # Looked for until it is found: it shows the type of the queue.
        self.mark = profile.queue_mark
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


# ---- Artemis delivery ------------------------------------------------------------------------------------
# A MESSAGE of ActiveMQ Artemis: a quick check finds the kind of most bodies.

EXPIRES, LENGTH, IDENTITY = b"\nexpires:", b"\ncontent-length:", b"\nmessage-id:"
# First bytes of a body that may be a value in the broker's own encoding, or in AMQP's.
ENCODED_FIRST = b"\0\1"
# In the headers of a message that came over AMQP, or has no time: its bytes may be any value (`artemis_bodies`).
DOUBTFUL = (b"\nJMS_AMQP_", b"\nNATIVE_MESSAGE_ID:", b"\ntimestamp:0\n")


class ArtemisDelivery(StompDelivery):
    """One MESSAGE of Artemis."""

    __slots__ = ()

    def plain(self, now: float) -> bool:
        head, body = self.head, self.body
        at = head.find(EXPIRES)
        # Runs for each message: no call that is not needed.
        if body and body[0] not in ENCODED_FIRST and (at < 0 or head.startswith(b"0\n", at + 9)):
            length = head.find(LENGTH)
            if length < 0 or length > head.find(IDENTITY):
                # A text.
                return True
            doubtful, foreign, undated = DOUBTFUL
            # `find` costs half of `in`.
            if head.find(doubtful) < 0 and head.find(foreign) < 0 and head.find(undated) < 0:
                return True
        return super().plain(now)


# ---- Artemis bodies --------------------------------------------------------------------------------------
# Kind of the body of an Artemis message. Some bodies of AMQP producers do not arrive whole over STOMP.
#
# Measured (docs/measured/artemis-stomp-messages.md): the place of `content-length` shows if a body is bytes or a
# text.

# Headers that Artemis adds to a message that came over AMQP. A message without a time is from an AMQP producer, or
# from a JMS client with `setDisableMessageTimestamp`.
FROM_AMQP_PRODUCER = re.compile(rb"\n(?:JMS_AMQP_|NATIVE_MESSAGE_ID:)")
UNDATED = b"\ntimestamp:0\n"
# First bytes of an encoded AMQP message: the descriptor of a section.
ENCODED = re.compile(rb"\0(?:S|\x80\0{7})[\x70-\x78]")

# Values of `JMS_AMQP_ORIGINAL_ENCODING` for AMQP data, and for a binary value.
AMQP_BYTES = frozenset({"2", "6"})


def kind_on_artemis(head: bytes, body: bytes, headers: RawHeaders) -> BodyKind:
    """Return the type that a copy of a message must have, or why its body cannot be copied."""
    length, identity = head.find(b"\ncontent-length:"), head.find(b"\nmessage-id:")
    core, amqp = headers.get("__AMQ_CID"), headers.get("JMS_AMQP_ORIGINAL_ENCODING")
    if not body:
        # A message of the broker's own JMS client has `__AMQ_CID`; one of an AMQP producer has the encoding. An
        # Object, a Map or a list of either arrives empty, like an empty text.
        if core or amqp:
            return "unknown" if length < 0 else "unknown-bytes"
        return "text" if length < 0 else "bytes"
    if 0 <= length < identity:
        # An AMQP number or symbol arrives in its encoding, or as that many arbitrary bytes (2.40.0). Such a message
        # has AMQP headers, or, unlike a STOMP producer's message, no time. An answer may have copied `__AMQ_CID` and
        # the encoding from its question, with all other properties: the other signs are stronger.
        if amqp:
            # A text or a Map with a property `content-length` also gets here, in the broker's own encoding (2.40.0).
            whole = amqp in AMQP_BYTES
        else:
            # A JMS client that sets no time sends bytes.
            undated = UNDATED in head and not core
            whole = not (undated or FROM_AMQP_PRODUCER.search(head) or (core and _encoded_text(body)))
        return "bytes" if whole and not ENCODED.match(body) else "partial"
    # A Map arrives as a text in the broker's own encoding, which begins with a NUL.
    return "partial" if body.startswith(b"\0") else "text"


def _encoded_text(body: bytes) -> bool:
    """True if a body is a text in the broker's encoding: a byte 1, the size in four bytes, then UTF-16."""
    if body[:1] != b"\1" or int.from_bytes(body[1:5], "big") != len(body) - 5:
        return False
    try:
        body[5:].decode("utf-16-le")
    except UnicodeDecodeError:
        return False
    return True


# ---- Classic delivery ------------------------------------------------------------------------------------
# A MESSAGE of ActiveMQ Classic. A producer's properties replace the broker's own headers: these prove nothing.
#
# Measured (docs/measured/activemq-stomp-messages.md, "Forged frames"): only `subscription`, and `ack` where one is
# to be acknowledged, are always Classic's.

# In the header block of a message that does not expire.
EXPIRES_LINE, LIVES = b"\nexpires:", b"\nexpires:0\n"


class ClassicDelivery(StompDelivery):
    """One MESSAGE of Classic. Its producer may have written its id and time."""

    __slots__ = ("arrived",)
    digested: ClassVar[bool] = True

    def __init__(self, source: Subscription, head: bytes, body: bytes) -> None:
        # Not by super(), which is slower: this runs for each message.
        StompDelivery.__init__(self, source, head, body)
        self.arrived = 0.0 if LIVES in head else time.time()

    def arrived_at(self, wall: float) -> None:
        if self.arrived:
            self.arrived = wall

    def plain(self, now: float) -> bool:
        head = self.head
        if FROM_AMQP in head:
            # Classic may not be able to settle it.
            return False
        # A body that is not empty arrived whole.
        lives = head.startswith(LIVES, head.find(EXPIRES_LINE))
        return bool(self.body) if lives else super().plain(now)

    @property
    def expires_at(self) -> float | None:
        head = self.head
        # Runs for each message: no call that is not needed.
        if head.startswith(LIVES, head.find(EXPIRES_LINE)):
            return None
        # Classic sends no message that has expired by its own clock. A time in the past comes from a clock here that is
        # ahead, or from a property of this name.
        at = super().expires_at
        at = at if at is not None and at > self.arrived else None
        # Its scheduler sends a copy late, by up to half a second (6.1.7), and moves the expiry by that.
        return original_expiry(at, self.noted) if at is not None else None

    @property
    def key(self) -> Hashable | None:
        # A ledger reads it for each message: finding three headers is faster than reading all.
        if b"\r" in self.head:
            identity, timestamp = self.message_id, self.raw.get("timestamp")
        else:
            identity, timestamp = self._text(b"\nmessage-id:"), self._text(b"\ntimestamp:") or None
        return (self.destination, identity, timestamp) if identity else None

    def _text(self, name: bytes) -> str:
        return unescape(self.field(name).decode("utf-8", "replace"))

    @property
    def destination(self) -> str:
        source = self.source
        written = self.field(b"\ndestination:")
        if not written or written != source.last[0]:
            address = self.raw.get("destination") or ""
            source.last = written, confined(source.profile, address, source.destination)
        return source.last[1]

    @property
    def fanned_out(self) -> bool:
        # A message of a topic, a virtual topic, a composite queue or a composite address shares its id with others, of
        # which Classic keeps one dead letter. It shows where such a message was sent first
        # (docs/measured/activemq-fan-out.md). So does a dead letter, and one that was moved back.
        own = self.destination
        kind = own.partition("://")[0]
        if kind not in ("queue", "temp-queue") or self.raw.get("original-destination") is not None:
            return True
        # A virtual topic with setOriginalDestination=false leaves its own name in the message.
        return self.source.profile.qualified(self.raw.get("destination") or "", kind) != own


def confined(profile: DeliveryProfile, address: str, consumed: str) -> str:
    """Return the destination of a message that arrived for a consumer of `consumed`.

    A consumer of one destination gets no other destination's messages. For a pattern the header names the destination.
    A name that the pattern does not match is forged: the result is then the pattern itself. The same goes for a name
    that is too long.
    """
    kind, _, name = consumed.partition("://")
    own = profile.qualified(name, "queue") if kind == "native" else consumed
    claimed = profile.qualified(address, kind)
    plain = own.partition("?")[0]
    if len(claimed) > LONGEST:
        return plain
    try:
        told = Destination.parse(claimed)
        if kind.startswith("temp-") and claimed.startswith(f"{kind}://ID:"):
            # The broker's name of a temporary destination differs from the name here.
            return claimed
        bounds = Destination.parse(own)
        one = not (is_pattern(told) or told.options or len(told.members) > 1)
        if one and any(covers(member, told) for member in bounds.members):
            return claimed
    except ConfigurationError:
        # A name that is no destination is none of the consumer's.
        pass
    return plain


# ---- Column rules ----------------------------------------------------------------------------------------
# Rules by which a kind of delivery reads a property, if it differs from the others, for thousands at once.


class ColumnRule(NamedTuple):
    """The headers that one property is read from, each of which occurs once, and the function of their values."""

    headers: tuple[str, ...]
    read: Callable[..., Any]
