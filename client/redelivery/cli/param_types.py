"""Readers of option values: each refuses a wrong value with the same form of sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redelivery.cli.usage_errors import WrongValue
from redelivery.errors import near_miss

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["milliseconds", "number", "one_of", "rate", "seconds", "statuses"]

LAST_STATUS = 255


def number(low: int, high: int | None = None) -> Callable[[object], int]:
    """Return what reads a whole number from `low` to `high` (None: no bound)."""
    bounds = f"of {low} or more" if high is None else f"from {low} to {high}"

    def read(value: object) -> int:
        text = str(value)
        digits = text.removeprefix("-")
        found = int(text) if digits.isascii() and digits.isdigit() else None
        if found is None or found < low or (high is not None and found > high):
            raise WrongValue(f"must be a whole number {bounds}, not {text!r}")
        return found

    return read


# Seconds of each unit.
_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]+)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,3})?|\.[0-9]+")


def _duration(text: str, bare: float) -> float | None:
    """Return the seconds of `90`, `1.5h` or `1h30m`; None if it is no duration. `bare`: seconds of a number alone."""
    text = text.strip().lower()
    if _NUMBER.fullmatch(text):
        found = float(text) * bare
    else:
        parts = _PART.findall(text)
        if not parts or _PART.sub("", text).strip() or any(unit not in _UNITS for _, unit in parts):
            return None
        found = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return found if found < float("inf") else None


def seconds(*, positive: bool = False) -> Callable[[object], float]:
    """Return what reads a duration as seconds: 0 or more, or, with `positive`, more than 0. A bare number: seconds."""
    least = "more than 0" if positive else "0 or more"

    def read(value: object) -> float:
        found = _duration(str(value), 1.0)
        if found is None or (positive and not found):
            raise WrongValue(
                f"must be a duration, {least}: 30s, 15m, 2h, 30d or a number of seconds, not {str(value)!r}"
            )
        return found

    return read


def milliseconds(low: int) -> Callable[[object], int]:
    """Return what reads a duration as whole milliseconds, from `low` on. A bare number: milliseconds."""

    def read(value: object) -> int:
        found = _duration(str(value), 0.001)
        ms = None if found is None else found * 1000
        if ms is None or round(ms) < low or abs(ms - round(ms)) > 0.001:
            raise WrongValue(
                f"must be a duration of {low} ms or more: 30s, 2h or a whole number of milliseconds, not {str(value)!r}"
            )
        return round(ms)

    return read


def rate(value: object) -> float:
    """Read a number of messages a second of more than 0."""
    text = str(value).strip()
    found = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0 < found < float("inf"):
        raise WrongValue(f"must be a number of messages a second, more than 0, not {str(value)!r}")
    return found


def one_of(*words: str) -> Callable[[object], str]:
    """Return what reads one of some words."""
    allowed = f"{', '.join(words[:-1])} or {words[-1]}"

    def read(value: object) -> str:
        if value not in words:
            raise WrongValue(f"must be {allowed}, not {value!r}{near_miss(str(value), words)}")
        return str(value)

    return read


def statuses(value: object) -> frozenset[int]:
    """Read exit statuses, separated by commas."""
    parts = [part.strip() for part in str(value).split(",")]
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= LAST_STATUS for part in parts):
        raise WrongValue(f"must be exit statuses from 1 to 255, as in 65,78, not {str(value)!r}")
    return frozenset(int(part) for part in parts)
