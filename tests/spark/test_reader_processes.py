"""Readers as processes, on the runner's side: lines in both directions, and the death of a process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.spark.child_processes import SECRET, UNHURRIED, Runner

from redelivery.errors import AdapterError, ConfigurationError, RedeliveryError
from redelivery_spark.stream import readers as reader_processes
from redelivery_spark.stream.trigger_size import AvailableNow
from redelivery_spark.wal.checked_file import LogDamaged
from redelivery_spark.wal.store import LogTaken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redelivery.testing import MemoryBroker


@pytest.fixture
def runner(
    redelivery_broker: MemoryBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runner]:
    """Return a runner whose processes are started."""
    made = Runner(redelivery_broker, tmp_path / "wal")
    monkeypatch.setattr("subprocess.Popen", made.popen)
    made.readers.start()
    for lane in (1, 2):
        made.child(lane)
    yield made
    made.end()


def error_of(runner: Runner) -> RedeliveryError:
    """Wait for the error that ends the query."""
    while True:
        try:
            seen = runner.readers.published()
        except RedeliveryError as error:
            return error
        runner.readers.wait(seen, UNHURRIED)


def test_secrets_go_by_the_input_alone(runner: Runner, caplog: pytest.LogCaptureFixture) -> None:
    """Secrets are in the input only: no argument has them, nor the environment, nor a log."""
    for lane in (1, 2):
        child = runner.child(lane)
        assert SECRET in child.config["options"]["uri"]
        assert SECRET not in " ".join(child.argv)
        assert SECRET not in "".join(child.env.values())
    runner.child(1).die()
    runner.child(1, 2)
    assert "reader 1 has ended" in caplog.text
    assert SECRET not in caplog.text


def test_a_process_finds_what_the_runner_finds(runner: Runner) -> None:
    """A process has the runner's path: Spark adds the files of `--py-files` there only."""
    path = runner.child(1).env["PYTHONPATH"].split(os.pathsep)
    assert (
        os.path.dirname(os.path.dirname(reader_processes.__file__)).removesuffix("/redelivery_spark") in path
    )


def test_what_each_process_is_told_at_its_start(runner: Runner) -> None:
    """A process gets its lane and position, the runner's start, and a unique name."""
    runner.settle_down(2)
    runner.lanes.settle({2: 1})
    first = runner.child(2)
    first.die()
    again = runner.child(2, 2)
    plain = {
        name: again.config[name] for name in ("lane", "last", "settled", "log", "start", "siblings", "name")
    }
    assert plain == {
        "lane": 2, "last": 1, "settled": 1, "log": "log", "start": "S", "siblings": "S.", "name": "S.2.2"
    }  # fmt: skip
    assert (first.config["last"], first.config["name"]) == (0, "S.2.1")


def test_what_is_told_again_when_all_is_settled(runner: Runner) -> None:
    """Settled segments are not remembered by the runner, and a later start of the process continues after them."""
    runner.lanes[2].removes = False
    for _ in range(3):
        runner.settle_down(2)
    runner.lanes.settle({2: 3})
    assert len(runner.lanes[2].after(0)) == 1
    runner.child(2).die()
    config = runner.child(2, 2).config
    assert (config["last"], config["settled"]) == (3, 3)


def test_what_the_runner_says(runner: Runner) -> None:
    """The runner reports whether Spark waits, the settled position of each lane, and that all is to be taken."""
    runner.settle_down(1)
    runner.readers.want(wanted=True)
    runner.lanes.settle({1: 1})
    runner.readers.settled()
    runner.readers.want(wanted=False)
    runner.readers.until_exhausted(AvailableNow(runner.clock))
    for lane, settled in ((1, 1), (2, 0)):
        child = runner.child(lane)
        assert [child.heard() for _ in range(4)] == [
            {"wanted": True}, {"settled": settled}, {"wanted": False}, {"available": True}
        ]  # fmt: skip


def test_a_segment_that_is_said_is_there(runner: Runner) -> None:
    """A reported segment is in its lane, and a wait for more ends."""
    segment = runner.publish(2, "S.2.1-0", "a", "b")
    seen = runner.readers.published()
    runner.child(2).say(segment=list(segment))
    while runner.readers.published() == seen:
        runner.readers.wait(seen, UNHURRIED)
    assert runner.lanes[2].after(0) == [segment]
    assert not runner.readers.pending()


def test_states_are_of_all(runner: Runner) -> None:
    """One full process is enough for `full`, and one that is not connected for the opposite of `connected`; counts are
    sums.
    """
    readers = runner.readers
    assert (readers.full(), readers.connected) == (False, False)
    state = {"copies": 1, "refused": 2, "set_aside": 3, "connected": True, "full": False, "exhausted": False}
    runner.child(1).say(state=state)
    runner.settle_down(1)
    assert (readers.full(), readers.connected) == (False, False)
    runner.child(2).say(state=state | {"full": True, "copies": 10})
    runner.settle_down(2)
    assert (readers.full(), readers.connected) == (True, True)
    assert readers.counts == {"copies": 11, "refused": 4, "set_aside": 6}


def test_counts_go_on_over_starts(runner: Runner) -> None:
    """Counts continue over starts, except messages set aside: their next reader counts them again."""
    for start in (1, 2):
        runner.child(1, start).say(state={"copies": 1, "refused": 2, "set_aside": 3})
        runner.settle_down(1, start)
        assert runner.readers.counts == {"copies": start, "refused": 2 * start, "set_aside": 3}
        runner.child(1, start).die()
    runner.child(1, 3)
    assert runner.readers.counts == {"copies": 2, "refused": 4, "set_aside": 0}


def test_all_has_been_taken_when_each_says_so(runner: Runner) -> None:
    """All is taken when each process reports it; a restarted process is informed, and must report it anew."""
    available = AvailableNow(runner.clock)
    runner.readers.until_exhausted(available)
    runner.child(1).say(state={"exhausted": True})
    runner.settle_down(1)
    runner.readers.published()
    assert not available.exhausted
    runner.child(1).die()
    runner.child(1, 2)
    runner.child(2).say(state={"exhausted": True})
    runner.settle_down(2)
    runner.readers.published()
    assert not available.exhausted
    assert runner.child(1, 2).heard() == {"available": True}
    runner.child(1, 2).say(state={"exhausted": True})
    runner.settle_down(1, 2)
    runner.readers.published()
    assert available.exhausted


@pytest.mark.parametrize("how", ["dies", "says so"])
def test_all_that_was_taken_may_come_again(runner: Runner, how: str) -> None:
    """After a death, of its own or of a sibling, a process takes more, and the query does not end."""
    available = AvailableNow(runner.clock)
    runner.readers.until_exhausted(available)
    for lane in (1, 2):
        runner.child(lane).say(state={"exhausted": True})
        runner.settle_down(lane)
    runner.readers.published()
    assert available.exhausted
    if how == "dies":
        runner.child(1).die()
        runner.child(1, 2)
    else:
        runner.child(1).say(state={"exhausted": False})
        runner.settle_down(1)
    runner.readers.published()
    assert not available.exhausted


def test_a_process_that_dies_is_started_again_after_pauses_that_grow(runner: Runner) -> None:
    """Pauses between restarts grow from 0.5 s to 30 s, and are short again after a published segment."""
    for start in range(1, 9):
        runner.child(1, start).die()
    runner.settle_down(1, 9)
    runner.child(1, 9).die()
    runner.child(1, 10).die()
    runner.child(1, 11)
    assert runner.ending.pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 0.5, 1.0]
    assert len(runner._children[2]) == 1


def test_the_connections_of_one_that_died_are_said_to_the_others(runner: Runner) -> None:
    """Connections of a dead process are reported to the others, also those of segments that it had not reported."""
    runner.settle_down(1)
    unsaid = runner.publish(1, "S.1.1-7", "unsaid")
    runner.child(1).die()
    assert {runner.child(2).heard()["ended"][1] for _ in range(2)} == {"S.1.1-0", "S.1.1-7"}
    again = runner.child(1, 2)
    assert again.config["last"] == unsaid.number
    assert runner.lanes[1].last == unsaid.number
    runner.readers.want(wanted=True)
    assert again.heard() == {"wanted": True}


def test_a_connection_that_ended_is_said_to_the_others_once(runner: Runner) -> None:
    """An ended connection is reported to the others once; one that brought no row is not."""
    runner.settle_down(1)
    child = runner.child(1)
    child.say(ended="S.1.1-3")
    child.say(ended="S.1.1-0")
    child.die()
    runner.child(1, 2)
    runner.readers.want(wanted=True)
    assert [runner.child(2).heard() for _ in range(2)] == [{"ended": [1, "S.1.1-0"]}, {"wanted": True}]


def test_one_that_starts_learns_what_has_ended_before(runner: Runner) -> None:
    """A starting process is informed of connections that ended before: both processes can die at once."""
    runner.settle_down(1)
    runner.settle_down(2)
    runner.child(1).die()
    runner.child(1, 2)
    runner.child(2).die()
    assert runner.child(2, 2).heard() == {"ended": [1, "S.1.1-0"]}
    assert runner.child(1, 2).heard() == {"ended": [2, "S.2.1-0"]}


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("AdapterError", AdapterError),
        ("ConfigurationError", ConfigurationError),
        ("LogDamaged", LogDamaged),
        ("LogTaken", LogTaken),
    ],
)
def test_an_error_ends_the_query_with_its_kind(
    runner: Runner, kind: str, wanted: type[RedeliveryError]
) -> None:
    """An error ends the query with its kind, and the process is not started again."""
    child = runner.child(1)
    child.say(error="no", kind=kind)
    child.die()
    error = error_of(runner)
    assert (type(error), str(error)) == (wanted, "no")
    runner.readers._processes[0]._thread.join(UNHURRIED)
    assert runner.ending.pauses == []


@pytest.mark.parametrize("kind", ["OSError", "near_miss", "E"])
def test_errors_of_others_end_the_query_too(runner: Runner, kind: str) -> None:
    """An error of any other kind ends the query, too."""
    runner.child(1).say(error="No space left", kind=kind)
    error = error_of(runner)
    assert (type(error), str(error)) == (RedeliveryError, "reading has stopped: No space left")


def test_a_process_that_cannot_be_started_ends_the_query(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that cannot be started ends the query: its lane would not be read."""

    def none(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr("subprocess.Popen", none)
    runner.child(1).die()
    assert str(error_of(runner)) == "reader 1 cannot be run: no more processes"


def test_lines_that_are_none_are_passed_over(runner: Runner) -> None:
    """Lines that are not JSON are ignored: a process that dies leaves half a line."""
    child = runner.child(1)
    child._output.write('{"segment": [1, \n')
    runner.settle_down(1)
    assert runner.lanes[1].last == 1


def test_the_end_is_said_by_the_end_of_the_input(runner: Runner) -> None:
    """The end of the input ends each process, within a common time, and none is started again."""
    runner.readers.stop()
    for lane in (1, 2):
        assert not runner.child(lane).killed
    for each in runner.readers._processes:
        each._thread.join(UNHURRIED)
    assert runner.ending.pauses == []


def test_one_that_does_not_end_is_killed(runner: Runner) -> None:
    """A process that does not end in time is killed."""
    runner.child(1).ends = False
    runner.readers.stop()
    assert [runner.child(lane).killed for lane in (1, 2)] == [True, False]


def test_nothing_is_started_once_it_has_ended(runner: Runner) -> None:
    """No process is started after the end, also if a pause of a restart is running."""
    runner.end()
    assert runner.readers._processes[0]._begun() is None
    assert len(runner._children[1]) == 1
