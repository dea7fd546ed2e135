"""Observers of listeners in a session, which decides after the end of a handler."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.driver.twins import eventually

from redelivery.events import Finished, Observer

if TYPE_CHECKING:
    from tests.driver.twins import Twin

    from redelivery import Message


class Results(Observer):
    """Observer that keeps the body, if a handler had it, and the outcome of each result."""

    def __init__(self) -> None:
        self.shown: list[tuple[Any, Any]] = []

    def started(self, message: Message) -> object:
        return message.text

    def finished(self, token: Any, result: Finished) -> None:
        self.shown.append((token, result.outcome))


def nothing(_: Message) -> None:
    """Succeed."""


def has_ended(results: Results, count: int) -> bool:
    """Return True if so many results have been shown."""
    return len(results.shown) == count


def test_a_session_decides_after_the_handlers_end(twin: Twin) -> None:
    """A handler's run ends without an outcome; the commit is a result of its own, and not of the next run."""
    results = Results()
    connection = twin.connect(observers=[results])
    session = connection.session("transacted")
    session.listen("orders", twin.handler(nothing))
    twin.call(connection.start())
    for before, body in ((0, "a"), (2, "b")):
        twin.broker.send("orders", body)
        eventually(twin, partial(has_ended, results, before + 1))
        twin.call(session.commit())
        eventually(twin, partial(has_ended, results, before + 2))
    assert results.shown == [("a", None), (None, "accepted"), ("b", None), (None, "accepted")]
