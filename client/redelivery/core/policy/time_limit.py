"""Time limit of a policy: no redelivery of a message begins later than this after its first failure.

It is optional, also for policies of users: a policy without the attribute `maximum_elapsed` has no such limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core import option_values
from redelivery.core.cause import CAUSE_LIMIT, Cause

if TYPE_CHECKING:
    from redelivery.core.delivery import Record

__all__ = ["bounded", "checked_ms", "mark_late", "option_ms", "outlasted", "span"]


def checked_ms(value: object, option: str) -> int | None:
    """Return a limit in whole milliseconds, from seconds or a `timedelta`; None: no limit.

    Raises ConfigurationError for a value that is no duration, and for 0: in other systems 0 means no limit.
    """
    ms = None if value is None else option_values.duration_ms(value, option)
    if ms == 0:
        raise option_values.refuse(option, value, "a duration of 0.001 s or more, or None for no limit")
    return ms


def option_ms(value: object, option: str) -> int | None:
    """Read a limit in milliseconds, as text or a number; -1: no limit. Raises ConfigurationError, also for 0."""
    ms = option_values.option_ms(value, option, -1)
    if ms == 0:
        raise option_values.refuse(option, value, "1 millisecond or more, or -1 for no limit")
    return None if ms == -1 else ms


def span(ms: int) -> str:
    """Return a limit in seconds, for users: `3600 s`, `0.25 s`."""
    whole, rest = divmod(ms, 1000)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") + " s" if rest else f"{whole} s"


def bounded(worst_ms: int | None, limit_ms: int | None) -> int | None:
    """Return the bound of the sum of all delays, if no redelivery begins after the limit."""
    if worst_ms is None or limit_ms is None:
        return limit_ms if worst_ms is None else worst_ms
    return min(worst_ms, limit_ms)


def outlasted(record: Record, limit_ms: int, at: float) -> bool:
    """Return True if the time `at` is more than the limit after the first failure, in whole milliseconds.

    Time for which an open breaker kept the message does not count.
    """
    first = record.first_failure
    return first is not None and round((at - first - record.idle) * 1000) > limit_ms


def mark_late(record: Record, limit_ms: int) -> None:
    """Add to the cause of a message that its time limit was exceeded."""
    why = f" (after {span(limit_ms)})"
    cause = record.cause or Cause("")
    record.cause = Cause(cause.text[: CAUSE_LIMIT - len(why)] + why, cause.kind)
