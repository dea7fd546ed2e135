"""Carries out all of several steps, even if some raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["every_step"]


def every_step(steps: Iterable[Callable[[], object]]) -> None:
    """Call every step, also after one that raises. An exception here is a fault of this library, and is logged."""
    for step in steps:
        try:
            step()
        except Exception:
            logger.exception("a step of reporting a lost connection failed")
