"""How many examples the property tests draw: few while one works, many where `CI` is set. No thread outlives a test."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from redelivery.core.delivery import Delivery
from redelivery.core.transitions import TRANSITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

# A busy machine draws slowly and runs late: neither is a failure of what is tested.
settings.register_profile(
    "quick", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=300, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "thorough" if "CI" in os.environ else "quick"))


@pytest.fixture(scope="session", autouse=True)
def transitions() -> Iterator[set[tuple[str, str]]]:
    """Check each change of a delivery's state against the engine's table; return those that were seen."""
    plain: Any = vars(Delivery)["state"]
    allowed = {(row.before, row.after) for row in TRANSITIONS}
    seen: set[tuple[str, str]] = set()

    def enter(delivery: Delivery, state: str) -> None:
        before = plain.__get__(delivery, type(delivery)) if hasattr(delivery, "state") else None
        if before is not None:
            assert (before, state) in allowed, f"{before} -> {state} is not in the table of transitions"
            seen.add((before, state))
        else:
            assert state == "ready"
        plain.__set__(delivery, state)

    kind: Any = Delivery
    kind.state = property(plain.__get__, enter)
    yield seen
    kind.state = plain


@pytest.fixture(autouse=True)
def no_patience() -> Iterator[None]:
    """End what waits for an answer that no test gives, over wires that no test closes."""
    yield
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer) and thread.name == "redelivery-patience":
            thread.cancel()
            thread.join()
