"""Durations and sizes of options: `500ms`, `2s`, `30d`, `64m`; a plain number is milliseconds, or bytes."""

from __future__ import annotations

import re

__all__ = ["DURATIONS", "SIZES", "duration_of", "near_quantity", "shown_duration", "size_of"]

DURATIONS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds of each unit."""
SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
"""Bytes of each unit, by powers of 1,024 as in Spark's own options."""
_QUANTITY = re.compile(r"(\d{1,15})([a-z]*)", re.IGNORECASE)
# Spellings of units that users bring from elsewhere, by the unit to use here.
_LONG = {
    "ms": re.compile(r"ms(ec)?s?|milli(second)?s?"),
    "s": re.compile(r"s(ec(ond)?)?s?"),
    "m": re.compile(r"m(in(ute)?)?s?"),
    "h": re.compile(r"h(ou)?r?s?"),
    "d": re.compile(r"d(ay)?s?"),
}
_LONG_SIZES = {
    "k": re.compile(r"k(i?b|ilo(byte)?s?)"),
    "m": re.compile(r"m(i?b|ega(byte)?s?)"),
    "g": re.compile(r"g(i?b|iga(byte)?s?)"),
}


def duration_of(text: str) -> int | None:
    """Return the milliseconds of a duration; None if the text is not a duration."""
    return _quantity(text, DURATIONS)


def size_of(text: str) -> int | None:
    """Return the bytes of a size; None if the text is not a size."""
    return _quantity(text, SIZES)


def near_quantity(text: str, *, size: bool) -> str:
    """Return `"; did you mean '5m'?"` for a quantity with another spelling of its unit, or an empty text."""
    found = re.fullmatch(r"(\d{1,15})\s*([a-z]+)", text.strip().lower())
    if found is None:
        return ""
    number, word = found.groups()
    for unit, others in (_LONG_SIZES if size else _LONG).items():
        if others.fullmatch(word):
            return f"; did you mean '{number}{unit}'?"
    return ""


def shown_duration(milliseconds: int) -> str:
    """Return a duration in the largest unit of which it is a whole number."""
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(milliseconds, DURATIONS[unit])
        if count and not rest:
            return f"{count}{unit}"
    return f"{milliseconds}ms"


def _quantity(text: str, units: dict[str, int]) -> int | None:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        return None
    number, unit = found.groups()
    factor = 1 if not unit else units.get(unit.lower())
    return None if factor is None else int(number) * factor
