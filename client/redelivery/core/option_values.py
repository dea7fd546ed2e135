"""Checked conversions of option values. An error names the option in full and what it allows.

Two families: values written in Python (seconds, `bool`, `int`), and values written as text, spelled as in ActiveMQ
(milliseconds, `true`/`false`). Text is parsed as Java does: it is not trimmed, and Python's own forms (`1_000`,
surrounding blanks, digits of other scripts) are no numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from redelivery.errors import ConfigurationError, near_miss

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_INT = 2**31 - 1
"""Largest Java int: ActiveMQ's bound of counts."""
MAX_LONG = 2**63 - 1
"""Largest Java long: ActiveMQ's delays saturate here."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_REAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MICROSECOND = timedelta(microseconds=1)

Value = TypeVar("Value")


def shown(value: object) -> str:
    """Return `value` for an error text: short, and on one line."""
    try:
        text = repr(value)
    except ValueError:
        # Python formats no integer of more than 4,300 digits.
        return "a number of thousands of digits"
    except RecursionError:
        return "something nested too deep"
    return text if len(text) <= 80 else text[:77] + "..."


def refuse(option: str, value: object, allowed: str) -> ConfigurationError:
    """Return (not raise) the error that `option` cannot be `value`; it names the allowed values."""
    return ConfigurationError(f"{option} must be {allowed}, not {shown(value)}", option=option)


def clip(value: float) -> int:
    """Convert a double of 0 or more to a long as Java's cast does: towards zero, at most 2^63-1."""
    return MAX_LONG if value >= MAX_LONG else int(value)


def _finite(value: float) -> bool:
    """Return True if a double can hold the number, which may be of any size."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def duration_ms(value: object, option: str) -> int:
    """Convert seconds (int, float) or a `timedelta` to whole milliseconds, rounded, 0 to 2^63-1."""
    allowed = "a duration of 0 seconds or more (a number of seconds, or a timedelta)"
    if isinstance(value, timedelta):
        ms = round((value // _MICROSECOND) / 1000)
    elif isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise refuse(option, value, allowed)
    else:
        ms = value * 1000 if isinstance(value, int) else round(value * 1000)
    if ms < 0 or ms > MAX_LONG:
        raise refuse(option, value, allowed)
    return ms


def seconds(value: object, option: str, *, none: str = "") -> float:
    """Return a duration, in seconds or a `timedelta`, as seconds; `none`: the meaning of None, for the error."""
    result = value.total_seconds() if isinstance(value, timedelta) else value
    if (
        isinstance(result, bool)
        or not isinstance(result, int | float)
        or not (_finite(result) and result >= 0)
    ):
        allowed = "a number of seconds of 0 or more, or a timedelta"
        raise refuse(option, value, f"{allowed}, or None {none}" if none else allowed)
    return float(result)


def whole(value: object, option: str, low: int = 0, high: int = MAX_INT, unit: str = "") -> int:
    """Return a Python int between `low` and `high`; a bool, float or text is refused."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise refuse(option, value, f"a whole number {unit}from {low} to {high}")
    return value


def real(value: object, option: str, low: float = 0.0, high: float = math.inf) -> float:
    """Return a finite Python number between `low` and `high` as a float; a bool or text is refused."""
    bound = f"of at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(option, value, f"a number {bound}")
    if not (_finite(value) and low <= value <= high):
        raise refuse(option, value, f"a number {bound}")
    return float(value)


def flag(value: object, option: str) -> bool:
    """Return a Python bool; refuse anything else."""
    if not isinstance(value, bool):
        raise refuse(option, value, "True or False")
    return value


def option_ms(value: object, option: str, low: int = 0) -> int:
    """Read whole milliseconds written as text or given as a number, from `low` to 2^63-1."""
    return option_whole(value, option, low, MAX_LONG, "of milliseconds ")


def option_whole(value: object, option: str, low: int = 0, high: int = MAX_LONG, unit: str = "") -> int:
    """Read a whole number written as text or given as a number, between `low` and `high`."""
    number = value
    if (isinstance(value, str) and _WHOLE.fullmatch(value)) or (
        isinstance(value, float) and value.is_integer()
    ):
        number = int(value)
    return whole(number, option, low, high, unit)


def option_real(value: object, option: str, low: float = 0.0, high: float = math.inf) -> float:
    """Read a finite number written as text or given as a number, between `low` and `high`."""
    number: object = value
    if isinstance(value, str) and _REAL.fullmatch(value):
        number = float(value)
    return real(number, option, low, high)


def option_flag(value: object, option: str) -> bool:
    """Read `true` or `false` (in any case) or a bool. ActiveMQ reads other text as false; here it is refused."""
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else None
    if word not in ("true", "false"):
        raise refuse(option, value, "true or false")
    return word == "true"


def option_choice(value: object, option: str, allowed: Iterable[str]) -> str:
    """Read one of the `allowed` words, spelled exactly."""
    words = tuple(allowed)
    if not isinstance(value, str) or value not in words:
        hint = near_miss(value, words) if isinstance(value, str) else ""
        raise ConfigurationError(
            f"{option} must be one of {', '.join(words)}, not {shown(value)}{hint}", option=option
        )
    return value


def known_options(options: Mapping[str, Value], known: Iterable[str], prefix: str = "") -> dict[str, Value]:
    """Return `options` under their canonical names; as in ActiveMQ, the case of the first letter does not matter.

    Raises ConfigurationError for an unknown name, a name that is no text, or one option in two spellings.
    """
    names = tuple(known)
    found: dict[str, Value] = {}
    for key, value in options.items():
        written = str(key)
        name = written[:1].lower() + written[1:]
        if name not in names:
            hint = near_miss(written, names) or f"; allowed: {', '.join(names)}"
            raise ConfigurationError(f"unknown option {prefix}{written}{hint}", option=prefix + written)
        if name in found:
            raise ConfigurationError(f"{prefix}{name} is given twice, in two spellings", option=prefix + name)
        found[name] = value
    return found


def check_mapping(value: object, example: str) -> None:
    """Raise ConfigurationError for a value that is neither None nor maps patterns; `example`: of the right call."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"patterns are the keys of a mapping, as in {example}, not {shown(value)}")
