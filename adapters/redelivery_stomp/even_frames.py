"""The header blocks of many messages at once, column by column: where all have the same header lines in the same order.

Most queues have such messages. What is read is what `StompDelivery` says of each, for about a third of the time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from redelivery.core.head_columns import HeadColumns
from redelivery_stomp.delivery import StompDelivery
from redelivery_stomp.frames import date_of, unescape

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from redelivery_stomp.delivery import Subscription

__all__ = ["even_columns"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Digits of a Unix time in milliseconds (until the year 2286) whose float is exact to half a microsecond.
_PLAIN_DIGITS = 13
# Properties whose columns are read here. `destination` is not among them: deliveries are asked for it.
_OF_HEADERS = (
    "identity", "content_type", "correlation_id", "reply_to", "timestamp", "redelivered", "headers",
)  # fmt: skip


def even_columns(source: Subscription, heads: Sequence[bytes], asked: Collection[str]) -> HeadColumns | None:
    """Return what deliveries with these header blocks say; None: they are to be read one by one.

    See `redelivery.core.head_columns`.
    """
    kind = source.profile.makes or StompDelivery
    if any(getattr(kind, name) is not getattr(StompDelivery, name) for name in _OF_HEADERS):
        return None
    block = _Block.read(heads)
    if block is None:
        return None
    found: dict[str, Sequence[Any]] = {}
    for name in asked:
        if name != "headers":
            found[name] = _column(source, heads, block, name)
    hidden = source.profile.protocol_headers
    own = [name for name in block.at if name not in hidden] if "headers" in asked else []
    return HeadColumns(found, own, [block.values(name) or () for name in own])


class _Block:
    """Header blocks of the same shape. `at`: the number of the line that counts for each name, as in `read_headers`."""

    def __init__(self, lines: list[str], width: int, at: dict[str, int]) -> None:
        self._lines = lines
        self._width = width
        self.at = at
        self.rows = len(lines) // width

    @classmethod
    def read(cls, heads: Sequence[bytes]) -> _Block | None:
        breaks = heads[0].count(b"\n") if heads else 0
        if not breaks or any(head.count(b"\n") != breaks for head in heads):
            return None
        try:
            text = b"\n".join(heads).decode()
        except UnicodeDecodeError:
            return None
        if "\r" in text:
            return None
        lines, width = text.split("\n"), breaks + 1
        names: dict[str, int] = {}
        # Of repeated headers the first counts, and the last says where the name stands: as in `read_headers`.
        for at in range(width - 1, 0, -1):
            name, colon, _ = lines[at].partition(":")
            column = lines[at::width]
            begin = f"\n{name}{colon}"
            alike = ("\n" + "\n".join(column)).count(begin) if colon else column.count(name)
            if alike != len(heads) or "\\" in name:
                return None
            if colon:
                names[name] = at
        return cls(lines, width, names)

    def raw(self, name: str) -> list[str] | None:
        """Return the values of a header as on the wire; None: there is no such header."""
        at = self.at.get(name)
        if at is None:
            return None
        begin = len(name) + 1
        return [line[begin:] for line in self._lines[at :: self._width]]

    def values(self, name: str) -> list[str] | None:
        """Return the values of a header, unescaped."""
        raw = self.raw(name)
        if raw is None or "\\" not in "".join(raw):
            return raw
        return [unescape(value) if "\\" in value else value for value in raw]


def _column(source: Subscription, heads: Sequence[bytes], block: _Block, name: str) -> Sequence[Any]:
    rows = block.rows
    if name == "destination":
        # It depends on its header alone, which few values have.
        raw = block.raw("destination") or [""] * rows
        heads_of = dict(zip(raw, heads, strict=True))
        known = {value: source.make(source, head, b"").destination for value, head in heads_of.items()}
        return [known[value] for value in raw]
    if name == "redelivered":
        return [value == "true" for value in block.raw("redelivered") or [""] * rows]
    if name == "identity":
        identity = source.profile.identity
        return [identity(value) or None for value in block.values("message-id") or [""] * rows]
    values = block.values(name.replace("_", "-"))
    if values is None:
        return [None] * rows
    if name == "reply_to":
        address = {value: source.profile.qualified(value, "queue") for value in set(values)}
        return [address[value] for value in values]
    return _microseconds(values) if name == "timestamp" else values


def _microseconds(values: Sequence[str]) -> Sequence[int | None]:
    digits = "".join(values)
    if (
        digits.isascii()
        and digits.isdigit()
        and 0 < min(map(len, values)) <= max(map(len, values)) <= _PLAIN_DIGITS
    ):
        return [int(value) * 1000 or None for value in values]
    dates = map(date_of, values)
    return [None if date is None else (date - _EPOCH) // _MICROSECOND for date in dates]
