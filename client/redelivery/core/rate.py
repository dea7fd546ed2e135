"""Rate limit of dispatches: a token bucket. Sans-IO: `now` is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from redelivery.core.option_values import real, refuse, seconds, whole

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Rate", "TokenBucket"]

# Fraction of a token by which a bucket may fall short: times are doubles, and rounding must not cause a second wait.
NEARLY = 1e-9


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate limit of a consumer: `Rate(100, per=60)` handles 100 messages a minute. Redeliveries count.

    Raises:
        ConfigurationError: A value is out of its range.
    """

    messages: float
    """Messages in the time `per`; more than 0."""
    per: float | timedelta = 1.0
    """Time in seconds, or a `timedelta`; more than 0. Default 1 s."""
    burst: int | None = None
    """Messages at once after a pause. None: as many as in one second, at least 1."""

    def __post_init__(self) -> None:
        if real(self.messages, "Rate.messages") <= 0:
            raise refuse("Rate.messages", self.messages, "more than 0")
        if (per := seconds(self.per, "Rate.per")) <= 0:
            raise refuse("Rate.per", self.per, "more than 0 seconds")
        object.__setattr__(self, "per", per)
        if self.burst is not None:
            whole(self.burst, "Rate.burst", 1)

    def ahead(self, time: float) -> int:
        """Return how many messages are handled in `time` seconds, at least 1."""
        return max(1, int(min(self.messages / seconds(self.per, "Rate.per") * time, 1e9)))

    def bucket(self) -> TokenBucket:
        """Return a full bucket."""
        a_second = self.messages / seconds(self.per, "Rate.per")
        return TokenBucket(a_second, self.burst or max(1, ceil(a_second)))


class TokenBucket:
    """Bucket of tokens, filled at a rate up to a maximum; each dispatch takes one."""

    __slots__ = ("_a_second", "_at", "_most", "_tokens")

    def __init__(self, a_second: float, most: int) -> None:
        self._a_second = a_second
        self._most = most
        self._tokens: float = most
        self._at: float | None = None

    def take(self, now: float) -> None:
        """Take a token, even if there is none."""
        self._fill(now)
        self._tokens -= 1

    def has(self, now: float) -> bool:
        """Return True if there is a token."""
        self._fill(now)
        return self._tokens >= 1 - NEARLY

    @property
    def tokens(self) -> float:
        """Number of tokens at the last `has` or `take`."""
        return self._tokens + NEARLY

    @property
    def next(self) -> float | None:
        """When there will be a token; None: there is one."""
        missing = 1 - self._tokens
        return None if missing <= NEARLY or self._at is None else self._at + missing / self._a_second

    def _fill(self, now: float) -> None:
        if self._at is not None:
            self._tokens = min(self._most, self._tokens + max(0.0, now - self._at) * self._a_second)
        self._at = now
