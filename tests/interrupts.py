"""SIGINT as in any program: a shell's background job would ignore it, and a test runner may have a handler."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["default_handler", "default_interrupts"]


@contextmanager
def default_interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt in this block; the handler before is put back."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """Make SIGINT raise KeyboardInterrupt in each test of a module that imports this."""
    with default_interrupts():
        yield
