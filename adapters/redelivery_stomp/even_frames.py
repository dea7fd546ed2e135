"""Reads the header blocks of many messages at once, column by column, if they are of one shape.

Messages of one shape have the same header lines in the same order. Most queues have few shapes. The values are those
that each delivery returns, and take about a third of the time. Unusual header blocks, and shapes that few messages
have, are not read here.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from redelivery.adapter_support.wire_log import values_of
from redelivery.core.commands import Subscribe
from redelivery.core.head_columns import HeadColumns
from redelivery_stomp.delivery import StompDelivery, Subscription
from redelivery_stomp.frames import date_of, unescape
from redelivery_stomp.profiles import profile_for

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

    from redelivery.adapter import Restore
    from redelivery.core.head_columns import ReadColumns
    from redelivery.settings import BrokerName
    from redelivery_stomp.delivery import ColumnRule

__all__ = ["frame_columns", "frame_restorer", "frame_wire"]


# ---- Even frames -----------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# Digits of a Unix time in milliseconds (until the year 2286). Its float is exact to half a microsecond.
_PLAIN_DIGITS = 13
# Most shapes of one segment that are read, and how often each message is looked at to find them, at most.
MOST_SHAPES, MOST_LOOKS = 8, 3
# Number of messages of one shape from which on this is faster than one by one.
FEW = 8
# Properties whose columns are read here. `destination` is not among them: it is read from deliveries.
_OF_HEADERS = (
    "identity", "content_type", "correlation_id", "reply_to", "timestamp", "redelivered", "headers",
)  # fmt: skip


def even_columns(
    source: Subscription, heads: Sequence[bytes], asked: Collection[str]
) -> Sequence[HeadColumns]:
    """Return the properties of deliveries with these header blocks. Missing rows are to be read one by one.

    See `redelivery.core.head_columns`.
    """
    kind = source.make
    if any(
        getattr(kind, each) is not getattr(StompDelivery, each)
        for each in _OF_HEADERS
        if each not in kind.columns
    ):
        return ()
    rules = [kind.columns[name] for name in asked if name in kind.columns]
    found: list[HeadColumns] = []
    for rows, block in _shapes(heads):
        if any(header in block.repeated for rule in rules for header in rule.headers):
            # Each such property chooses one of the repeated headers in its own way.
            continue
        values = {name: _column(source, block, name) for name in asked if name != "headers"}
        hidden = source.profile.protocol_headers
        own = [name for name in block.at if name not in hidden] if "headers" in asked else []
        found.append(HeadColumns(rows, values, own, [block.values(name) or () for name in own]))
    return found


def _shapes(heads: Sequence[bytes]) -> Iterator[tuple[Sequence[int], _Block]]:
    """Yield the rows of messages whose header blocks are of one shape, larger groups first."""
    todo = _grouped([*range(len(heads))], [head.count(b"\n") for head in heads])
    looks, shapes = MOST_LOOKS * len(heads), 0
    while todo and shapes < MOST_SHAPES:
        todo.sort(key=len)
        rows = todo.pop()
        looks -= len(rows)
        if looks < 0:
            return
        given = [heads[row] for row in rows]
        block = _Block.read(given)
        if block is None:
            left = [row for row, head in zip(rows, given, strict=True) if _is_plain(head)]
            todo += [left] if FEW <= len(left) < len(rows) else []
        elif block.uneven is not None:
            todo += _grouped(rows, block.uneven)
        elif not block.odd:
            shapes += 1
            yield rows, block


def _grouped(rows: Sequence[int], keys: Sequence[Hashable]) -> list[Sequence[int]]:
    """Return the rows of each key that has `FEW` of them at least."""
    if len(set(keys)) == 1:
        return [rows] if len(rows) >= FEW else []
    groups: dict[Hashable, list[int]] = {}
    for row, key in zip(rows, keys, strict=True):
        groups.setdefault(key, []).append(row)
    return [group for group in groups.values() if len(group) >= FEW]


def _is_plain(head: bytes) -> bool:
    try:
        return "\r" not in head.decode()
    except UnicodeDecodeError:
        return False


class _Block:
    """Header blocks with the same number of lines. They are of one shape if `uneven` is None and `odd` is False.

    `at`: the number of the line that counts for each name. `uneven`: for each block, the line that differs. `odd`: a
    name is escaped, and may be the same as another one.
    """

    def __init__(self, heads: Sequence[bytes], text: str) -> None:
        self.heads = heads
        self._lines = text.split("\n")
        self._width = len(self._lines) // len(heads)
        self.at: dict[str, int] = {}
        self.repeated: set[str] = set()
        self.odd = False
        self.uneven = self._names()

    @classmethod
    def read(cls, heads: Sequence[bytes]) -> _Block | None:
        """Read header blocks; None: one of them is not UTF-8, or has CRLF line ends."""
        try:
            text = b"\n".join(heads).decode()
        except UnicodeDecodeError:
            return None
        return None if "\r" in text else cls(heads, text)

    def _names(self) -> list[Hashable] | None:
        """Find the names. If the blocks differ in a line, return the name of each in that line; else None."""
        width = self._width
        # As in `read_headers`: the value of a repeated header is the first one, its place in the order is the last
        # one's.
        for at in range(width - 1, 0, -1):
            column = self._lines[at::width]
            name, colon, _ = column[0].partition(":")
            begin = f"\n{name}{colon}"
            alike = ("\n" + "\n".join(column)).count(begin) if colon else column.count(name)
            if alike != len(column):
                return [line.partition(":")[:2] for line in column]
            self.odd = self.odd or "\\" in name
            if colon and name in self.at:
                self.repeated.add(name)
            if colon:
                self.at[name] = at
        return None

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


def _column(source: Subscription, block: _Block, name: str) -> Sequence[Any]:
    rows = len(block.heads)
    rule = source.make.columns.get(name)
    if rule is not None:
        return _ruled(rule, block)
    if name == "destination":
        # It depends on its header only, which has few different values.
        raw = block.raw("destination") or [""] * rows
        heads_of = dict(zip(raw, block.heads, strict=True))
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
        values = [address[value] for value in values]
    return _microseconds(values) if name == "timestamp" else values


def _ruled(rule: ColumnRule, block: _Block) -> Sequence[Any]:
    nothing = [None] * len(block.heads)
    found = list(map(rule.read, *(block.values(header) or nothing for header in rule.headers)))
    first = next((value for value in found if value is not None), None)
    return list(map(_since_epoch, found)) if isinstance(first, datetime) else found


def _since_epoch(date: datetime | None) -> int | None:
    return None if date is None else (date - _EPOCH) // _MICROSECOND


def _microseconds(values: Sequence[str]) -> Sequence[int | None]:
    digits = "".join(values)
    if (
        digits.isascii()
        and digits.isdigit()
        and 0 < min(map(len, values)) <= max(map(len, values)) <= _PLAIN_DIGITS
    ):
        return [int(value) * 1000 or None for value in values]
    return [_since_epoch(date_of(value)) for value in values]


# ---- Stored frames ---------------------------------------------------------------------------------------
# Deliveries made from a stored header block and body of a MESSAGE, without a connection.


def frame_wire(broker: str, version: str, destination: str) -> dict[str, str]:
    """Return the values that `frame_restorer` needs: broker, version of STOMP, and consumed destination."""
    return {"broker": broker, "version": version, "destination": destination}


def frame_restorer(wire: Mapping[str, str]) -> Restore:
    """Return a function that makes deliveries of a subscription.

    Raises:
        ConfigurationError: The broker has no profile, or a value is missing.
    """
    source = _source(wire)
    make = source.make

    def restore(head: bytes, body: bytes | None, arrived: float) -> StompDelivery:
        delivery = make(source, head, b"" if body is None else body)
        delivery.arrived_at(arrived)
        return delivery

    return restore


def frame_columns(wire: Mapping[str, str]) -> ReadColumns:
    """Return a function that reads header blocks of a subscription, column by column.

    Raises:
        ConfigurationError: The broker has no profile, or a value is missing.
    """
    return partial(even_columns, _source(wire))


def _source(wire: Mapping[str, str]) -> Subscription:
    broker, version, destination = values_of(wire, "broker", "version", "destination")
    profile = profile_for("", cast("BrokerName", broker))
    return Subscription(Subscribe(0, destination, window=1), 0, profile, version)
