"""Sections of a message, read as far as somebody asks: header, properties, all kinds of bodies. Nothing here raises."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redelivery_amqp import codec
from redelivery_amqp.codec import Budget, decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "CONTENT_ENCODING",
    "CONTENT_TYPE",
    "CORRELATION_ID",
    "CREATION",
    "DELIVERY_COUNT",
    "DURABLE",
    "EXPIRY",
    "FIRST_ACQUIRER",
    "GROUP_ID",
    "GROUP_SEQUENCE",
    "HEADER_FIELDS",
    "LASTING",
    "MESSAGE_ID",
    "PRIORITY",
    "PROPERTIES_FIELDS",
    "REPLY_KINDS",
    "REPLY_TO",
    "REPLY_TO_GROUP",
    "SUBJECT",
    "TO",
    "TTL",
    "USER_ID",
    "LargeMaps",
    "SaltedUUID",
    "bare",
    "entries_in",
    "fields_in",
    "key_name",
    "map_in",
    "other_body",
    "payload",
    "places_in",
    "short_keys",
    "text_of",
    "texts_in",
    "time_of",
    "typed",
]


# ---- Partial reading -------------------------------------------------------------------------------------
# Reader of parts of a section: it reads as much as is asked for and can be decoded. Nothing here raises.

KEPT = 100
"""Most entries of a section that are kept after reading: each needs some hundred bytes more than its own."""

_MOST_IN_KEY = 10
_TEXT = 0xA1
_TEXTS = frozenset({_TEXT, 0xB1, 0xA3, 0xB3})


class LargeMaps:
    """Cache of one message's maps that are too large to be kept for every message: those of the last message read.

    The engine, the log and the copy read them several times, and reading 49,000 properties takes a second. Used by
    several threads: what one of them replaces, another one reads again.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[object, dict[int, dict[str, Any]]] | None = None

    def of(self, message: object) -> dict[int, dict[str, Any]] | None:
        """Return the cached maps of a message by section code; None: it is not the last one."""
        last = self._last
        return last[1] if last is not None and last[0] is message else None

    def read(
        self, message: object, data: bytes, code: int, at: int | None, *, keeps: bool
    ) -> tuple[dict[str, Any], bool]:
        """Return a section of a message as `map_in` does. If `keeps`, a large one replaces what is cached."""
        kept = self.of(message) or {}
        if code in kept:
            return kept[code], False
        found, small = map_in(data, at)
        if keeps and not small:
            self._last = message, {**kept, code: found}
        return found, small

    def forget(self, messages: Sequence[object]) -> None:
        """Drop the cached maps of these messages: they are settled, or parked."""
        last = self._last
        # Runs for each settled message: mostly nothing is cached.
        if last is not None and any(each is last[0] for each in messages):
            self._last = None


def places_in(data: bytes, at: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of each of the first `limit` values of a list or map, as far as they can be found."""
    try:
        count, at, end = codec.compound(data, at)
        for _ in range(min(count, limit)):
            begin, at = at, codec.end_of(data, at)
            if at > end or at > len(data):
                return
            yield begin, at
    except (IndexError, codec.Unknown):
        return


def fields_in(data: bytes, at: int, limit: int) -> list[Any]:
    """Return the first `limit` fields of a list; None for one that is not a simple value or cannot be decoded."""
    fields: list[Any] = []
    for begin, _ in places_in(data, at, limit):
        try:
            fields.append(codec.read(data, begin)[0])
        except codec.Unknown:
            fields.append(None)
    return fields


def texts_in(data: bytes, at: int, keys: Mapping[bytes, str]) -> dict[str, str]:
    """Return the text values of a map's entries with these `keys`, by name; no other entry is decoded.

    A key is given as `short_keys` encodes it.
    """
    found: dict[str, str] = {}
    try:
        count, at, end = codec.compound(data, at)
        for _ in range(count // 2):
            begin = at + 2 + data[at + 1] if data[at] == _TEXT else codec.end_of(data, at)
            name = keys.get(data[at:begin])
            at = codec.end_of(data, begin)
            if at > end:
                break
            if name is not None and data[begin] in _TEXTS:
                found[name] = codec.read(data, begin)[0]
    except (IndexError, codec.Unknown):
        pass
    return found


def short_keys(*names: str) -> dict[bytes, str]:
    """Return these names by their encoding as keys: strings with a length of one byte, as all libraries write them."""
    return {bytes((_TEXT, len(name))) + name.encode(): name for name in names}


def entries_in(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield (begin of the key, begin of the value, end of the value) of each entry of a map."""
    key: tuple[int, int] | None = None
    for place in places_in(data, at, codec.MOST_ENTRIES):
        if key is None:
            key = place
        else:
            yield key[0], place[0], place[1]
            key = None


def key_name(data: bytes, begin: int, end: int) -> str | None:
    """Return a key as text; None for one that is not a simple value."""
    try:
        if data[begin] in codec.READERS:
            key: Any = codec.read(data, begin)[0]
        else:
            # Perhaps a described value. A larger one is not a name, and each of thousands of keys could be an array.
            key = decoded(data, begin, end, Budget(_MOST_IN_KEY, empty=0))
    except codec.Unknown:
        return None
    return None if isinstance(key, list | dict) else str(key)


def map_in(data: bytes, at: int | None) -> tuple[dict[str, Any], bool]:
    """Return the entries of a map that can be read, and True if they may be kept as long as their message.

    Nested values can need a hundred thousand times the memory of their bytes. Keys, also those of inner maps, are text:
    JSON has no others.
    """
    if at is None:
        return {}, True
    try:
        found = codec.read_map(data, at)
    except codec.Unknown:
        return _entry_by_entry(data, at), False
    return found, len(found) <= KEPT


def _entry_by_entry(data: bytes, at: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    budget = Budget(codec.MOST_ENTRIES)
    for begin, middle, end in entries_in(data, at):
        name = key_name(data, begin, middle)
        if name is None:
            continue
        try:
            found[name] = decoded(data, middle, end, budget, text_keys=True)
        except codec.Unknown:
            # Of two entries with one name the last one counts, even if it cannot be read.
            found.pop(name, None)
            if budget.spent:
                break
    return found


# ---- Section fields --------------------------------------------------------------------------------------
# Fields of a message's header and properties sections, and their types.

# First bytes of the fields of a header without a time to live, as brokers write it: durable, priority, null.
LASTING = frozenset(
    [bytes((durable, 0x50, priority, 0x40)) for durable in (0x40, 0x41, 0x42) for priority in range(10)]
)

HEADER_FIELDS, PROPERTIES_FIELDS = 5, 13
# AMQP 1.0 part 3, 3.2.1 and 3.2.4.
DURABLE, PRIORITY, TTL, FIRST_ACQUIRER, DELIVERY_COUNT = range(HEADER_FIELDS)
(
    MESSAGE_ID, USER_ID, TO, SUBJECT, REPLY_TO, CORRELATION_ID, CONTENT_TYPE, CONTENT_ENCODING, EXPIRY, CREATION,
    GROUP_ID, GROUP_SEQUENCE, REPLY_TO_GROUP,
) = range(PROPERTIES_FIELDS)  # fmt: skip
# Of the JMS mapping's annotations.
REPLY_KINDS = {0: "queue", 1: "topic", 2: "temp-queue", 3: "temp-topic"}

_IDENTITY = (int, str, bytes, UUID)
_KINDS: dict[int, tuple[type | tuple[type, ...], ...]] = {
    codec.HEADER: (bool, int, int, bool, int),
    codec.PROPERTIES: (_IDENTITY, bytes, str, str, str, _IDENTITY, str, str, int, int, str, int, str),
}


# Combinations of field types that were correct: most messages of a queue have the same ones.
_RIGHT: set[tuple[int, tuple[type, ...]]] = set()
_MOST_RIGHT = 1000


def typed(fields: list[Any], code: int) -> list[Any]:
    """Return the fields of a section; a field with a wrong type is None."""
    found = code, tuple(map(type, fields))
    if found in _RIGHT:
        return fields
    kinds = _KINDS[code]
    right = [
        # In Python a boolean is an integer.
        field if isinstance(field, kind) and (field.__class__ is not bool or kind is bool) else None
        for field, kind in zip(fields, kinds, strict=False)
    ]
    if len(_RIGHT) < _MOST_RIGHT and found[1] == tuple(map(type, right)):
        _RIGHT.add(found)
    return right


# ---- Other bodies ----------------------------------------------------------------------------------------
# Bodies other than one data section: several data sections, a value, a sequence.


def other_body(raw: bytes, places: Sequence[tuple[int, int, int]]) -> bytes | None:
    """Return the body: text as UTF-8, other values as they are encoded; None if this is not a message."""
    if not places:
        return None
    data: list[bytes] = []
    for code, begin, end in places:
        if code == codec.DATA:
            kind = raw[begin]
            if kind not in codec.BINARIES:
                return None
            data.append(raw[begin + (2 if kind < 0xB0 else 5) : end])
        elif code == codec.VALUE:
            kind = raw[begin]
            if kind in codec.TEXTS or kind in codec.BINARIES:
                return raw[begin + (2 if kind < 0xB0 else 5) : end]
            return b"" if kind == 0x40 else raw[begin:end]
        elif code == codec.SEQUENCE:
            return raw[begin:end]
    return b"".join(data)


def payload(raw: bytes, places: Sequence[tuple[int, int, int]]) -> int | None:
    """Return where the bytes of the body begin, if it is one data section and the last section; else None."""
    if not places or places[-1][0] != codec.DATA or (len(places) > 1 and places[-2][0] == codec.DATA):
        return None
    begin = places[-1][1]
    kind = raw[begin]
    return begin + (2 if kind < 0xB0 else 5) if kind in codec.BINARIES else None


# ---- Bare message ----------------------------------------------------------------------------------------
# Bare message: the bytes of properties, application properties and body, which no broker changes.


def bare(raw: bytes, places: Sequence[tuple[int, int, int]]) -> list[memoryview]:
    """Return the bare message in pieces to be joined: its sections unchanged, each with its descriptor.

    Bytes that are not a message are returned whole. `places` are those of all sections, before the body is dropped.
    """
    whole = memoryview(raw)
    if not places:
        return [whole]
    pieces: list[memoryview] = []
    since = until = 0
    for code, _, end in places:
        if code in codec.BARE:
            until = end
            continue
        if until > since:
            pieces.append(whole[since:until])
        since = end
    if until > since:
        pieces.append(whole[since:until])
    return pieces


# ---- Plain values ----------------------------------------------------------------------------------------
# Ids and times of AMQP as an application sees them, and as keys of the library's own tables.

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SaltedUUID(UUID):
    """UUID as a key of a table, with another hash.

    A UUID's own hash is its number modulo a prime: a producer can make many with one hash.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        """Return a hash that no producer can foresee."""
        return hash(self.bytes)

    def __repr__(self) -> str:
        """Return the text of a plain UUID: names in a ledger are made of it."""
        return f"UUID({str(self)!r})"


def text_of(identity: object) -> str:
    """Return an id as text; a binary one as hexadecimal digits."""
    return identity.hex() if isinstance(identity, bytes) else str(identity)


def time_of(milliseconds: int | None) -> datetime | None:
    """Return an AMQP timestamp as a datetime; None if there is none, or if it is out of the calendar's range."""
    if not milliseconds:
        return None
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None
