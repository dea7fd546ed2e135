"""How many examples the property tests draw: few while one works, many where `CI` is set. No thread outlives a test."""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.transitions import transitions, transitions_of_the_run

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["transitions", "transitions_of_the_run"]

# A busy machine draws slowly and runs late: neither is a failure of what is tested.
settings.register_profile(
    "quick", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=300, derandomize=True)
# Other examples each night: `--hypothesis-seed`, which .ci/full chooses and says, repeats them.
settings.register_profile("nightly", settings.get_profile("quick"), max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "thorough" if "CI" in os.environ else "quick"))


def pytest_configure() -> None:
    """Let the collector look thirty times more seldom than it does by default: it took a tenth of the time."""
    gc.set_threshold(20_000, 10, 10)


def pytest_collection_finish() -> None:
    """Keep what was imported and collected out of the collector's way: it stays, and is most of what there is."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_patience() -> Iterator[None]:
    """End what waits for an answer that no test gives, over wires that no test closes."""
    yield
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and thread.name == "redelivery-patience":
            thread.cancel()
            thread.join()
