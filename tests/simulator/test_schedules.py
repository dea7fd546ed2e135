"""Schedules that once broke an invariant; kept, because random ones seldom reach them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.simulator.explore import case_of, replay, story

SCHEDULES = sorted((Path(__file__).parent / "schedules").glob("*.json"))


@pytest.mark.parametrize("path", SCHEDULES, ids=[path.stem for path in SCHEDULES])
def test_a_schedule_ends_well(path: Path) -> None:
    """The schedule no longer loses a message, makes a false dead letter, or runs without an end."""
    case, schedule = case_of(json.loads(path.read_text(encoding="utf-8")))
    broken, _ = replay(case, schedule)
    assert broken is None, story(case, schedule)
