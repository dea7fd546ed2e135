"""Values of options: each refuses what is not allowed with the same kind of sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.cli.usage_errors import WrongValue
from redelivery.errors import near_miss

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["number", "one_of", "seconds", "statuses"]

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


def seconds(*, positive: bool = False) -> Callable[[object], float]:
    """Return what reads a number of seconds: 0 or more, or, with `positive`, more than 0."""
    least = "more than 0" if positive else "0 or more"

    def read(value: object) -> float:
        try:
            found = float(str(value))
        except ValueError:
            found = float("nan")
        if not 0 <= found < float("inf") or (positive and not found):
            raise WrongValue(f"must be a number of seconds, {least}, not {str(value)!r}")
        return found

    return read


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
