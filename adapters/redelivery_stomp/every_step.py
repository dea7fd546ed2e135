"""Takes every one of several steps, whichever of them raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["every_step"]


def every_step(steps: Iterable[Callable[[], object]]) -> None:
    """Take every step, also behind one that raises. That is a fault of the library, and only logged."""
    for step in steps:
        try:
            step()
        except Exception:
            logger.exception("a step of reporting a lost connection failed")
