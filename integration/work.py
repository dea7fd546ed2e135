"""Handlers that fail as a message's key says, and a connection that runs with them, for the integration tests."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import redelivery

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from redelivery.core.report import Report

POLICY = redelivery.RedeliveryPolicy


class Attempt(NamedTuple):
    """One run of a handler for one message."""

    began: float
    ended: float
    redelivered: bool
    redelivery_count: int
    body: bytes


class Work:
    """A handler that records every attempt by the message's `key` property, or by its text without one.

    A key that begins with "bad" always fails, "once" fails the first time, every other one succeeds at once.
    """

    def __init__(self) -> None:
        """Begin without attempts."""
        self.attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
        self.done: defaultdict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def __call__(self, message: redelivery.Message) -> None:
        """Handle one delivery."""
        began = time.monotonic()
        key = message.headers.get("key") or message.text
        body, redelivered, count = message.body, message.redelivered, message.redelivery_count
        with self._lock:
            first = not self.attempts[key]
            fails = key.startswith("bad") or (key.startswith("once") and first)
            if not fails:
                self.done[key] += 1
            self.attempts[key].append(Attempt(began, time.monotonic(), redelivered, count, body))
        if fails:
            raise ValueError(f"attempt {count + 1}: of {key}\nsecond line")

    def counts(self) -> dict[str, int]:
        """Return the number of deliveries of each key."""
        with self._lock:
            return {key: len(attempts) for key, attempts in self.attempts.items()}

    def lateness(self, key: str, delays_ms: Iterable[int]) -> list[float]:
        """Return the seconds by which each redelivery was late; below 0: early."""
        attempts = self.attempts[key]
        gaps = [after.began - before.ended for before, after in itertools.pairwise(attempts)]
        return [gap - delay / 1000 for gap, delay in zip(gaps, delays_ms, strict=True)]


class Running:
    """`connection.run()` in a thread for the time of the block; its exception is in `error`."""

    def __init__(self, connection: redelivery.Connection, *, drain: float = 10.0) -> None:
        """Set the connection, which is entered and has its listeners."""
        self.connection = connection
        self.report: Report | None = None
        self.error: BaseException | None = None
        self._drain = drain
        self._thread = threading.Thread(target=self._run, name="running", daemon=True)

    @property
    def ended(self) -> bool:
        """True if `run` has returned or raised."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.report = self.connection.run(drain_timeout=self._drain)
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, drain, and fail if that does not end."""
        self.connection.stop()
        self._thread.join(self._drain + 20.0)
        assert self.ended or error is not None, "run() has not ended"


def at_rest(connection: redelivery.Connection) -> bool:
    """True if the connection is open, and no message is parked, unconfirmed or in doubt."""
    engines = [dispatcher.engine for dispatcher in connection._dispatchers]
    return connection.connected and not any(engine.load.parked or engine.load.running for engine in engines)
