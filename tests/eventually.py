"""Waiting for an effect of another thread, or of a process, in real time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["eventually"]

PATIENCE = 60.0  # seconds


def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    never = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if condition():
            return
        never.wait(0.005)
    raise AssertionError("this has not happened")
