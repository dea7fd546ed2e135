"""Ctrl-C in the main thread while it waits for the broker's answer to a log-in or a DISCONNECT."""

from __future__ import annotations

import signal
import threading

import pytest
from tests.eventually import eventually
from tests.interrupts import default_handler
from tests.stomp.peer import FrozenPeer, opening

from redelivery_stomp import connection
from redelivery_stomp.adapter import StompAdapter
from redelivery_stomp.transport import ScanningTransport

__all__ = ["default_handler"]


def press(*_: object) -> float:
    """Press Ctrl-C in the place of a wait's time-out."""
    signal.raise_signal(signal.SIGINT)
    return 0.0


def test_an_interrupted_log_in_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log-in that Ctrl-C interrupts ends the reading thread and closes its socket."""
    threads = set(threading.enumerate())
    with FrozenPeer(answers=False) as peer:
        threads |= set(threading.enumerate())
        monkeypatch.setattr(ScanningTransport, "left", press)
        with pytest.raises(KeyboardInterrupt):
            StompAdapter().open(opening(peer.uri), lambda _: None)
        eventually(lambda: set(threading.enumerate()) <= threads)


def test_an_interrupted_close_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait for the receipt of DISCONNECT that Ctrl-C interrupts ends the connection: its messages are released."""
    with FrozenPeer() as peer:
        threads = set(threading.enumerate())
        adapter = StompAdapter()
        adapter.open(opening(peer.uri), lambda _: None)
        monkeypatch.setattr(connection, "capped", press)
        with pytest.raises(KeyboardInterrupt):
            adapter.close(10.0)
        eventually(lambda: set(threading.enumerate()) <= threads)
