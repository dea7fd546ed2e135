"""Dead letters with any properties: they are shown, counted by cause, and redriven.

A line of the input is one property, `name`, a tab, a letter for its type and its text; names in `<>` are the fields
that a broker sets. Over STOMP all values are text, over AMQP they are of any type.
"""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tests.fuzz.target import Target

from redelivery.core.commands import Forward, Stop
from redelivery.core.dead_lettering.redrive import Redrive, redrives_of
from redelivery.core.delivery import Delivery, Record
from redelivery.dlq.dead_letter import LedgerCauses, read_letter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.capabilities import Capabilities

__all__ = ["TARGETS"]

_SEED = b"""redeliveryCause\tsValueError: bad
redeliveryCount\ts7
redeliveryOriginalDestination\tsqueue://orders
redeliveryOriginalId\tsID:a-1
redeliveryFirstFailure\ts2025-01-01T00:00:00.000Z
redeliveryLastFailure\ts2025-01-01T00:00:00+05:00
redeliveryRedrives\ts2
redeliveryRedriveRun\tsabc
original-destination\tsqueue://x
<origin>\tsqueue://orders
<message_id>\tsID:a-1
<body_kind>\tstext
<timestamp>\tt1700000000
body"""
_TYPED = b"""redeliveryCount\tf3.0
redeliveryRedrives\ti9
redeliveryOriginalDestination\tnx
redeliveryCause\tbabc
redeliveryOriginalId\tlabc
redeliveryFirstFailure\tt1
<died_of>\tsexpired
<origin>\tstopic://t
key\tmvalue
"""
_DICTIONARY = (
    b"\t", b"\n", b"\ts", b"\ti", b"\tf", b"\tb", b"\tl", b"\tt", b"\tm", b"\tn", b"redeliveryCount",
    b"redeliveryRedrives", b"redeliveryOriginalDestination", b"redeliveryFirstFailure",
    b"redeliveryLastFailure", b"redeliveryCause", b"redeliveryOriginalId", b"redeliveryRedriveRun", b"x-death",
    b"_AMQ_ORIG_", b"<origin>", b"<died_of>", b"finf", b"f-inf", b"fnan", b"s0001-01-01T00:00:00+23:59",
    b"s9999-12-31T23:59:59-23:59", b"://", b"queue://", b"topic://", b"temp-queue://", b"native://",
    b"bogus://x", b"s2025-13-01", b"9" * 5000, b"-1", b"\xc3\xa9", b"\xd9\xa3", b":", b"queue://a,b",
    b"queue://a?x=y", b"queue://a,", b",", b"topic://,", b",topic://", b"queue://x,y://z", b"queue://>",
    b"T24:00:00", b"2025-W01-1",
)  # fmt: skip
_FIELDS = (
    "origin",
    "died_of",
    "message_id",
    "correlation_id",
    "content_type",
    "message_type",
    "group",
    "reply_to",
)


def _value(kind: str, text: str) -> Any:
    try:
        match kind:
            case "i":
                return int(text[:4000])
            case "f":
                return float(text)
            case "t":
                return datetime.fromtimestamp(float(text), UTC)
            case _:
                return {"b": text.encode(), "l": [text, 1], "m": {text: text}, "n": None}.get(kind, text)
    except (ValueError, OverflowError, OSError):
        return text


class _Letter(Delivery):
    """A dead letter with the properties of an input."""

    def __init__(self, data: bytes) -> None:
        lines = data.split(b"\n")
        super().__init__(1, 1, lines[-1])
        self._told: dict[str, Any] = {}
        self._set: dict[str, str] = {}
        self._at: datetime | None = None
        for line in lines[:-1]:
            name, _, value = line.decode("utf-8", "replace").partition("\t")
            given = _value(value[:1], value[1:])
            if name == "<timestamp>" and isinstance(given, datetime):
                self._at = given
            elif name.startswith("<") and isinstance(given, str):
                self._set[name.strip("<>")] = given
            else:
                self._told[name] = given

    def __getattribute__(self, name: str) -> Any:
        return self._set.get(name) if name in _FIELDS else super().__getattribute__(name)

    @property
    def destination(self) -> str:
        return "queue://DLQ"

    @property
    def headers(self) -> Mapping[str, Any]:
        return self._told

    @property
    def timestamp(self) -> datetime | None:
        return self._at

    @property
    def body_kind(self) -> Any:
        return self._set.get("body_kind", "bytes")


_LEDGER = cast("Any", SimpleNamespace(buried=list))
_ABLE = cast("Capabilities", None)


def check(data: bytes) -> None:
    """View a dead letter with all the tools, and make its redriven message."""
    delivery = _Letter(data)
    try:
        letter = read_letter(delivery, "queue://DLQ", LedgerCauses(_LEDGER))
    except OverflowError:
        # A count that is infinite, or a time before the year 1: read as absent, or refused.
        return
    assert letter.redrives >= 0
    for at in (letter.first_failure, letter.died_at):
        assert at is None or at.utcoffset() is not None
    assert isinstance(letter.cause, str)
    assert isinstance(letter.redelivery_count, int | None)
    for shown in (letter.cause_kind, letter.day, letter.original_id or "", letter.original_destination or ""):
        shown.encode("utf-8", "surrogatepass")
    assert letter.topic in (True, False)
    # Documented: without an origin a dead letter stays in its queue, and an origin may be refused.
    assert isinstance(letter.original_destination, str | None)
    assert redrives_of(delivery.headers) == letter.redrives
    redrive = Redrive("run", quarantine="queue://quarantine")
    command = redrive.command(delivery, Record(), _ABLE, 0.0, 0.0)
    assert isinstance(command, Forward | Stop)
    if isinstance(command, Forward):
        assert command.copy.headers["redeliveryRedriveRun"] == "run"
        assert int(command.copy.headers["redeliveryRedrives"]) == letter.redrives + 1


TARGETS = (
    Target(
        name="dead-letter", check=check, seeds=lambda: [_SEED, _TYPED], dictionary=_DICTIONARY, longest=16384
    ),
)
