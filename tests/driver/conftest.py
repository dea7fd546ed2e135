"""Fixture of both twins on an empty broker in virtual time; no thread may outlive a test."""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import AsyncTwin, SyncTwin, Twin, threads_left

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.testing import ManualClock, MemoryBroker

# Seconds after which a hanging test shows its stacks. Then the process ends, with all processes that its tests
# started.
STUCK = 120.0


class Watch:
    """Watch that ends the process, with all stacks, when a test hangs: one thread for all, as one each costs 2 ms."""

    def __init__(self) -> None:
        self.began: float | None = None
        self._over = threading.Event()
        self.thread = threading.Thread(target=self._look, name="watch", daemon=True)
        self.thread.start()

    def _look(self) -> None:
        while not self._over.wait(1):
            if (began := self.began) is not None and time.monotonic() - began > STUCK:
                faulthandler.dump_traceback(all_threads=True)
                os._exit(1)

    def end(self) -> None:
        """Stop watching."""
        self._over.set()
        self.thread.join()


@pytest.fixture(scope="package")
def watch() -> Iterator[Watch]:
    """Return the one watch over all tests of this folder."""
    made = Watch()
    yield made
    made.end()


@pytest.fixture(autouse=True)
def nothing_left(watch: Watch) -> Iterator[None]:
    """Show all stacks of a test that hangs; fail one that leaves threads behind."""
    watch.began = time.monotonic()
    yield
    watch.began = None
    assert threads_left() == []


@pytest.fixture(params=["sync", "async"])
def twin(
    request: pytest.FixtureRequest, redelivery_broker: MemoryBroker, redelivery_clock: ManualClock
) -> Iterator[Twin]:
    """Return a twin for each kind of connection; after the test it closes all that it opened."""
    kind = SyncTwin if request.param == "sync" else AsyncTwin
    made = kind(redelivery_broker, redelivery_clock)
    yield made
    made.close()
    assert threads_left() == []
    assert (
        redelivery_clock._threads._slots == []
    )  # each thread that attached itself to the clock has detached itself
