"""A limit of dispatches over time: a token bucket. Sans-IO: `now` is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from redelivery.core.option_values import real, refuse, seconds, whole

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Rate", "TokenBucket"]

# Tokens below this are none: times are doubles, and a token must not be waited for twice.
NEARLY = 1e-9


@dataclass(frozen=True, slots=True)
class Rate:
    """How many messages a consumer handles in a time: `Rate(100, per=60)`. Redeliveries count.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    messages: float
    """More than 0."""
    per: float | timedelta = 1.0
    """In this time: seconds, or a `timedelta`; more than 0."""
    burst: int | None = None
    """So many at once after a pause. None: as many as in a second, at least 1."""

    def __post_init__(self) -> None:
        if real(self.messages, "Rate.messages") <= 0:
            raise refuse("Rate.messages", self.messages, "more than 0")
        if (per := seconds(self.per, "Rate.per")) <= 0:
            raise refuse("Rate.per", self.per, "more than 0 seconds")
        object.__setattr__(self, "per", per)
        if self.burst is not None:
            whole(self.burst, "Rate.burst", 1)

    def ahead(self, time: float) -> int:
        """Return how many messages are handled in so many seconds, at least 1."""
        return max(1, int(min(self.messages / seconds(self.per, "Rate.per") * time, 1e9)))

    def bucket(self) -> TokenBucket:
        """Return a bucket that is full."""
        a_second = self.messages / seconds(self.per, "Rate.per")
        return TokenBucket(a_second, self.burst or max(1, ceil(a_second)))


class TokenBucket:
    """Tokens that come at a rate, up to a number; each dispatch takes one."""

    __slots__ = ("_a_second", "_at", "_most", "_tokens")

    def __init__(self, a_second: float, most: int) -> None:
        self._a_second = a_second
        self._most = most
        self._tokens: float = most
        self._at: float | None = None

    def take(self, now: float) -> None:
        """Take a token, whether there is one or not."""
        self._fill(now)
        self._tokens -= 1

    def has(self, now: float) -> bool:
        """Whether there is a token."""
        self._fill(now)
        return self._tokens >= 1 - NEARLY

    @property
    def tokens(self) -> float:
        """How many there were when it was asked last."""
        return self._tokens + NEARLY

    @property
    def next(self) -> float | None:
        """When there is a token again; None: there is one."""
        missing = 1 - self._tokens
        return None if missing <= NEARLY or self._at is None else self._at + missing / self._a_second

    def _fill(self, now: float) -> None:
        if self._at is not None:
            self._tokens = min(self._most, self._tokens + max(0.0, now - self._at) * self._a_second)
        self._at = now
