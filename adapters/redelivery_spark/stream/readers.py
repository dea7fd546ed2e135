"""Readers as the coordinator uses them, threads or processes; and the reader that is a thread of the runner."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from redelivery import errors
from redelivery.errors import RedeliveryError, another
from redelivery_spark.stream.reader_process import configuration
from redelivery_spark.wal.checked_file import LogDamaged
from redelivery_spark.wal.lane import Segment
from redelivery_spark.wal.store import LogTaken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.clock import Clock
    from redelivery_spark.options.source_options import SourceOptions
    from redelivery_spark.stream.lane_reader import LaneReader
    from redelivery_spark.stream.lanes import Lanes
    from redelivery_spark.stream.source_connection import SourceConnection
    from redelivery_spark.stream.trigger_size import AvailableNow
    from redelivery_spark.wal.lane import Lane

__all__ = ["ReaderProcesses", "Readers", "ReadingThread"]


# ---- Readers ---------------------------------------------------------------------------------------------

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


# ---- Reader processes ------------------------------------------------------------------------------------
# Several readers, each a process of the runner: for more than one thread's processor, or the runner's GIL, allows.

logger = logging.getLogger("redelivery.spark")
# Seconds until a process that died is started again: doubled from the first to the last.
FIRST_PAUSE, LAST_PAUSE = 0.5, 30.0
COUNTS = ("copies", "refused", "set_aside")
# Seconds that all processes have to end.
LONGEST_END = 6.0
# Seconds until a process's lines are handled, at most.
POLL = 0.05
# Ended connections of which a starting process is informed: those whose rows may still be in doubt.
ENDED = 64


class _Process:
    """Process of one reader, over all its starts."""

    def __init__(
        self, readers: ReaderProcesses, lane: Lane, options: SourceOptions, log: str, start: str
    ) -> None:
        self.lane = lane
        self._readers = readers
        self._options = options
        self._log = log
        self._start = start
        self._starts = 0
        self._child: subprocess.Popen[str] | None = None
        self.status: dict[str, Any] = {}
        self._before: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self._connections: set[str] = set()
        self._failed = False
        self._thread = threading.Thread(
            target=self._keep, name=f"redelivery-reader-{lane.number}", daemon=True
        )

    def start(self) -> None:
        """Start the thread that keeps the process running."""
        self._thread.start()

    def total(self, name: str) -> int:
        """Return a count over all starts."""
        return int(self._before[name] + self.status.get(name, 0))

    def _keep(self) -> None:
        try:
            self._start_again_and_again()
        except RedeliveryError as error:
            self._readers.fail(error)
        except Exception as error:  # noqa: BLE001 - raised where Spark asks next
            text = f"reader {self.lane.number} cannot be run: {error or type(error).__name__}"
            self._readers.fail(RedeliveryError(text))

    def _start_again_and_again(self) -> None:
        pause = FIRST_PAUSE
        while not self._readers.ending.is_set():
            said = self._live()
            # An error that has ended the query ends this process for good.
            if self._failed or self._readers.ending.is_set():
                return
            if said:
                pause = FIRST_PAUSE
            logger.warning("reader %d has ended; it is started again in %.1f s", self.lane.number, pause)
            self._readers.ending.wait(pause)
            pause = min(pause * 2, LAST_PAUSE)

    def _live(self) -> bool:
        """Run one process to its end; return True if it has published a segment."""
        child = self._begun()
        if child is None:
            return False
        assert child.stdout is not None
        said = False
        for line in child.stdout:
            with suppress(ValueError):
                said = self._hear(json.loads(line)) or said
        # Messages that it had set aside or taken are on the broker, which redelivers them: it is not exhausted.
        self._before |= {name: self.total(name) for name in ("copies", "refused")}
        self.status = {}
        child.wait()
        child.stdout.close()
        self.end()
        known = self.lane.last
        self.lane.look()
        # It may have died before it could report what it had published.
        self._connections |= {each.connection for each in self.lane.after(known)}
        for connection in self._connections:
            self._readers.ended(self.lane.number, connection)
        self._connections.clear()
        self._readers.more()
        return said

    def _begun(self) -> subprocess.Popen[str] | None:
        """Start a process, and send it all that the others know; return None if no process is to start any more."""
        self._starts += 1
        lane = self.lane
        config = configuration(
            self._options,
            lane=lane.number,
            last=lane.last,
            settled=lane.settled,
            log=self._log,
            start=self._start,
            siblings=f"{self._start}.",
            name=f"{self._start}.{lane.number}.{self._starts}",
        )
        argv = [sys.executable, "-m", "redelivery_spark.stream.reader_process"]
        # Spark's --py-files are on the path of this process only.
        path = os.pathsep.join(filter(None, sys.path))
        # While the lock is held, no line is written that the process would miss. Its first line must be the
        # configuration.
        with self._readers.talk:
            if self._readers.ending.is_set():
                return None
            # Its configuration, with secrets, is written to its input.
            self._child = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of this package
                argv,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
            )
            self.say(config)
            for line in self._readers.news(lane.number):
                self.say(line)
            return self._child

    def _hear(self, said: dict[str, Any]) -> bool:
        """Handle a line; return True if the process has published a segment."""
        if "segment" in said:
            segment = Segment(*said["segment"])
            self.lane.added(segment)
            self._connections.add(segment.connection)
            self._readers.more()
            return True
        if "state" in said:
            self.status = said["state"]
        elif "ended" in said:
            # A connection without a row is of no interest.
            if said["ended"] in self._connections:
                self._connections.remove(said["ended"])
                self._readers.ended(self.lane.number, said["ended"])
        elif "error" in said:
            self._failed = True
            self._readers.fail(_error(said["kind"], said["error"]))
        return False

    def say(self, line: dict[str, Any]) -> None:
        """Write a line to the process, if it lives."""
        child = self._child
        if child is not None and child.stdin is not None:
            with suppress(OSError, ValueError):
                child.stdin.write(json.dumps(line) + "\n")
                child.stdin.flush()

    def end(self) -> None:
        """Close its input: it then ends by itself."""
        child = self._child
        if child is not None and child.stdin is not None:
            with suppress(OSError, ValueError):
                child.stdin.close()

    def wait(self, timeout: float) -> None:
        """Wait for its end, and kill it after `timeout` seconds."""
        child = self._child
        if child is None:
            return
        try:
            child.wait(timeout)
        except subprocess.TimeoutExpired:
            child.kill()


def _error(kind: str, text: str) -> RedeliveryError:
    """Return the error that ended a process, of the class by which `run` recognises it."""
    for own in (LogDamaged, LogTaken):
        if kind == own.__name__:
            return own(text)
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, RedeliveryError):
        return found(text)
    return RedeliveryError(f"reading has stopped: {text}")


class ReaderProcesses:
    """Readers in processes. See `Readers`."""

    def __init__(self, options: SourceOptions, lanes: Lanes, log: str, start: str, clock: Clock) -> None:
        """`start`: name of this start of the query in its log."""
        self._clock = clock
        self._processes = [
            _Process(self, lanes[number], options, log, start) for number in range(1, options.readers + 1)
        ]
        self.ending = threading.Event()
        self.talk = threading.RLock()
        """Held while lines are written to the processes."""
        self._over: deque[tuple[int, str]] = deque(maxlen=ENDED)
        self._available: AvailableNow | None = None
        self._count = 0
        self._error: RedeliveryError | None = None
        self._more = threading.Condition()

    @property
    def counts(self) -> Mapping[str, int]:
        """See Readers."""
        return {name: sum(each.total(name) for each in self._processes) for name in COUNTS}

    def start(self) -> None:
        """See Readers."""
        for each in self._processes:
            each.start()

    def more(self) -> None:
        """Note a new segment."""
        with self._more:
            self._count += 1
            self._clock.notify(self._more)

    def ended(self, lane: int, connection: str) -> None:
        """See Readers."""
        with self.talk:
            self._over.append((lane, connection))
            for each in self._processes:
                if each.lane.number != lane:
                    each.say({"ended": [lane, connection]})

    def news(self, lane: int) -> list[dict[str, Any]]:
        """Return the lines that the others have got, for the process of a lane that starts."""
        found: list[dict[str, Any]] = [{"ended": list(each)} for each in self._over if each[0] != lane]
        if self._available is not None:
            found.append({"available": True})
        return found

    def fail(self, error: RedeliveryError) -> None:
        """End the query with an error."""
        self._error = self._error or error
        self.more()

    def _say(self, **what: object) -> None:
        with self.talk:
            for each in self._processes:
                each.say(what)

    def want(self, *, wanted: bool) -> None:
        """See Readers."""
        self._say(wanted=wanted)

    def settled(self) -> None:
        """See Readers."""
        with self.talk:
            for each in self._processes:
                each.say({"settled": each.lane.settled})

    def published(self) -> int:
        """See Readers."""
        if self._error is not None:
            raise errors.another(self._error)
        if self._available is not None:
            # It can become False again: when a process dies, its messages are redelivered to it, or to the others.
            self._available.exhausted = all(each.status.get("exhausted") for each in self._processes)
        return self._count

    def pending(self) -> bool:
        """See Readers. Messages that are about to be published are not known here."""
        return False

    def full(self) -> bool:
        """See Readers."""
        return any(each.status.get("full") for each in self._processes)

    def wait(self, seen: int, timeout: float) -> None:
        """See Readers."""
        deadline = self._clock.monotonic() + min(timeout, POLL)
        with self._more:
            while self._count == seen and (left := deadline - self._clock.monotonic()) > 0:
                self._clock.wait(self._more, left)

    def until_exhausted(self, available: AvailableNow) -> None:
        """See Readers."""
        with self.talk:
            self._available = available
            self._say(available=True)

    @property
    def connected(self) -> bool:
        """See Readers."""
        return all(each.status.get("connected") for each in self._processes)

    def stop(self) -> None:
        """See Readers."""
        with self.talk:
            self.ending.set()
            for each in self._processes:
                each.end()
        deadline = self._clock.monotonic() + LONGEST_END
        for each in self._processes:
            each.wait(max(0.1, deadline - self._clock.monotonic()))
