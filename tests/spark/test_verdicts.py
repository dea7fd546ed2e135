"""Attempts of one task, other actions, rows of one place: no row is lost, or both passed on and redelivered."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.frames import Frame, cut, in_batch, places, source, united
from tests.spark.test_process import apply, made, refused, refuses

from redelivery.errors import RedeliveryError
from redelivery_spark.wal.places import LANES, NUMBERS, ROWS, parts_of, place, runs_of, tag_of, tag_within
from redelivery_spark.wal.records import DIED, Records, Refusal, Verdict, mildest, verdict_name
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLACES = st.builds(place, st.integers(0, 3), st.just(7), st.integers(1, 4), st.integers(0, 20))


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frame:
    """Four rows, a to d, of batch 3."""
    store_at(str(tmp_path)).prepare("verdicts", "failures")
    in_batch(monkeypatch, 3)
    return source(tmp_path, "a", "b", "c", "d")


def broken() -> tuple[list[str], Callable[[Any], object]]:
    """Return a handler, and the list of ids over which it currently raises."""
    ids: list[str] = []

    def handler(row: Any) -> object:
        if row["message_id"] in ids:
            raise ValueError(row["message_id"])
        return row

    return ids, handler


def test_another_attempt_follows_the_first(rows: Frame, tmp_path: Path) -> None:
    """A refused row stays out in another attempt, and a passed row may not fail; the same after a restart."""
    ids, handler = broken()
    ids[:] = ["a"]
    assert made(apply(rows, handler)) == ["b", "c", "d"]
    ids.clear()
    assert made(apply(rows, handler)) == ["b", "c", "d"]
    ids[:] = ["b"]
    with pytest.raises(ValueError, match="b"):
        made(apply(rows, handler))
    assert set(refused(tmp_path)) == {"a"}
    # One verdict, and its refusals again.
    assert len(store_at(str(tmp_path)).names("verdicts")) == 2


def test_rows_in_other_arrow_batches_follow_too(rows: Frame, tmp_path: Path) -> None:
    """After a repartition a refused row stays out; a new refusal of a passed row fails the query, once."""
    ids, handler = broken()
    ids[:] = ["a"]
    assert made(apply(rows, handler)) == ["b", "c", "d"]
    ids[:] = ["c"]
    with pytest.raises(ValueError, match="c"):
        made(apply(cut(rows, 2), handler))
    assert set(refused(tmp_path)) == {"a", "c"}
    ids.clear()
    assert made(apply(cut(rows, 2), handler)) == ["b", "d"]
    assert made(apply(rows, handler)) == ["b", "d"]


@pytest.mark.parametrize("theirs", ["a", "b", "ab", ""])
def test_two_attempts_at_one_time_decide_alike(
    rows: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    """The attempt that publishes second leaves out the first one's refused rows, and fails over the rows that it
    passed.
    """
    judge = Records.judge

    def judged(records: Records, name: str, verdict: Verdict, *, durable: bool) -> bool:
        other = {at: Refusal(1, "fail", "the other attempt's") for at in places(tmp_path, *theirs)}
        judge(records, name, Verdict(verdict.places, other), durable=durable)
        return judge(records, name, verdict, durable=durable)

    monkeypatch.setattr(Records, "judge", judged)
    if "a" in theirs:
        assert made(apply(rows, refuses("a"))) == [each for each in "bcd" if each not in theirs]
    else:
        with pytest.raises(ValueError, match="a"):
            made(apply(rows, refuses("a")))
    assert refused(tmp_path) == dict.fromkeys(theirs, "the other attempt's")


def test_two_attempts_with_other_rows(rows: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two attempts with other rows read each other's verdicts after they have published.

    Rows that the other refused are left out. The retry of an attempt that has refused rows that the other passed fails
    until all of them run again.
    """
    judge = Records.judge
    others = {"b": ["fail"], "c": list[str]()}

    def judged(records: Records, name: str, verdict: Verdict, *, durable: bool) -> bool:
        for row, kinds in others.items():
            (at,) = places(tmp_path, row)
            other = dict.fromkeys([at] * len(kinds), Refusal(1, "fail", "other"))
            mark = name.split("-")[1]
            judge(records, verdict_name(3, mark, [at]), Verdict([at], other), durable=durable)
        return judge(records, name, verdict, durable=durable)

    monkeypatch.setattr(Records, "judge", judged)
    with pytest.raises(ValueError, match="c"):
        made(apply(rows, refuses("c"), name="x"))
    in_batch(monkeypatch, 3, retried=True)
    with pytest.raises(RedeliveryError, match="passed on by one task and refused by another; the batch runs"):
        made(apply(rows, refuses(), name="x"))
    in_batch(monkeypatch, 3)
    assert made(apply(rows, refuses(), name="x")) == ["a", "d"]


def test_rows_of_one_message_in_two_partitions(rows: Frame, tmp_path: Path) -> None:
    """If one row of a message fails after another has passed, the query fails once; then both are left out."""
    seen: list[str] = []

    def every_other(row: Any) -> object:
        seen.append(row["message_id"])
        if row["message_id"] == "b" and seen.count("b") % 2 == 0:
            raise ValueError("the second b")
        return row

    twice = united(rows, rows)
    with pytest.raises(ValueError, match="the second b"):
        made(apply(twice, every_other, name="x"))
    assert made(apply(twice, every_other, name="x")) == ["a", "c", "d"] * 2
    assert set(refused(tmp_path)) == {"b"}


@pytest.mark.parametrize("partitions", [True, False])
def test_a_union_of_a_frame_with_itself(rows: Frame, tmp_path: Path, partitions: bool) -> None:
    """Both rows of a message are refused, or none."""
    twice = united(rows, rows, partitions=partitions)
    assert made(apply(twice, refuses("b"))) == ["a", "c", "d"] * 2
    assert set(refused(tmp_path)) == {"b"}


@pytest.mark.parametrize("size", [8, 4, 2])
def test_one_of_two_rows_of_a_message_fails(rows: Frame, tmp_path: Path, size: int) -> None:
    """In one Arrow batch both rows are left out. In two, the query fails once, and then both are left out."""
    seen: list[str] = []

    def second(row: Any) -> object:
        seen.append(row["message_id"])
        if row["message_id"] == "b" and seen.count("b") % 2 == 0:
            raise ValueError("the second b")
        return row

    twice = cut(united(rows, rows, partitions=False), size)
    handler = second
    if size < 8:
        with pytest.raises(ValueError, match="the second b"):
            made(apply(twice, handler, name="x"))
    assert made(apply(twice, handler, name="x")) == ["a", "c", "d"] * 2
    assert set(refused(tmp_path)) == {"b"}


@given(
    decisions=st.lists(
        st.tuples(st.sets(st.sampled_from("abcd")), st.integers(1, 5), st.booleans()), max_size=6
    )
)
def test_no_row_is_both_passed_on_and_refused(
    tmp_path_factory: pytest.TempPathFactory, decisions: list[tuple[set[str], int, bool]]
) -> None:
    """Whatever fails at each attempt, and however rows are cut, a successful attempt passes on all rows not refused."""
    folder = tmp_path_factory.mktemp("wal")
    store_at(str(folder)).prepare("verdicts")
    with pytest.MonkeyPatch.context() as patch:
        in_batch(patch, 3)
        frame = source(folder, "a", "b", "c", "d")
        for fails, size, twice in decisions:
            whole = united(frame, frame, partitions=False) if twice else frame
            try:
                out = made(apply(cut(whole, size), refuses(*fails), name="x"))
            except (ValueError, RedeliveryError):
                continue
            assert set(out) == set("abcd") - set(refused(folder))
            assert len(out) == len(set(out)) * (1 + twice)


def test_a_verdict_that_a_power_cut_has_emptied(
    rows: Frame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A verdict without a refusal is published without fsync. An emptied one decides nothing, and is named."""
    assert made(apply(rows, refuses(), name="x")) == ["a", "b", "c", "d"]
    (name,) = store_at(str(tmp_path)).names("verdicts")
    for content in (b"", b"\0" * 40):
        (tmp_path / name).write_bytes(content)
        assert made(apply(rows, refuses("b"), name="x")) == ["a", "c", "d"]
        assert set(refused(tmp_path)) == {"b"}
        assert f"{name} is empty, as a power cut leaves a file; it counts as missing" in caplog.text
        caplog.clear()


def test_only_a_refusal_is_durable(rows: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict that refuses nothing costs no fsync."""
    judge, asked = Records.judge, list[bool]()

    def judged(records: Records, name: str, verdict: Verdict, *, durable: bool) -> bool:
        asked.append(durable)
        return judge(records, name, verdict, durable=durable)

    monkeypatch.setattr(Records, "judge", judged)
    made(apply(rows, refuses()))
    made(apply(rows, refuses("a")))
    assert asked == [False, True]


def test_what_settling_makes_of_verdicts(tmp_path: Path) -> None:
    """Verdicts of settled segments are removed, lane by lane; the mildest refusal counts; a late one does not."""
    store = store_at(str(tmp_path))
    store.prepare("verdicts")
    records = Records(store)

    def judge(batch: int, mark: str, *of: tuple[int, int, str]) -> str:
        refusals = {place(lane, 7, number): Refusal(1, kind, kind) for lane, number, kind in of}
        name = verdict_name(batch, mark, list(refusals))
        assert records.judge(name, Verdict(list(refusals), refusals), durable=True)
        return f"verdicts/{name}.json"

    late = judge(3, "aa", (1, 1, "fail"))
    one = judge(4, "aa", (0, 1, "poison"), (1, 2, "discard"))
    two = judge(4, "bb", (0, 1, DIED), (1, 2, "defer"))
    judge(5, "aa", (1, 3, "fail"))
    judge(5, "bb", (2, 1, "fail"), (1, 2, "fail"))
    names, found = records.settled_by({1: 1}, {0: 1, 1: 2})
    assert {late, one, two} < set(names)
    # Each with its refusals.
    assert len(names) == 6
    assert {at: of.kind for at, of in found.items()} == {place(0, 7, 1): DIED, place(1, 7, 2): "defer"}
    records.forget(names)
    assert len(store.names("verdicts")) == 4


def test_marks_of_failures(tmp_path: Path) -> None:
    """Each mark of a failure is a file of its own, read oldest first, until all are removed."""
    store_at(str(tmp_path)).prepare("failures")
    records = Records(store_at(str(tmp_path)))
    for error in ("first", "second", "first"):
        records.fail(error)
    assert records.failures() == ["first", "second", "first"]
    records.forget_failures()
    assert records.failures() == []


@given(
    st.integers(0, LANES - 1),
    st.text("abü%", min_size=1),
    st.integers(0, NUMBERS - 1),
    st.integers(0, ROWS - 1),
)
def test_a_place_has_its_parts(lane: int, folder: str, number: int, row: int) -> None:
    """A place is a positive long, and its parts can be read back; no part spills into another."""
    tag = tag_of(f"/{folder}")
    at = place(lane, tag, number, row)
    assert 0 <= at < 2**63
    assert parts_of(at) == (lane, tag, number, row)
    assert tag_within(at) == tag == tag_of(f"/{folder}/")
    for wrong in ((LANES, 0, 0, 0), (0, 4096, 0, 0), (0, 0, NUMBERS, 0), (0, 0, 0, ROWS), (0, 0, -1, 0)):
        with pytest.raises(ValueError, match="no place"):
            place(*wrong)


@given(st.lists(st.integers(0, 60)))
def test_runs_have_all_places_and_no_other(found: list[int]) -> None:
    """Runs are in order, apart from each other, and as few as possible."""
    runs = runs_of(found)
    assert [at for first, last in runs for at in range(first, last + 1)] == sorted(set(found))
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(runs))


@given(st.lists(PLACES, min_size=1), st.data())
def test_a_verdict_is_read_as_it_was_published(
    tmp_path_factory: pytest.TempPathFactory, judged: list[int], data: st.DataObject
) -> None:
    """Refused rows are refused, all others of the verdict have passed, and other places are unknown."""
    store = store_at(str(tmp_path_factory.mktemp("wal")))
    store.prepare("verdicts")
    records = Records(store)
    bad = data.draw(st.sets(st.sampled_from(judged)))
    elsewhere = data.draw(st.none() | st.just("queue://invalid"))
    refusals = {at: Refusal(2, "defer", "später", 1.5, elsewhere) for at in bad}
    assert records.judge(verdict_name(5, "aa", judged), Verdict(judged, refusals), durable=False)
    assert not records.judge(verdict_name(5, "aa", judged[::-1]), Verdict(judged, {}), durable=False)
    earlier = records.of_batch(5, "aa")
    earlier.look(min(judged), max(judged))
    assert earlier.refused == refusals
    for at in range(min(judged) - 2, min(judged) + 30):
        assert earlier.good(at) == (at in judged and at not in bad)
    assert records.of_batch(5, "ab").refused == records.of_batch(4, "aa").refused == {}


def test_the_mildest_refusal() -> None:
    """A row that one handler wants redelivered is not dropped because another one does not."""
    kinds = ["discard", "poison", "defer", "fail", DIED]
    for most in range(1, 6):
        found = mildest(Refusal(1, kind, "") for kind in kinds[:most])
        assert found is not None
        assert found.kind == kinds[most - 1]
