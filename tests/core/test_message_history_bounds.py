"""Bounds of the memory over connections, and what is removed first."""

from __future__ import annotations

from math import inf

from tests.core.copies import Copy, accepted, run_into_a_loss, unseen, waiting

from redelivery.core.delivery import Record
from redelivery.core.message_history import RECALL, MessageHistory


def test_what_is_remembered_is_bounded_and_confirmed_verdicts_go_first() -> None:
    """A confirmed verdict is removed before a count, and before a verdict in doubt."""
    history = MessageHistory(10)
    (live,) = waiting(history, Copy("live"))
    for number in range(20):
        safe = Record()
        safe.poisoned = safe.confirmed = True
        history.remember(Copy(str(number)), safe)
    assert len(history) == 10
    assert history.known(Copy("live"), 0.0) is live
    assert history.known(Copy("10"), 0.0) is None
    assert history.known(Copy("11"), 0.0) is not None
    for number in range(20):
        history.remember(Copy(f"more {number}"), Record())
    assert len(history) == 10
    assert history.known(Copy("more 9"), 0.0) is None
    assert history.known(Copy("more 10"), 0.0) is not None


def test_accepts_in_doubt_are_bounded() -> None:
    """The oldest acceptances are removed; their messages are handled again."""
    history = MessageHistory(3)
    accepted(history, *(Copy(str(number)) for number in range(5)))
    assert [unseen(history, Copy(str(number))) for number in range(5)] == [False, False, True, True, True]


def test_verdicts_are_bounded() -> None:
    """The oldest verdicts are removed first."""
    history = MessageHistory(2)
    for number in range(4):
        history.poisoned(Copy(str(number)), Record(), inf)
    history.lost(0.0, 1, 0.0)
    assert [history.known(Copy(str(number)), 0.0) is not None for number in range(4)] == [
        False,
        False,
        True,
        True,
    ]


def test_each_open_consumer_has_room() -> None:
    """The room is that of the most consumers open at one time, and stays when they have closed."""
    history = MessageHistory()
    for window in (1000, 1000, 1000, -1000, -1000, -1000, 500):
        history.widen(window)
    for number in range(RECALL + 4000):
        history.remember(Copy(str(number)), Record())
    assert len(history) == RECALL + 3000


def test_one_that_remembers_nothing() -> None:
    """A history that was stopped remembers nothing."""
    history = MessageHistory()
    history.stop()
    waiting(history, Copy())
    accepted(history, Copy())
    history.poisoned(Copy(), Record(), inf)
    run_into_a_loss(history, Copy())
    history.lost(0.0, 1, 0.0)
    assert len(history) == 0
