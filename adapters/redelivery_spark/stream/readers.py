"""Readers as the coordinator uses them, threads or processes; and the reader that is a thread of the runner."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol

from redelivery.errors import RedeliveryError, another

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.clock import Clock
    from redelivery_spark.stream.available_now import AvailableNow
    from redelivery_spark.stream.lane_reader import LaneReader
    from redelivery_spark.stream.source_connection import SourceConnection

__all__ = ["Readers", "ReadingThread"]

# Seconds of one turn while no message arrives.
TURN = 0.5
# Seconds to wait for the current turn at the end.
LAST_TURN = 2.0


class Readers(Protocol):
    """All readers of one query."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Counts of messages. `copies`: duplicates. `refused`: messages that cannot become rows. `set_aside`: those of
        the refused that cannot be dead-lettered, and stay on the broker.
        """
        ...

    def start(self) -> None:
        """Begin to read."""

    def want(self, *, wanted: bool) -> None:
        """Set whether Spark waits for rows: all messages are then published at once."""

    def published(self) -> int:
        """Return a number that grows with each segment. Raises the error that ended a reader."""
        ...

    def pending(self) -> bool:
        """True if messages are about to be published."""
        ...

    def wait(self, seen: int, timeout: float) -> None:
        """Wait until more is published than `seen`, for `timeout` seconds at most."""

    def full(self) -> bool:
        """True if a reader waits for rows to be settled."""
        ...

    def settled(self) -> None:
        """Inform the readers that the lanes have been settled."""

    def ended(self, lane: int, connection: str) -> None:
        """Note the end of another lane's connection, whose segments are there: its messages can be redelivered."""

    def until_exhausted(self, available: AvailableNow) -> None:
        """End once all messages that are there now have been taken."""

    @property
    def connected(self) -> bool:
        """True if all connections are up."""
        ...

    def stop(self) -> None:
        """End; the broker takes back messages that were not published."""


class ReadingThread:
    """One reader, on a thread of its own."""

    def __init__(self, reader: LaneReader, source: SourceConnection, clock: Clock) -> None:
        self._reader = reader
        self._source = source
        self._clock = clock
        self._parent = os.getppid()
        self._count = 0
        self._error: BaseException | None = None
        self._ended = False
        self._more = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def counts(self) -> Mapping[str, int]:
        """See Readers."""
        reader = self._reader
        return {"copies": reader.copies, "refused": reader.refused, "set_aside": reader.set_aside}

    def start(self) -> None:
        """See Readers."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="redelivery-reader", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            # Spark may have been killed: accepted messages would not be processed.
            while not self._ended and os.getppid() == self._parent:
                if self._reader.step(TURN):
                    self._tell()
        except BaseException as error:  # noqa: BLE001 - raised where Spark asks next
            self._error = error
        self._tell()

    def _tell(self) -> None:
        with self._more:
            self._count += 1
            self._clock.notify(self._more)

    def want(self, *, wanted: bool) -> None:
        """See Readers."""
        self._reader.wanted = wanted
        if wanted and self._reader.pending:
            self._source.bulk.wake()

    def published(self) -> int:
        """See Readers."""
        error = self._error
        if isinstance(error, RedeliveryError):
            raise another(error)
        if isinstance(error, Exception):
            raise RedeliveryError(f"reading has stopped: {error or type(error).__name__}") from error
        if error is not None:
            raise error
        return self._count

    def pending(self) -> bool:
        """See Readers."""
        return self._reader.pending

    def wait(self, seen: int, timeout: float) -> None:
        """See Readers."""
        deadline = self._clock.monotonic() + timeout
        with self._more:
            while self._count == seen and (left := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._more, left)

    def full(self) -> bool:
        """See Readers."""
        return self._reader.full

    def settled(self) -> None:
        """See Readers. The lane belongs to this process."""

    def ended(self, lane: int, connection: str) -> None:
        """See Readers."""
        self._reader.ended(lane, connection)

    def until_exhausted(self, available: AvailableNow) -> None:
        """See Readers."""
        self._reader.available = available

    @property
    def connected(self) -> bool:
        """See Readers."""
        return self._source.connected

    def stop(self) -> None:
        """See Readers."""
        self._ended = True
        if self._thread is not None:
            self._source.bulk.wake()
            self._thread.join(LAST_TURN)
