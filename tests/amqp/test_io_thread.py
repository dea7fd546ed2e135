"""Waits of a connection's thread."""

from __future__ import annotations

import socket
import time
from typing import Any, cast

from redelivery_amqp.io_thread import IoThread


def test_it_sleeps_until_the_next_heart_beat() -> None:
    """The thread sleeps until proton's deadline; without a deadline it sleeps until it is woken."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = IoThread(ours, cast("Any", None), list, lambda _: None)
        with thread._bell, thread._ring:
            assert thread._patience() is None
            thread._deadline = time.monotonic() + 100
            patience = thread._patience()
            assert patience is not None
            assert 50_000 < patience <= 100_000
            thread._deadline = time.monotonic() - 1
            assert thread._patience() == 0
