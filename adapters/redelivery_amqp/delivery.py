"""A message as AMQP brings it: bytes whose sections are found on arrival and read when somebody asks."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from uuid import UUID

from redelivery.core.broker_redelivery import original_expiry
from redelivery.core.dead_lettering.routing import COPY
from redelivery.core.delivery import BodyKind, Delivery
from redelivery_amqp import codec
from redelivery_amqp.codec import decoded
from redelivery_amqp.notes import noted
from redelivery_amqp.sections import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    CREATION,
    DELIVERY_COUNT,
    DURABLE,
    EXPIRY,
    FIRST_ACQUIRER,
    GROUP_ID,
    HEADER_FIELDS,
    LASTING,
    MESSAGE_ID,
    PRIORITY,
    PROPERTIES_FIELDS,
    REPLY_KINDS,
    REPLY_TO,
    SUBJECT,
    TO,
    TTL,
    SaltedUUID,
    bare,
    fields_in,
    other_body,
    payload,
    short_keys,
    text_of,
    texts_in,
    time_of,
    typed,
)
from redelivery_amqp.whole_messages import copyable

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from datetime import datetime

    import proton

    from redelivery.core.commands import Subscribe
    from redelivery_amqp.io_thread import Handle
    from redelivery_amqp.profile_base import AmqpProfile
    from redelivery_amqp.sections import LargeMaps
    from redelivery_amqp.settlement_progress import SettlementProgress
    from redelivery_amqp.subscribed_names import SubscribedNames

__all__ = ["AmqpDelivery", "DeliverySource"]


# ---- Delivery --------------------------------------------------------------------------------------------

# `x-opt-jms-msg-type` of JMS clients: bodies that are neither text nor bytes.
JMS_TYPES = {0: "a JMS Message", 1: "a JMS Object", 2: "a JMS Map", 4: "a JMS Stream"}


_OUR_IDS = short_keys(COPY, "redeliveryId")
# Bytes of a message that are kept when its body is dropped.
_SMALL = 2048


class AmqpDelivery(Delivery):
    """One delivery of one message on one link."""

    __slots__ = ("_fields", "_properties", "arrived", "handle", "number", "places", "raw", "source")
    digested: ClassVar[bool] = True

    def __init__(
        self, source: DeliverySource, raw: bytes, handle: Handle | None, number: int, arrived: float
    ) -> None:
        # Written out, because it runs once per message: a call of super().__init__ costs as much as the rest.
        self.consumer = source.consumer
        self.epoch = source.epoch
        self.seq = 0
        self.state = "ready"
        self.outcome = None
        self.record = None
        self.source = source
        self.raw = raw
        self.handle = handle
        self.number = number
        self.arrived = arrived  # wall clock
        self._fields: dict[int, list[Any]] = {}
        self._properties: dict[str, Any] | None = None
        try:
            places = codec.sections(raw)
        except codec.Unknown:
            # Not a message: it has no section, or one that is not AMQP.
            places = []
        self.places = places
        code, begin, end = places[-1] if places else (0, 0, 0)
        kind = self.raw[begin] if code == codec.DATA and (len(places) == 1 or places[-2][0] != code) else 0
        if kind == 0xA0:
            self.body = self.raw[begin + 2 : end]
        elif kind == 0xB0:
            self.body = self.raw[begin + 5 : end]
        else:
            body = other_body(raw, places)
            if body is None:
                # Not a message: the application gets the bytes as they arrived.
                self.places, body = [], raw
            self.body = body

    def stored(self) -> tuple[bytes, bytes | None]:
        at = payload(self.raw, self.places)
        return (self.raw, None) if at is None else (self.raw[:at], self.body)

    def plain(self, now: float) -> bool:
        # Runs for each message. The header has no time to live if it has few fields, or if that field is null.
        raw = self.raw
        if (
            raw[:4] == b"\x00Sp\xc0"
            and (raw[5:6] < b"\3" or raw[6:10] in LASTING)
            and self.places
            and self.body
        ):
            return True
        return super().plain(now)

    def let_go(self) -> Delivery:
        self._forget_values()
        self.body = b""
        if len(self.raw) > _SMALL and self.places and self.places[-1][0] == codec.DATA:
            self.places = [each for each in self.places if each[0] not in codec.BODIES]
            self.raw = self.raw[: self.places[-1][2]] if self.places else b""
        return self

    def slim(self) -> int:
        self._forget_values()
        self.body = b""
        return len(self.raw)

    def _forget_values(self) -> None:
        """Drop the values that were read from the bytes, which need more memory; they are read again when needed."""
        if self._fields:
            self._fields = {}
        self._properties = None
        self.source.large.forget((self,))

    # Sections.

    def place(self, code: int) -> int | None:
        """Return where the value of a section begins, or None if there is none."""
        for found, begin, _ in self.places:
            if found == code:
                return begin
        return None

    def _field(self, code: int, number: int, size: int) -> Any:
        fields = self._fields.get(code)
        if fields is None:
            at = self.place(code)
            try:
                fields = [] if at is None else codec.read_list(self.raw, at, size)
            except codec.Unknown:
                fields = [] if at is None else fields_in(self.raw, at, size)
            fields = self._fields[code] = typed(fields, code)
        return fields[number] if number < len(fields) else None

    def header(self, number: int) -> Any:
        """Return a field of the header section, or None."""
        # Runs for each message: most headers are a short list that ends before the field.
        raw = self.raw
        if raw[:4] == b"\x00Sp\xc0" and self.places and len(raw) > 5 and raw[5] <= number:
            return None
        return self._field(codec.HEADER, number, HEADER_FIELDS)

    def field(self, number: int) -> Any:
        """Return a field of the properties section, or None."""
        return self._field(codec.PROPERTIES, number, PROPERTIES_FIELDS)

    @property
    def annotations(self) -> Mapping[str, Any]:
        kept = self._fields.get(codec.MESSAGE_ANNOTATIONS)
        if kept is not None:
            found: Mapping[str, Any] = kept[0]
            return found
        found, small = self._map(codec.MESSAGE_ANNOTATIONS)
        if small:
            self._fields[codec.MESSAGE_ANNOTATIONS] = [found]
        return found

    def _map(self, code: int) -> tuple[dict[str, Any], bool]:
        return self.source.large.read(self, self.raw, code, self.place(code), keeps=self.handle is not None)

    # Properties for the engine and the application.

    @property
    def size(self) -> int:
        # The properties can be as large as a body; and the body is kept twice.
        return len(self.raw) + len(self.body)

    @property
    def key(self) -> Hashable | None:
        identity: object = self.field(MESSAGE_ID)
        if identity is None and (identity := self._our_id()) is None:
            return None
        kind = type(identity)  # 1 and "1" are two ids
        if isinstance(identity, UUID):
            identity = SaltedUUID(bytes=identity.bytes)
        return self.destination, kind, identity, self.field(CREATION)

    @property
    def identity(self) -> str | None:
        identity: object = self.field(MESSAGE_ID)
        if identity is None:
            return self._our_id()
        return str(identity)

    @property
    def destination(self) -> str:
        source = self.source
        if not source.many:
            return source.destination
        to = source.profile.sent_to(self.annotations) if source.profile.declares else self.field(TO)
        return source.names.destination_of(to) if to else source.destination

    @property
    def origin(self) -> str | None:
        return self.source.profile.origin(self.annotations, self.headers)

    @property
    def moved(self) -> bool:
        return self.source.profile.moved(self.headers)

    @property
    def died_of(self) -> str | None:
        return self.source.profile.died_of(self.annotations, self.headers)

    @property
    def redelivered(self) -> bool:
        return bool(self.broker_count) or self.source.profile.redelivered(self.header(FIRST_ACQUIRER))

    @property
    def broker_count(self) -> int | None:
        return (self.header(DELIVERY_COUNT) or 0) if self.source.profile.tells_count else None

    @property
    def expires_at(self) -> float | None:
        ttl = self.header(TTL)
        if not ttl:
            return None
        told = self.field(EXPIRY)
        at = float(told / 1000 if told else self.arrived + ttl / 1000)
        return original_expiry(at, self.noted) if self.source.profile.delay_prolongs else at

    @property
    def group(self) -> str | None:
        group: str | None = self.field(GROUP_ID)
        return group

    @property
    def persistent(self) -> bool:
        return bool(self.header(DURABLE))

    @property
    def body_kind(self) -> BodyKind:
        at = self.place(codec.VALUE)
        return "text" if at is not None and self.raw[at] in codec.TEXTS else "bytes"

    @property
    def typed(self) -> tuple[str, ...]:
        at, jms = self.place(codec.VALUE), self.annotations.get("x-opt-jms-msg-type")
        value = at is not None and self.raw[at] not in codec.TEXTS and self.raw[at] not in codec.BINARIES
        words: list[str] = []
        if value or self.place(codec.SEQUENCE) is not None or jms in JMS_TYPES:
            kind = JMS_TYPES.get(jms) if isinstance(jms, int) else None
            words.append(f"a body that is {kind or 'a value of AMQP'}")
        identity = self.field(CORRELATION_ID)
        if identity is not None and not isinstance(identity, str):
            words.append(f"a correlation id that is a {type(identity).__name__}")
        return tuple(words)

    @property
    def fanned_out(self) -> bool:
        return self.source.profile.fans_out(self.destination)

    @property
    def readable(self) -> bool:
        return copyable(self.raw, self.places)

    @property
    def message_id(self) -> str | None:
        identity = self.field(MESSAGE_ID)
        return self._our_id() if identity is None else text_of(identity)

    def _our_id(self) -> str | None:
        """Return the id that this library gave the message; no other property is read."""
        at = self.place(codec.APPLICATION_PROPERTIES)
        if at is None:
            return None
        found = texts_in(self.raw, at, _OUR_IDS)
        # A delayed copy is another message.
        return (found.get(COPY) or found.get("redeliveryId")) if found else None

    @property
    def noted(self) -> Mapping[str, Any]:
        return noted(self.headers, self.annotations) if self.source.profile.holds_back else self.headers

    @property
    def headers(self) -> Mapping[str, Any]:
        found = self._properties
        if found is None:
            found, small = self._map(codec.APPLICATION_PROPERTIES)
            self._properties = found if small else None
        return found

    @property
    def content_type(self) -> str | None:
        kind = self.field(CONTENT_TYPE)
        return None if kind is None else str(kind)

    @property
    def content_encoding(self) -> str | None:
        encoding = self.field(CONTENT_ENCODING)
        return None if encoding is None else str(encoding)

    @property
    def correlation_id(self) -> str | None:
        identity = self.field(CORRELATION_ID)
        return None if identity is None else text_of(identity)

    @property
    def reply_to(self) -> str | None:
        address = self.field(REPLY_TO)
        if not address:
            return None
        number = self.annotations.get("x-opt-jms-reply-to", 0)
        kind = REPLY_KINDS.get(number, "queue") if isinstance(number, int) else "queue"
        return self.source.profile.qualified(address, kind)

    @property
    def message_type(self) -> str | None:
        subject: str | None = self.field(SUBJECT)
        if subject is None and self.source.profile.declares:
            # RabbitMQ 4 has the type of AMQP 0.9.1 producers there.
            subject = self.annotations.get("x-basic-type")
        return subject if isinstance(subject, str) else None

    @property
    def priority(self) -> int:
        priority: int | None = self.header(PRIORITY)
        return 4 if priority is None else max(0, min(priority, 9))

    @property
    def timestamp(self) -> datetime | None:
        return time_of(self.source.profile.created(self.field(CREATION)))

    @property
    def expiration(self) -> datetime | None:
        expires = self.expires_at
        return time_of(self.field(EXPIRY)) or (None if expires is None else time_of(int(expires * 1000)))

    @property
    def value(self) -> Any:
        for code, begin, end in self.places:
            if code in (codec.VALUE, codec.SEQUENCE):
                try:
                    return decoded(self.raw, begin, end)
                except codec.Unknown:
                    break
        return self.body

    @property
    def dated(self) -> bool:
        return self.field(CREATION) is not None

    def digest(self) -> bytes:
        """See Delivery."""
        found = blake2b(digest_size=16)
        for piece in bare(self.raw, self.places):
            found.update(piece)
        return found.digest()


# ---- Delivery source -------------------------------------------------------------------------------------
# Protocol class of the link that a delivery arrived on, as far as deliveries need it.


class DeliverySource(Protocol):
    """Link that a delivery arrived on; `ReceiverLink` implements it."""

    command: Subscribe
    consumer: int
    epoch: int
    profile: AmqpProfile
    destination: str
    kind: str
    many: bool
    names: SubscribedNames
    ended: bool
    session: Any
    progress: SettlementProgress
    unsettled: set[Any]
    large: LargeMaps

    @property
    def keeps_notes(self) -> bool:
        """True if the queue keeps notes on its messages."""
        ...

    def describe(self, source: proton.Terminus) -> None:
        """Fill in the source terminus: address, distribution mode, capabilities, durability."""
