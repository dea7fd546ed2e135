"""The files of a log's state: the next version reads their names, which are therefore public."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from redelivery.core.ledger_entry import Entry
from redelivery.errors import ConfigurationError
from redelivery_spark.wal.checked_file import LogDamaged, publish_checked, read_json
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.segment_files import SegmentFacts, redelivered_table
from redelivery_spark.wal.store import LogTaken
from redelivery_spark.wal.wal_state import FOLDER, FORMAT, ROWS, Fact, GivenUpBatch, State, States, settled_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

KEYS = {"start", "by", "facts", "files", "format", "given_up", "log", "passed", "settled", "totals", "void"}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder for states."""
    found = Folder(str(tmp_path))
    found.prepare(FOLDER, ROWS)
    return found


def waiting() -> pa.Table:
    """Return waiting rows."""
    return redelivered_table([b"x"], [None], [1], [1], [0], [1.0], SegmentFacts(1.0, "log", ({},)))


def test_the_state_has_the_names_that_are_read(folder: Folder) -> None:
    """The state has the names that are read: a renamed field would make an existing log unreadable."""
    States(folder).publish(State("log"), None, ())
    (name,) = folder.names(FOLDER)
    told = read_json(folder, name)
    assert set(told) == KEYS
    assert told["format"] == FORMAT


def test_a_state_is_read_as_it_was_written(folder: Folder) -> None:
    """A state is read back with its vectors, facts, split batch and totals."""
    facts = [
        Fact(5, Entry(2, "ValueError: no", 1.0, 2.0), 7.5, 2.0, 1, exhausted=True),
        Fact(6, Entry(suspect=True)),
    ]
    facts.append(Fact(7, passed=3))
    written = State("log", {0: 3, 1: 42}, 9, GivenUpBatch({0: 3, 1: 43}, 8, 7), facts=facts)
    written.totals["accepted"] = 11
    States(folder).publish(written, None, ())

    assert States(folder).load() == written


def test_it_is_seen_without_the_rest_how_far_all_is_settled(folder: Folder) -> None:
    """An executor reads the settled position alone: nothing before the first state, else that of the newest."""
    assert settled_in(folder) == {}
    states = States(folder)
    states.publish(State("log"), None, ())
    assert settled_in(folder) == {}
    states.publish(State("log", settled={0: 3, 1: 12, 31: 5}), None, ())
    assert settled_in(folder) == {0: 3, 1: 12, 31: 5}


def test_the_newest_state_counts_and_only_one_can_write_it(folder: Folder) -> None:
    """A state number can be written once; the state before it is removed."""
    old, new = States(folder), States(folder)
    old.publish(State("log"), None, ())
    new.load()
    new.publish(State("log", {1: 1}), None, ())
    new.check()
    for late in (old.check, lambda: old.publish(State("log", {1: 2}), None, ())):
        with pytest.raises(LogTaken, match="taken over by another start"):
            late()
    assert len(folder.names(FOLDER)) == 1
    assert States(folder).load() == State("log", {1: 1}, facts=[])


def test_who_stood_still_while_several_states_were_written_is_too_late(folder: Folder) -> None:
    """A start that stood still while several states were written is refused, although its number is free again."""
    old, new = States(folder), States(folder)
    old.publish(State("log"), None, ())
    new.load()
    for number in (1, 2, 3):
        new.publish(State("log", {1: number}), None, ())
    for _ in range(2):
        with pytest.raises(LogTaken, match="taken over by another start"):
            old.publish(State("log", {1: 9}), None, ())
    new.publish(State("log", {1: 4}), None, ())
    assert States(folder).load() == State("log", {1: 4}, facts=[])
    assert len(folder.names(FOLDER)) == 1


def test_a_file_of_rows_goes_with_the_last_row_that_waits(folder: Folder) -> None:
    """A file of rows stays until none of its rows waits."""
    states = States(folder)
    states.publish(State("log", facts=[Fact(1), Fact(2)]), waiting(), [1, 2])
    assert [table.num_rows for table in states.rows()] == [1]
    states.publish(State("log", facts=[Fact(2)]), None, ())
    assert len(folder.names(ROWS)) == 1
    states.publish(State("log"), None, ())
    assert folder.names(ROWS) == []


def test_a_file_whose_writer_died_before_its_state_is_removed(folder: Folder) -> None:
    """A file whose writer died before its state is removed."""
    States(folder).publish(State("log"), None, ())
    folder.publish(f"{ROWS}/000000000002-dead.arrow", b"rows")
    states = States(folder)
    states.load()
    states.publish(State("log"), None, ())
    assert folder.names(ROWS) == []


def test_a_log_of_the_first_design_is_refused_with_the_way_out(folder: Folder) -> None:
    """A log of the first design is refused by its missing format, and nothing is written."""
    folder.publish(f"{FOLDER}/000000000007.json", json.dumps({"log": "x", "settled": 7}).encode())
    with pytest.raises(
        ConfigurationError, match=r"first design of this source; drain it with the version .* new walDir"
    ):
        States(folder).load()
    assert len(folder.names(FOLDER)) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 2}'])
@pytest.mark.parametrize("publish", [Folder.publish, publish_checked])
def test_a_state_that_is_damaged_is_named(
    folder: Folder, content: bytes, publish: Callable[[Folder, str, bytes], bool]
) -> None:
    """A state that is none is refused by the name of its file, with its checksum and without."""
    publish(folder, f"{FOLDER}/000000000001.json", content)
    with pytest.raises(LogDamaged, match=r"state/000000000001\.json is damaged"):
        States(folder).load()


def many(*places: int) -> pa.Table:
    """Return waiting rows, of 1,000 bytes each."""
    count, facts = len(places), SegmentFacts(1.0, "log", ({},))
    heads, bodies = [b"x" * 1000] * count, [None] * count
    return redelivered_table(heads, bodies, places, [1] * count, [0] * count, [1.0] * count, facts)


def facts_at(*places: int) -> list[Fact]:
    """Return facts of rows."""
    return [Fact(place) for place in places]


@pytest.mark.parametrize("restart", [False, True])
def test_the_rest_of_a_file_of_rows_is_written_anew(folder: Folder, *, restart: bool) -> None:
    """Once less than half of a large file waits, the rest is written anew; the old file goes with the state of the new
    one.
    """
    states, all_of_it = States(folder), range(1000)
    states.publish(State("log", facts=facts_at(*all_of_it)), many(*all_of_it), all_of_it)
    if restart:
        states = States(folder)
        states.load()
        states.rows()
    assert states.scattered(range(500)) == set()
    assert states.scattered({7, 8, 5000}) == {7, 8}
    old = folder.names(ROWS)
    states.publish(State("log", facts=facts_at(7, 8, 5000)), many(7, 8, 5000), (7, 8, 5000))
    assert len(folder.names(ROWS)) == 1
    assert folder.names(ROWS) != old
    assert [table.column("origin").to_pylist() for table in states.rows()] == [[7, 8, 5000]]
    assert states.scattered({7}) == set()


def test_until_a_state_names_the_new_file_the_old_one_is_there(folder: Folder) -> None:
    """A death before the state of the new file leaves the rows in the old one."""
    states, all_of_it = States(folder), range(1000)
    states.publish(State("log", facts=facts_at(*all_of_it)), many(*all_of_it), all_of_it)
    # Another start has written the next state.
    folder.publish(f"{FOLDER}/000000000002.json", b"{}")
    (old,) = folder.names(ROWS)
    with pytest.raises(LogTaken):
        states.publish(State("log", facts=facts_at(7)), many(7), (7,))
    assert len(folder.names(ROWS)) == 2
    assert old in folder.names(ROWS)
