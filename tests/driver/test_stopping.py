"""Requests to end a run."""

from __future__ import annotations

import math
from queue import Empty
from typing import Any

import pytest

from redelivery.driver.connection.connection_end import LOOK, Stopping


class Deaf:
    """Replacement of the queue that wakes the waiting thread: it never gets anything."""

    def __init__(self, stopping: Stopping, looks: float) -> None:
        self.stopping = stopping
        self.looks = looks
        self.patience: list[float] = []

    def get(self, timeout: float) -> None:
        self.patience.append(timeout)
        if len(self.patience) >= self.looks:
            self.stopping._asked = True
        raise Empty


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_request_that_wakes_nobody_is_noticed(timeout: float | None) -> None:
    """A request by a signal in the instant before a wait begins, which wakes no thread, ends the wait soon."""
    stopping: Any = Stopping()
    stopping._wakes = Deaf(stopping, looks=3)
    assert stopping.wait(timeout)
    assert stopping._wakes.patience == [LOOK] * 3


def test_a_wait_ends_at_its_timeout() -> None:
    """A wait without a request returns False after its timeout."""
    stopping: Any = Stopping()
    stopping._wakes = Deaf(stopping, looks=math.inf)
    assert not stopping.wait(0.001)
    assert max(stopping._wakes.patience) <= 0.001
