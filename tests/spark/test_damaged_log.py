"""Damaged files of the log, and files without a checksum: an error that names the file, and never another row."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.conftest import HOURS
from tests.spark.query import Killed, Query, dead_bodies, fails_bad
from tests.spark.segments import head, publish, read
from tests.spark.tables import bodies as bodies_of
from tests.spark.tables import fill
from tests.spark.tables import read as read_batch

from redelivery_spark.executors.segment_reader import SegmentPart
from redelivery_spark.wal import checked_file
from redelivery_spark.wal.checked_file import (
    HEAD,
    LogDamaged,
    line_of,
    old_line,
    publish_checked,
    read_checked,
)
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.lane import Lane
from redelivery_spark.wal.records import Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redelivery.testing import MemoryBroker

SEGMENT = "s1/000000000001.arrow"
ROWS = 40
BLOCK = 512
PACKAGE = Path(checked_file.__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A log with one segment."""
    found = Folder(str(tmp_path))
    found.prepare("s0", "s1")
    rows = [(head(message_id=str(row)), f"pay {row} euro".encode() + b"x" * 200) for row in range(ROWS)]
    publish(found, 1, rows)
    return found


@pytest.fixture(autouse=True)
def _not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_file, "_warned", set[str]())


def flipped(content: bytes, bit: int) -> bytes:
    """Return a content with one bit flipped."""
    found = bytearray(content)
    found[bit // 8] ^= 1 << bit % 8
    return bytes(found)


def zeroed(content: bytes, block: int) -> bytes:
    """Return a content with a block of zeros, as of a bad sector."""
    begin = block * BLOCK
    return content[:begin] + bytes(len(content[begin : begin + BLOCK])) + content[begin + BLOCK :]


def with_wrong_offsets(content: bytes, number: int, random: Random) -> Iterator[bytes]:
    """Return contents in which one offset of a column of bytes is wrong."""
    pairs = ((at, *struct.unpack_from("<ii", content, at)) for at in range(0, len(content) - 8, 4))
    offsets = [at for at, one, other in pairs if 0 < one < 20_000 and 50 < other - one < 400]
    for _ in range(number):
        at, wrong = random.choice(offsets), random.choice([2**31 - 1, 10**8, 10**6, 14_000, -5])
        yield content[:at] + struct.pack("<i", wrong) + content[at + 4 :]


def damages(content: bytes, random: Random) -> Iterator[bytes]:
    """Return damaged contents: single bits, blocks, offsets, and ends that are missing."""
    yield from (flipped(content, random.randrange(8 * len(content))) for _ in range(600))
    yield from (zeroed(content, random.randrange(-(-len(content) // BLOCK))) for _ in range(120))
    yield from with_wrong_offsets(content, 120, random)
    yield from (content[: random.randrange(len(content))] for _ in range(121))
    yield b""


def test_no_damage_makes_another_row(folder: Folder) -> None:
    """Whatever a disk does to a segment, a task gets an error that names the file, and no row."""
    path = Path(folder.path) / SEGMENT
    for content in damages(path.read_bytes(), Random(7)):
        path.write_bytes(content)
        with pytest.raises(LogDamaged, match=rf"{SEGMENT} is damaged .*; it has the only copy of messages"):
            read(folder, SegmentPart(1, 1, 0, ROWS))


def test_wrong_offsets_end_no_process(folder: Folder) -> None:
    """A segment of an earlier version has no checksum: its offsets are compared with its size before they are used."""
    path, part = Path(folder.path) / SEGMENT, SegmentPart(1, 1, 0, ROWS)
    errors = list[str]()
    for content in with_wrong_offsets(path.read_bytes()[HEAD:], 120, Random(7)):
        path.write_bytes(content)
        try:
            # An offset that fits its neighbours makes another row: only the checksum finds that.
            assert len(read(folder, part)) == ROWS
        except LogDamaged as error:
            errors.append(str(error))
    assert len(errors) > 60
    assert all(f"{SEGMENT} is damaged" in text for text in errors)


@given(st.binary(max_size=200), st.data())
def test_no_changed_byte_is_believed(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, data: st.DataObject
) -> None:
    """A file whose bytes are not those that were written is never read, also if its first line is what has changed."""
    folder = Folder(str(tmp_path_factory.mktemp("wal")))
    publish_checked(folder, "whole", content)
    whole = folder.read("whole") or b""
    assert bytes(read_checked(folder, "whole") or b"") == content
    changed = data.draw(
        st.one_of(
            st.integers(0, 8 * len(whole) - 1).map(lambda bit: flipped(whole, bit)),
            st.integers(0, len(whole) - 1).map(lambda end: whole[:end]),
            st.binary(min_size=1, max_size=9).map(whole.__add__),
        )
    )
    folder.remove(["whole"])
    folder.publish("whole", changed)
    with pytest.raises(LogDamaged, match="whole is damaged"):
        read_checked(folder, "whole")


def test_a_file_in_the_place_of_another_is_not_believed(folder: Folder) -> None:
    """A segment that was put in the place of another one is an error: its checksum has its name."""
    publish(folder, 2, [(head(message_id="new"), b"new")] * ROWS)
    one, other = Path(folder.path) / SEGMENT, Path(folder.path) / SEGMENT.replace("1.", "2.")
    other.write_bytes(one.read_bytes())
    with pytest.raises(
        LogDamaged, match=r"s1/000000000002\.arrow is damaged .*bytes and its name do not match"
    ):
        read(folder, SegmentPart(1, 2, 0, ROWS))
    assert len(read(folder, SegmentPart(1, 1, 0, ROWS))) == ROWS


def test_a_segment_with_too_few_rows_is_an_error(folder: Folder) -> None:
    """A task that finds fewer rows in a segment than its batch has ends with the segment's name, and shows none."""
    with pytest.raises(LogDamaged, match=rf"{SEGMENT} is damaged \(it has 40 rows, and 41 are asked for\)"):
        read(folder, SegmentPart(1, 1, 0, ROWS + 1))


LOST = {
    "s1": "the only copy of messages that the broker has dropped",
    "rows": "the only copy of messages that wait",
    "state": "which messages are done, and which wait",
    "verdicts": "which messages of a batch have failed",
    "failures": "it only counts a failure",
}


def left_behind(broker: MemoryBroker, query: Query) -> None:
    """Leave a log with files of all kinds: a message waits, and a query has died in a batch that had failed before."""
    broker.send("orders", "bad")
    query.step(fails_bad)
    broker.send("orders", "good")
    with patch.object(query, "commit", side_effect=Killed), pytest.raises(Killed):
        query.step(fails_bad)
    query.records.fail("ValueError: no")
    query.die()


@pytest.mark.parametrize("kind", LOST)
def test_every_file_of_a_log_is_checked(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path, kind: str
) -> None:
    """A start that finds a damaged file names it, and what it holds; it goes on once a copy is put back."""
    query = make_query(uri=HOURS, isolate="split")
    left_behind(redelivery_broker, query)
    damaged = max((tmp_path / "wal" / kind).iterdir())
    content = damaged.read_bytes()
    damaged.write_bytes(flipped(content, 8 * len(content) - 1))
    with pytest.raises(LogDamaged, match=rf"{kind}/{re.escape(damaged.name)} is damaged .*{LOST[kind]}"):
        query.step()
    query.die()
    damaged.write_bytes(content)
    assert query.step()
    assert query.bodies() == ["good"]


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_refusal_outlives_its_file(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    tmp_path: Path,
    zeros: bool,
    which: int,
) -> None:
    """A disk that empties a verdict of a committed batch loses no refused message: its refusals are there twice."""
    query = make_query(uri="jms.redeliveryPolicy.maximumRedeliveries=0")
    redelivery_broker.send("orders", "good")
    redelivery_broker.send("orders", "bad")
    query.step(fails_bad)
    query.die()
    damaged = sorted((tmp_path / "wal" / "verdicts").iterdir())[which]
    damaged.write_bytes(bytes(damaged.stat().st_size if zeros else 0))
    query.drain(fails_bad)
    assert query.bodies() == ["good"]
    assert dead_bodies(redelivery_broker) == [b"bad"]


@pytest.mark.parametrize(
    ("name", "lost"), [("000000.arrow", "the only copy of messages"), ("drain.json", "of which broker")]
)
def test_every_file_of_a_drain_is_checked(
    redelivery_broker: MemoryBroker, tmp_path: Path, name: str, lost: str
) -> None:
    """An action on a drain with a damaged file ends with its name."""
    given = {"mode": "drain", "destination": "orders", "walDir": str(tmp_path)}
    sent = fill(redelivery_broker, 3)
    assert bodies_of(read_batch(redelivery_broker, **given)) == sent
    (damaged,) = tmp_path.glob(f"drains/drain/**/{name}")
    content = damaged.read_bytes()
    damaged.write_bytes(flipped(content, 8 * len(content) - 1))
    with pytest.raises(LogDamaged, match=rf"{name} is damaged .*{lost}"):
        read_batch(redelivery_broker, **given)
    damaged.write_bytes(content)
    assert bodies_of(read_batch(redelivery_broker, **given)) == sent


@pytest.mark.parametrize("checked", [False, True])
def test_a_log_of_an_earlier_version_is_read(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    checked: bool,
) -> None:
    """A log without checksums, or with nameless ones, goes on where it was, with one warning; new files have both."""
    query = make_query()
    left_behind(redelivery_broker, query)
    old = {path: path.read_bytes()[HEAD:] for path in (tmp_path / "wal").glob("*/*")}
    for path, content in old.items():
        path.write_bytes((old_line(content) if checked else b"") + content)
    query.drain(fails_bad)
    assert query.bodies() == ["good"]
    assert [letter.body for letter in redelivery_broker.dead_letters()] == [b"bad"]
    assert caplog.text.count("has files of an earlier version") == 1
    left = [path.read_bytes() for path in (tmp_path / "wal").glob("*/*") if path not in old]
    assert left
    assert all(content.startswith(b"redelivery-wal 2 crc32=") for content in left)


@pytest.mark.parametrize("content", [b'{"places": [[1', b'{"places": 1, "refused": {}}', b"[]", b"{}"])
def test_a_verdict_that_is_none_refuses_to_pass_rows(folder: Folder, content: bytes) -> None:
    """A verdict that cannot be read is an error, also without a checksum: its refusals would be lost."""
    folder.prepare("verdicts")
    name = "verdicts/000000000001-x-0-1-2.json"
    for pieces in ([content], [old_line(content), content], [line_of(name, content), content]):
        folder.publish(name, *pieces)
        with pytest.raises(LogDamaged, match=rf"{name} is damaged"):
            Records(folder).settled_by({}, {1: 1})
        folder.remove([name])


@pytest.mark.parametrize("name", ["whole", "s1/000000000001.arrow"])
def test_damage_to_a_file_with_a_nameless_checksum_is_found(tmp_path: Path, name: str) -> None:
    """A file of an earlier version whose checksum is wrong is not believed, also if only its version has changed."""
    store, content = Folder(str(tmp_path)), b"x" * 100
    store.prepare("s1")
    old, new = old_line(content), line_of(name, content)
    for first, other in ((old, old.replace(b"wal 1", b"wal 2")), (new, new.replace(b"wal 2", b"wal 1"))):
        for wrong in (other + content, flipped(first + content, 8 * HEAD)):
            store.publish(name, wrong)
            with pytest.raises(LogDamaged, match="is damaged"):
                read_checked(store, name)
            store.remove([name])


def test_a_damaged_segment_is_not_a_missing_one(folder: Folder) -> None:
    """A lane that looks for its next segment finds a damaged one, and does not publish in its place."""
    path = Path(folder.path) / SEGMENT
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(LogDamaged, match=SEGMENT):
        Lane(folder, 1).look()


def test_nothing_is_written_or_read_without_a_checksum() -> None:
    """The files of the log are written and read in one module; a test of a store, and what is damaged, are none."""
    own = ("checked_file.py", "give_up_segment.py", "store_probe.py")
    files = (path for path in PACKAGE.rglob("*.py") if path.name not in own)
    raw = re.compile(r"store\.(publish|read)\(")
    assert [path.name for path in files if raw.search(path.read_text(encoding="utf-8"))] == []
