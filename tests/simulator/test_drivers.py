"""The second level of the simulator: whole connections over the embedded broker."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest
from tests.simulator.__main__ import main
from tests.simulator.drivers import wander_drivers
from tests.simulator.test_simulator import any_digest

from redelivery_memory.messages import MemoryDelivery

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEDULES = int(os.environ.get("REDELIVERY_DRIVER_SCHEDULES", "60"))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of lost connections are thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_nothing_is_found_in_whole_connections() -> None:
    """Cuts, lost accepts, refusals, closes, waits, two consumers: nothing is lost, run twice at once, or left."""
    found = {seed: broken for seed in range(SCHEDULES) if (broken := wander_drivers(seed)) is not None}
    assert found == {}


def test_the_old_rule_is_found_out_in_whole_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were an id proof, a message would be lost for its namesake."""
    any_digest(monkeypatch)
    monkeypatch.setattr(MemoryDelivery, "digest", lambda _: b"")
    assert any((wander_drivers(seed) or "").startswith("loss") for seed in range(1, 401, 2))


def test_the_command_goes_through_whole_connections(capsys: pytest.CaptureFixture[str]) -> None:
    """It says how many it has seen."""
    assert main(["--drivers", "--schedules", "5"]) == 0
    assert "5 schedules" in capsys.readouterr().out
