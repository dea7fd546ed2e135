"""Source of jitter: the random numbers of collision avoidance."""

from __future__ import annotations

from typing import Protocol

__all__ = ["RandomSource"]


class RandomSource(Protocol):
    """Source of jitter; a `random.Random` is one."""

    def random(self) -> float:
        """Return a uniform number in [0, 1)."""
        ...
