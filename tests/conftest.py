"""Number of examples of property tests: few on a developer's machine, many if `CI` is set.

No thread outlives a test.
"""

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

# A busy machine is slow: that is not a failure of the code.
settings.register_profile(
    "quick", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=300, derandomize=True)
# Other examples each night. `--hypothesis-seed`, which .ci/full chooses and prints, repeats them.
settings.register_profile("nightly", settings.get_profile("quick"), max_examples=300)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "thorough" if "CI" in os.environ else "quick"))


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
