"""Plugins of all tests: tiers, limits, progress; and no thread outlives a test."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest
from tests.plugins import PLUGINS, REGISTERED
from tests.transitions import transitions, transitions_of_the_run

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["transitions", "transitions_of_the_run"]

if not REGISTERED:
    pytest_plugins = PLUGINS


def pytest_configure() -> None:
    """Make the garbage collector run thirty times less often than by default: it took a tenth of the time."""
    gc.set_threshold(20_000, 10, 10)


def pytest_collection_finish() -> None:
    """Exempt imported and collected objects from garbage collection: most objects are of that kind."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_patience() -> Iterator[None]:
    """Stop response timeouts that a test has left running, of connections that no test closes."""
    yield
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and thread.name == "redelivery-patience":
            thread.cancel()
            thread.join()
