"""Agreed heart-beats over STOMP."""

from __future__ import annotations

from typing import Any

import pytest

from redelivery_stomp import StompAdapter
from redelivery_stomp.connection import agreed_heartbeats


class Listener:
    """stomp.py's listener, after CONNECTED."""

    def __init__(self, *, running: bool, heartbeats: tuple[int, int]) -> None:
        self.running, self.heartbeats = running, heartbeats


@pytest.mark.parametrize(
    ("running", "heartbeats", "agreed"),
    [
        (True, (10000, 7500), (10.0, 7.5)),
        (True, (0, 7500), (None, 7.5)),
        # The client asked for heart-beats, and the broker did not answer.
        (False, (10000, 10000), (None, None)),
    ],
)
def test_heart_beats(running: bool, heartbeats: tuple[int, int], agreed: Any) -> None:
    """The agreed heart-beats are in seconds for each direction; None if the broker has none."""
    listener: Any = Listener(running=running, heartbeats=heartbeats)
    assert agreed_heartbeats(listener) == agreed


def test_without_a_connection_nothing_is_agreed() -> None:
    """An adapter without a connection returns None."""
    assert StompAdapter().agreed() is None
