"""A message as AMQP brings it: bytes whose sections are found on arrival and read when somebody asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from redelivery.core.dead_lettering.routing import COPY
from redelivery.core.delivery import BodyKind, Delivery
from redelivery_amqp import codec
from redelivery_amqp.fallback_decoding import decoded, fields_of, rewritten, typed
from redelivery_amqp.plain_values import plain, text_of, time_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from datetime import datetime

    import proton

    from redelivery_amqp.profiles import AmqpProfile
    from redelivery_amqp.proton_engine import Handle
    from redelivery_amqp.settlement_progress import SettlementProgress

__all__ = ["AmqpDelivery", "DeliverySource"]

_TEXTS = (0xA1, 0xB1)
_BINARIES = (0xA0, 0xB0)
# Bytes of a message that may stay when its body is let go of.
_SMALL = 2048
# Fields of the header and properties sections (AMQP 1.0 part 3, 3.2.1 and 3.2.4).
DURABLE, PRIORITY, TTL, FIRST_ACQUIRER, DELIVERY_COUNT = range(5)
(
    MESSAGE_ID, USER_ID, TO, SUBJECT, REPLY_TO, CORRELATION_ID, CONTENT_TYPE, CONTENT_ENCODING, EXPIRY, CREATION,
    GROUP_ID, GROUP_SEQUENCE, REPLY_TO_GROUP,
) = range(13)  # fmt: skip


class DeliverySource(Protocol):
    """The link that a delivery came over: `ReceiverLink` implements it."""

    consumer: int
    epoch: int
    profile: AmqpProfile
    destination: str
    kind: str
    many: bool
    ended: bool
    session: Any
    progress: SettlementProgress
    unsettled: set[AmqpDelivery]

    def describe(self, source: proton.Terminus) -> None:
        """Say where the messages are to come from."""


class AmqpDelivery(Delivery):
    """One message that came over one link."""

    __slots__ = ("_fields", "_properties", "arrived", "handle", "number", "places", "raw", "source")

    def __init__(
        self, source: DeliverySource, raw: bytes, handle: Handle, number: int, arrived: float
    ) -> None:
        # Written out, because it runs once a message: a call of super().__init__ costs as much as the rest.
        self.consumer = source.consumer
        self.epoch = source.epoch
        self.seq = 0
        self.state = "ready"
        self.outcome = None
        self.record = None
        self.source = source
        self.raw = raw
        self.handle: Handle | None = handle
        self.number = number
        self.arrived = arrived  # wall clock
        self._fields: dict[int, list[Any]] = {}
        self._properties: dict[str, Any] | None = None
        try:
            places = codec.sections(raw)
        except codec.Unknown:
            self.raw, places = rewritten(raw)
        self.places = places
        code, begin, end = places[-1] if places else (0, 0, 0)
        kind = self.raw[begin] if code == codec.DATA and (len(places) == 1 or places[-2][0] != code) else 0
        if kind == 0xA0:
            self.body = self.raw[begin + 2 : end]
        elif kind == 0xB0:
            self.body = self.raw[begin + 5 : end]
        else:
            self.body = self._other_body()

    def _other_body(self) -> bytes:
        """Return the body of what is not one data section: text as UTF-8, other values as they are encoded."""
        if not self.places:
            # No message at all: the application gets what came.
            return self.raw
        data: list[bytes] = []
        for code, begin, end in self.places:
            if code == codec.DATA:
                kind = self.raw[begin]
                if kind not in _BINARIES:
                    self.places = []
                    return self.raw  # not a message either
                data.append(self.raw[begin + (2 if kind < 0xB0 else 5) : end])
            elif code == codec.VALUE:
                kind = self.raw[begin]
                if kind in _TEXTS or kind in _BINARIES:
                    return self.raw[begin + (2 if kind < 0xB0 else 5) : end]
                return b"" if kind == 0x40 else self.raw[begin:end]
            elif code == codec.SEQUENCE:
                return self.raw[begin:end]
        return b"".join(data)

    def let_go(self) -> None:
        self.body = b""
        if len(self.raw) > _SMALL and self.places and self.places[-1][0] == codec.DATA:
            self.places = [each for each in self.places if each[0] not in codec.BODIES]
            self.raw = self.raw[: self.places[-1][2]] if self.places else b""

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
            # A message-id of a kind that is not simple: proton knows it.
            except codec.Unknown:
                message = self.decoded()
                fields = [] if message is None else fields_of(message, code)
            fields = self._fields[code] = typed(fields, code)
        return fields[number] if number < len(fields) else None

    def header(self, number: int) -> Any:
        """Return a field of the header section, or None."""
        # Asked for each message: most headers are a short list that ends before the field.
        raw = self.raw
        if raw[:4] == b"\x00Sp\xc0" and self.places and raw[5] <= number:
            return None
        return self._field(codec.HEADER, number, 5)

    def field(self, number: int) -> Any:
        """Return a field of the properties section, or None."""
        return self._field(codec.PROPERTIES, number, 13)

    def annotations(self) -> Mapping[str, Any]:
        """Return the message annotations that have simple values."""
        at = self.place(codec.MESSAGE_ANNOTATIONS)
        try:
            return {} if at is None else codec.read_map(self.raw, at)
        except codec.Unknown:
            message = self.decoded()
            annotations = None if message is None else message.annotations
            return {str(name): plain(value) for name, value in (annotations or {}).items()}

    def decoded(self) -> proton.Message | None:
        """Return the whole message as proton decodes it, or None where it cannot.

        Its binary values are views of its own memory: keep it while you read them.
        """
        return decoded(self.raw) if self.places else None

    # What the engine and the application ask.

    @property
    def key(self) -> Hashable | None:
        identity: object = self.field(MESSAGE_ID)
        if identity is None and (identity := self._our_id()) is None:
            return None
        return self.destination, type(identity), identity, self.field(CREATION)  # 1 and "1" are two ids

    @property
    def identity(self) -> str | None:
        key: Any = self.key
        return None if key is None else str(key[2])

    @property
    def destination(self) -> str:
        source = self.source
        if not source.many:
            return source.destination
        to = self.field(TO)
        return source.profile.qualified(to, source.kind) if to else source.destination

    @property
    def origin(self) -> str | None:
        # Artemis' own; the others tell nothing over AMQP.
        told = self.annotations()
        address, queue = told.get("x-opt-ORIG-ADDRESS"), told.get("x-opt-ORIG-QUEUE")
        if not isinstance(address, str) or not address:
            return None
        return self.source.profile.qualified(address, "queue" if queue in (None, address) else "topic")

    @property
    def died_of(self) -> str | None:
        if "x-opt-ACTUAL-EXPIRY" in self.annotations():
            return "expired"
        cause = self.headers.get("dlqDeliveryFailureCause")  # of ActiveMQ Classic
        return ("expired" if "Message Expired" in cause else cause) if isinstance(cause, str) else None

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
        at = self.field(EXPIRY)
        return float(at / 1000 if at else self.arrived + ttl / 1000)

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
        return "text" if at is not None and self.raw[at] in _TEXTS else "bytes"

    @property
    def readable(self) -> bool:
        return self.decoded() is not None

    @property
    def message_id(self) -> str | None:
        identity = self.field(MESSAGE_ID)
        return self._our_id() if identity is None else text_of(identity)

    def _our_id(self) -> str | None:
        headers = self.headers
        # A delayed copy is another message.
        identity = headers.get(COPY) or headers.get("redeliveryId")
        return identity if isinstance(identity, str) else None

    @property
    def headers(self) -> Mapping[str, Any]:
        found = self._properties
        if found is None:
            at = self.place(codec.APPLICATION_PROPERTIES)
            try:
                found = {} if at is None else codec.read_map(self.raw, at)
            except codec.Unknown:
                message = self.decoded()
                properties = None if message is None else message.properties
                found = {str(name): plain(value) for name, value in (properties or {}).items()}
            self._properties = found
        return found

    @property
    def content_type(self) -> str | None:
        kind = self.field(CONTENT_TYPE)
        return None if kind is None else str(kind)

    @property
    def content_encoding(self) -> str | None:
        """How the body is compressed, or None."""
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
        number = self.annotations().get("x-opt-jms-reply-to", 0)
        kind = _KINDS.get(number, "queue") if isinstance(number, int) else "queue"
        return self.source.profile.qualified(address, kind)

    @property
    def message_type(self) -> str | None:
        subject: str | None = self.field(SUBJECT)
        return subject

    @property
    def priority(self) -> int:
        priority: int | None = self.header(PRIORITY)
        return 4 if priority is None else min(priority, 9)

    @property
    def timestamp(self) -> datetime | None:
        return time_of(self.field(CREATION))

    @property
    def expiration(self) -> datetime | None:
        at = self.field(EXPIRY)
        expires = self.expires_at
        return time_of(at) or (None if expires is None else time_of(int(expires * 1000)))

    @property
    def value(self) -> Any:
        if self.place(codec.VALUE) is None and self.place(codec.SEQUENCE) is None:
            return self.body
        message = self.decoded()
        return self.body if message is None else plain(message.body)


# Of the JMS mapping's annotations.
_KINDS = {0: "queue", 1: "topic", 2: "temp-queue", 3: "temp-topic"}
