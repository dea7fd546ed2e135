"""Reader processes as the runner sees them, over pipes, and the runner's side of these pipes."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import TYPE_CHECKING, Any

from tests.spark.stored import sent

from redelivery.clock import SystemClock
from redelivery_spark.options.source_options import read_options
from redelivery_spark.stream.lanes import Lanes
from redelivery_spark.stream.readers import ReaderProcesses
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.lane import Lane
from redelivery_spark.wal.segment_files import SegmentFacts, folder_of, stored_table

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery.testing import MemoryBroker
    from redelivery_spark.wal.lane import Segment

__all__ = ["SECRET", "UNHURRIED", "Runner"]

SECRET = "hush-hush"
UNHURRIED = 60.0  # seconds, longer than anything here


class Child:
    """A process that the runner believes to have started, over pipes: the test writes its lines."""

    def __init__(self, argv: list[str], **how: Any) -> None:
        self.argv, self.env = argv, how["env"]
        read, write = os.pipe()
        self._input, self.stdin = os.fdopen(read), os.fdopen(write, "w")
        read, write = os.pipe()
        self.stdout, self._output = os.fdopen(read), os.fdopen(write, "w")
        self._gone = threading.Event()
        self.ends = True
        self.killed = False
        self.config: dict[str, Any] = {}

    def heard(self) -> dict[str, Any]:
        """Return the next line of its input; an empty one: the input has ended."""
        found: dict[str, Any] = json.loads(self._input.readline() or "{}")
        return found

    def say(self, **what: object) -> None:
        """Write a line."""
        print(json.dumps(what), file=self._output, flush=True)

    def die(self) -> None:
        """End the process."""
        self._gone.set()
        self._input.close()
        self._output.close()

    # The interface of a process.

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, without taking time."""
        if timeout is None:
            self._gone.wait()
        elif not self._gone.is_set():
            if not self.ends:
                raise subprocess.TimeoutExpired(self.argv, timeout)
            while self.heard():
                pass
            self.die()
        return 0

    def kill(self) -> None:
        """Note the kill, and end the process."""
        self.killed = True
        self.die()


class Ending(threading.Event):
    """The end of all processes; pauses until then are recorded, and take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Record the pause."""
        assert timeout is not None
        self.pauses.append(timeout)
        return self.is_set()


class Runner:
    """Two readers over a log, as the runner has them."""

    def __init__(self, broker: MemoryBroker, folder: Path) -> None:
        self._broker = broker
        self.store = Folder(str(folder))
        self.store.prepare(*map(folder_of, range(3)))
        given = {"url": f"stomp://app:{SECRET}@nowhere:1", "destination": "orders"}
        self.options = read_options(given | {"walDir": str(folder), "readers": "2"})
        self.lanes = Lanes(self.store, 2)
        self.clock = SystemClock()
        self.readers = ReaderProcesses(self.options, self.lanes, "log", "S", self.clock)
        self.ending = self.readers.ending = Ending()
        self._published = {number: Lane(self.store, number) for number in (1, 2)}
        self._made = threading.Condition()
        self._children: dict[int, list[Child]] = {1: [], 2: []}

    def popen(self, argv: list[str], **how: Any) -> Child:
        """Make a child, in place of `subprocess.Popen`."""
        child = Child(argv, **how)
        threading.Thread(target=self._introduce, args=(child,), daemon=True).start()
        return child

    def _introduce(self, child: Child) -> None:
        child.config = child.heard()
        with self._made:
            self._children[child.config["lane"]].append(child)
            self._made.notify_all()

    def child(self, lane: int, start: int = 1) -> Child:
        """Return a process of a lane once it has its configuration; `start`: the number of its start."""
        with self._made:
            assert self._made.wait_for(lambda: len(self._children[lane]) >= start, UNHURRIED)
            return self._children[lane][start - 1]

    def publish(self, lane: int, connection: str, *bodies: str) -> Segment:
        """Publish a segment, as a process does."""
        found, wire = sent(self._broker, *bodies)
        stored = [each.stored() for each in found]
        facts = SegmentFacts(1.0, "log", (wire,), connection=connection)
        table = stored_table([head for head, _ in stored], [body for _, body in stored], facts)
        return self._published[lane].publish(table)

    def settle_down(self, lane: int, start: int = 1) -> None:
        """Publish a row, and wait until the runner has handled it and all earlier lines."""
        segment = self.publish(lane, f"S.{lane}.{start}-0", "row")
        self.child(lane, start).say(segment=list(segment))
        while self.lanes[lane].last < segment.number:
            self.readers.wait(self.readers.published(), UNHURRIED)

    def end(self) -> None:
        """End what a test has left running."""
        if not self.ending.is_set():
            self.readers.stop()
        for each in self.readers._processes:
            each._thread.join(UNHURRIED)
