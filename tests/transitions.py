"""Pytest plugin: each change of a delivery's state is checked against the engine's table, in all tests and threads.

A change that the table does not have raises where it happens. It also fails its test, because the library may handle
the exception.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from redelivery.core.delivery import Delivery
from redelivery.core.engine import Engine
from redelivery.core.ledger_engine import LedgerEngine
from redelivery.core.transitions import TRANSITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Transitions", "transitions", "transitions_of_the_run"]


class Transitions:
    """Observed transitions, and those that the table does not have."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str, type]] = set()
        self.violations: list[str] = []
        self._fed = threading.local()
        self._events: dict[tuple[str, str], tuple[type, ...]] = {
            (row.before, row.after): row.events for row in TRANSITIONS
        }

    def watch(self, kind: Any) -> None:
        """Record which event an engine of this class is fed, on each thread."""
        plain = kind.feed

        def feed(engine: Any, event: object, now: float) -> Any:
            before = getattr(self._fed, "event", None)
            self._fed.event = type(event)
            try:
                return plain(engine, event, now)
            finally:
                self._fed.event = before

        kind.feed = feed

    def enter(self, before: str, after: str) -> None:
        """Record a change. Raises AssertionError if the table does not have it."""
        event = getattr(self._fed, "event", None)
        events = self._events.get((before, after))
        if events is None or (event is not None and event not in events):
            upon = "" if event is None else f" upon {event.__name__}"
            self.violations.append(f"{before} -> {after}{upon} is not in the table of transitions")
            raise AssertionError(self.violations[-1])
        if event is not None:
            self.seen.add((before, after, event))


@pytest.fixture(scope="session")
def transitions_of_the_run() -> Iterator[Transitions]:
    """Check each change from now on."""
    slot: Any = vars(Delivery)["state"]
    kept = Transitions()

    def enter(delivery: Delivery, state: str) -> None:
        try:
            before = slot.__get__(delivery, type(delivery))
        except AttributeError:
            assert state == "ready"
        else:
            kept.enter(before, state)
        slot.__set__(delivery, state)

    kind: Any = Delivery
    feeds = {each: each.__dict__["feed"] for each in (Engine, LedgerEngine)}
    for each in feeds:
        kept.watch(each)
    kind.state = property(slot.__get__, enter)
    yield kept
    kind.state = slot
    for each, feed in feeds.items():
        setattr(each, "feed", feed)  # noqa: B010 - the type checker would refuse the assignment


@pytest.fixture(autouse=True)
def transitions(transitions_of_the_run: Transitions) -> Iterator[Transitions]:
    """Fail a test in which a delivery made a transition that the table does not have, on any thread."""
    transitions_of_the_run.violations.clear()
    yield transitions_of_the_run
    assert transitions_of_the_run.violations == []
