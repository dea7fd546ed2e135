"""A reader's process: its reports and the lines that it obeys, over streams in memory and a memory broker."""

from __future__ import annotations

import json
import os
import queue
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.stored import sent

from redelivery.errors import ConfigurationError
from redelivery_memory.messages import MemoryDelivery
from redelivery_spark.options.source_options import read_options
from redelivery_spark.stream import reader_process
from redelivery_spark.stream.reader_process import configuration
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.lane import Lane
from redelivery_spark.wal.segment_files import SegmentFacts, folder_of, stored_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from redelivery.core.delivery import Delivery
    from redelivery.testing import MemoryBroker

UNHURRIED = 60.0  # seconds, longer than anything here
Said = dict[str, Any]
Step = tuple["Callable[[Said], object]", "Callable[[], Iterable[Said | str]]"]
FOREVER: Step = (lambda _: False, list)
"""The input does not end."""


class Runner:
    """The runner's end of both streams: a script of the reports that it waits for, and of its answers."""

    def __init__(self, config: Said, *steps: Step) -> None:
        self._config = config
        self._steps = steps
        self._heard: queue.Queue[Said | None] = queue.Queue()
        self.said: list[Said] = []

    # The child's standard input.

    def readline(self) -> str:
        """Return the configuration."""
        return json.dumps(self._config) + "\n"

    def __iter__(self) -> Iterator[str]:
        for wanted, then in self._steps:
            while True:
                said = self._heard.get(timeout=UNHURRIED)
                if said is None:
                    return
                if wanted(said):
                    break
            for line in then():
                yield line if isinstance(line, str) else json.dumps(line) + "\n"

    # The child's standard output.

    def write(self, line: str) -> None:
        """Handle a line."""
        self.said.append(json.loads(line))
        self._heard.put(self.said[-1])

    def end(self) -> None:
        """End the script, wherever it is."""
        self._heard.put(None)

    def flush(self) -> None:
        """Do nothing."""

    def named(self, name: str) -> list[Any]:
        """Return the reports of a kind."""
        return [each[name] for each in self.said if name in each]


class Log:
    """A log that the runner has begun, and readers of it."""

    def __init__(self, broker: MemoryBroker, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.store = Folder(str(folder))
        self.store.prepare("state", *map(folder_of, range(3)))
        self.store.publish("state/000000000001.json", json.dumps({"start": "S"}).encode())
        given = {"url": broker.uri, "destination": "orders", "walDir": str(folder), "readers": "2"}
        self.options = read_options(given)
        self._patch = monkeypatch

    def run(self, *steps: Step, **more: Any) -> Runner:
        """Run the reader of lane 1 until the script ends; return its runner."""
        config = {
            "lane": 1, "last": 0, "settled": 0, "log": "log", "start": "S", "siblings": "S.", "name": "S.1.1", **more
        }  # fmt: skip
        runner = Runner(json.loads(json.dumps(configuration(self.options, **config))), *steps)
        with self._patch.context() as patch:
            patch.setattr(sys, "stdin", runner)
            patch.setattr(sys, "stdout", runner)
            reader_process.main()
        runner.end()
        return runner

    def append(self, lane: int, connection: str, *bodies: str) -> Sequence[Delivery]:
        """Append a segment of messages of a connection; return them."""
        found, wire = sent(self.broker, *bodies)
        stored = [each.stored() for each in found]
        facts = SegmentFacts(1.0, "log", (wire,), connection=connection)
        appended = Lane(self.store, lane)
        appended.load()
        appended.publish(stored_table([head for head, _ in stored], [body for _, body in stored], facts))
        return found

    def rows(self) -> list[int]:
        """Return the number of rows of each segment of lane 1."""
        lane = Lane(self.store, 1)
        lane.load()
        return [each.rows for each in lane.after(0)]


@pytest.fixture
def log(redelivery_broker: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """Return an empty log."""
    return Log(redelivery_broker, tmp_path / "wal", monkeypatch)


def state(**wanted: object) -> Callable[[Said], bool]:
    """Return a function that is True for a state with these values."""
    return lambda said: wanted.items() <= said.get("state", {}).items()


def segment(said: Said) -> bool:
    """Return True for the report of a segment."""
    return "segment" in said


def test_what_it_publishes_it_says_and_then_accepts(log: Log) -> None:
    """A published segment is reported, and then accepted; the connection has the runner's name; the end of input ends
    it.
    """

    def send() -> list[Said]:
        log.broker.send("orders", "a")
        return [{"wanted": True}]

    runner = log.run((state(connected=True), send), (segment, list))
    (said,) = runner.named("segment")
    assert (said[0], said[1], said[3]) == (1, 1, "S.1.1-1")
    assert log.rows() == [1]
    assert log.broker.depth("orders") == 0
    assert not runner.named("error")


def test_a_state_is_said_when_it_changes(log: Log) -> None:
    """A state is reported when it changes, with all that the runner asks of a reader."""
    runner = log.run((state(connected=True), lambda: [{"wanted": True}]))
    assert runner.named("state")[-1] == {
        "copies": 0, "refused": 0, "set_aside": 0, "connected": True, "full": False, "exhausted": False
    }  # fmt: skip
    assert all(
        one != other for one, other in zip(runner.named("state"), runner.named("state")[1:], strict=False)
    )


def test_what_an_older_process_published_is_said(log: Log) -> None:
    """A segment of an older process is reported, also if it was there before and the runner has not seen it."""
    log.append(1, "old", "a")
    log.append(1, "old", "b")
    runner = log.run((lambda said: segment(said) and said["segment"][0] == 2, list), last=1)
    assert [each[0] for each in runner.named("segment")] == [2]


def test_it_goes_on_from_the_number_that_the_runner_knows(log: Log) -> None:
    """Numbers continue after the one that the runner knows, also if the segments are gone."""
    log.broker.send("orders", "a")
    runner = log.run((segment, list), last=7, settled=7)
    assert [each[0] for each in runner.named("segment")] == [8]


def test_when_all_has_been_taken(log: Log) -> None:
    """A reader reports that all is taken, and the opposite once a sibling's connection has ended: it can get its
    messages.
    """
    states: list[bool] = []

    def watched(said: Said) -> bool:
        if "state" in said:
            states.append(said["state"]["exhausted"])
        return states[-1:] == [True]

    def not_any_more(said: Said) -> bool:
        return watched(said) is False and states[-2:] == [True, False]

    runner = log.run(
        (state(connected=True), lambda: [{"available": True}]),
        (watched, lambda: [{"ended": [2, "S.2.1-0"]}]),
        (not_any_more, list),
    )
    assert not runner.named("error")


def test_a_siblings_row_is_in_doubt_once_its_connection_has_ended(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sibling's row is in doubt once its connection has ended; until then an equal message is another one."""
    monkeypatch.setattr(MemoryDelivery, "key", property(lambda each: each.body))
    monkeypatch.setattr(MemoryDelivery, "digest", lambda each: each.body)
    log.append(2, "S.2.1-0", "a")
    log.append(2, "S.2.2-0", "b")

    def come(*bodies: str) -> None:
        for body in bodies:
            log.broker.send("orders", body)

    def before() -> list[Said]:
        come("a")
        return [{"wanted": True}]

    def after() -> Iterator[Said]:
        yield {"ended": [2, "S.2.1-0"]}
        # The line is handled.
        come("a", "b")

    runner = log.run((state(connected=True), before), (segment, after), (state(copies=1), list))
    assert runner.named("state")[-1]["copies"] == 1
    assert not runner.named("error")


def test_its_own_connection_that_ended_is_said(log: Log) -> None:
    """The end of its own connection is reported, and the runner informs the siblings."""

    def cut() -> list[Said]:
        log.broker.cut()
        return []

    def send() -> list[Said]:
        log.broker.send("orders", "a")
        return [{"wanted": True}]

    runner = log.run(
        (state(connected=True), send), (segment, cut), (lambda said: said.get("ended") == "S.1.1-1", list)
    )
    assert runner.named("ended")[-1] == "S.1.1-1"


def test_settled_segments_are_removed_here(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settled segments are removed as the runner reports; two windows of the current connection stay, and rows in
    doubt.
    """
    log.broker.send("orders", "a")
    removed: list[int] = []
    settle = Lane.settle

    def noted(lane: Lane, number: int) -> None:
        removed.append(number)
        settle(lane, number)

    monkeypatch.setattr(Lane, "settle", noted)
    log.run((segment, lambda: [{"settled": 1}]), settled=0)
    assert removed == [0, 1]


def test_it_ends_when_the_runner_has_another_parent(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose runner was killed ends: its parent has changed."""
    parents = iter([1, 1, 1, 2])
    monkeypatch.setattr(os, "getppid", lambda: next(parents, 2))
    assert log.run(FOREVER).named("state")


def test_half_a_line_is_the_end(log: Log) -> None:
    """Half a line ends the process: the runner died while it wrote it."""
    runner = log.run((state(connected=True), lambda: ['{"wan']))
    assert not runner.named("error")


def test_an_error_of_the_start_is_said_with_its_kind(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the start is reported with its kind, and nothing else: no broker, or a file that cannot be read."""

    def refused(_: object) -> None:
        raise ConfigurationError("no such queue", option="x")

    monkeypatch.setattr("redelivery_spark.stream.source_connection.SourceConnection.connect", refused)
    assert log.run().said == [{"error": "no such queue", "kind": "ConfigurationError"}]
    monkeypatch.setattr(Lane, "load", lambda _: (_ for _ in ()).throw(PermissionError(13, "no")))
    assert log.run().said == [{"error": "[Errno 13] no", "kind": "PermissionError"}]


def test_an_error_on_the_way_is_said_with_its_kind(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is reported with its kind, and nothing is accepted."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Lane, "publish", full)
    log.broker.send("orders", "a")
    runner = log.run(FOREVER)
    assert runner.said[-1] == {"error": "[Errno 28] No space left on device", "kind": "OSError"}
    assert log.broker.depth("orders") == 1


def test_a_log_that_another_start_has_taken_ends_it(log: Log) -> None:
    """A log that another start has taken ends the process, with the kind that `run` does not restart."""

    def take() -> list[Said]:
        log.store.publish("state/000000000002.json", json.dumps({"start": "T"}).encode())
        return []

    runner = log.run((state(connected=True), take), FOREVER)
    assert runner.said[-1]["kind"] == "LogTaken"
