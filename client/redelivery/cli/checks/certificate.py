"""Dates of a certificate, read out of its bytes: `ssl` decodes only one that it trusts.

Only the path to the two dates is read (RFC 5280, 4.1). Bytes that are no certificate have no dates.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

__all__ = ["Validity", "validity"]

_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18


class Validity(NamedTuple):
    """Validity of a certificate, in UTC."""

    begins: datetime
    ends: datetime


def validity(der: bytes) -> Validity | None:
    """Return the validity of a certificate; None: the bytes are no certificate."""
    try:
        tag, certificate, _ = _value(der)
        _, signed, _ = _value(certificate)
        first, _, rest = _value(signed)
        # A version is optional; then serial number, algorithm and issuer.
        for _ in range(3 if first == _VERSION else 2):
            _, _, rest = _value(rest)
        dates, span, _ = _value(rest)
        if tag != _SEQUENCE or dates != _SEQUENCE:
            return None
        begin_tag, begins, rest = _value(span)
        end_tag, ends, _ = _value(rest)
        return Validity(_date(begin_tag, begins), _date(end_tag, ends))
    except (IndexError, ValueError):
        return None


def _value(data: bytes) -> tuple[int, bytes, bytes]:
    """Return the tag and the content of the first value, and the bytes behind it. Raises IndexError."""
    tag, size, at = data[0], data[1], 2
    if size & 0x80:
        count = size & 0x7F
        size, at = int.from_bytes(data[2 : 2 + count], "big"), 2 + count
    if at + size > len(data):
        raise IndexError("the value is cut off")
    return tag, data[at : at + size], data[at + size :]


def _date(tag: int, text: bytes) -> datetime:
    """Read a time of the two kinds that certificates have. Raises ValueError."""
    if tag not in (_UTC_TIME, _TIME):
        raise ValueError("no time")
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        # Two digits of the year: 1950 to 2049.
        digits = ("20" if digits[:2] < "50" else "19") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
