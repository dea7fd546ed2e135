"""Waiting for a future until a deadline of the connection's clock."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

    from redelivery.clock import Clock

__all__ = ["answer_by"]


def answer_by(deadline: float, future: Future[None], clock: Clock) -> None:
    """Wait on this thread until the future ends, and raise its error. Raises TimeoutError at the deadline."""
    if not future.done():
        ended = threading.Condition()

        def wake(_: Future[None]) -> None:
            with ended:
                clock.notify(ended)

        future.add_done_callback(wake)
        with ended:
            while not future.done() and (left := deadline - clock.monotonic()) > 0:
                clock.wait(ended, left)
    if not future.done() and future.cancel():  # nobody waits for it any longer
        raise TimeoutError
    future.result()
