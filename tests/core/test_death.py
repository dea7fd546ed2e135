"""Effects of the death of a process on the messages it had open."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redelivery.core.ledger_entry import CRASH, HUNG, AttemptMark, Entry, after_death, counted

keys = st.sampled_from([bytes([n]) * 16 for n in range(5)])
attempts = st.lists(
    st.builds(AttemptMark, keys, st.integers(0, 3), st.sampled_from(["running", "failed", "hung"])),
    max_size=5, unique_by=lambda attempt: attempt.key,
)  # fmt: skip
entries = st.dictionaries(
    keys, st.builds(Entry, count=st.integers(0, 4), cause=st.just("x"), suspect=st.booleans())
)
A, B, C = (bytes([n]) * 16 for n in range(3))


def test_who_was_alone_is_charged() -> None:
    """A message that ran alone is charged, with the cause crash, and runs exclusively next."""
    assert after_death([AttemptMark(A, 0, "running")], {}, 5.0) == {
        A: Entry(1, CRASH, 5.0, 5.0, suspect=True)
    }


def test_of_several_nobody_is_charged() -> None:
    """Of several open messages none is charged: all are crash suspects."""
    found = after_death([AttemptMark(A, 0, "running"), AttemptMark(B, 2, "running")], {B: Entry(2, "x")}, 5.0)
    assert found == {A: Entry(suspect=True), B: Entry(2, "x", suspect=True)}


def test_what_had_failed_before_the_death_is_charged_and_is_no_company() -> None:
    """A message that had failed before the death is charged; the one that still ran counts as alone."""
    found = after_death(
        [AttemptMark(A, 0, "running"), AttemptMark(B, 0, "failed"), AttemptMark(C, 1, "hung")], {}, 5.0
    )
    assert found[A].cause == CRASH
    assert (found[B].count, found[B].suspect) == (1, False)
    assert (found[C].count, found[C].cause) == (2, HUNG)


def test_a_failure_that_has_been_written_is_not_charged_again() -> None:
    """A failure that has been written is not charged again, although its mark was still there."""
    known = {A: Entry(1, "ValueError", 1.0, 1.0)}
    assert after_death([AttemptMark(A, 0, "failed")], known, 5.0) == {}


def test_a_failure_on_its_way_counts_for_other_processes() -> None:
    """A failure that a living process has still to write counts for others; what it has open does not, but shows."""
    entry = counted(Entry(1, "x"), [AttemptMark(A, 1, "failed")])
    assert entry is not None
    assert entry.count == 2
    assert counted(Entry(2, "x"), [AttemptMark(A, 1, "failed")]) == Entry(2, "x")
    assert counted(None, [AttemptMark(A, 0, "running")]) == Entry(elsewhere=True)
    assert counted(Entry(1, "x"), [AttemptMark(A, 1, "hung")]) == Entry(1, "x", elsewhere=True)
    assert counted(Entry(2, "x"), [AttemptMark(A, 1, "failed")]) == Entry(2, "x")


@given(attempts, entries)
def test_no_count_is_lost_and_none_is_charged_twice(
    open_: list[AttemptMark], known: dict[bytes, Entry]
) -> None:
    """A death that is processed twice has the same effect as once; it charges one running message at most."""
    written = after_death(open_, known, 5.0)
    after = known | written
    again = after_death(open_, after, 6.0)
    assert {key: entry.count for key, entry in (after | again).items()} == {
        k: e.count for k, e in after.items()
    }
    for key, entry in written.items():
        before = known.get(key, Entry())
        assert (
            before.count <= entry.count <= max(before.count, 1 + max(a.count for a in open_ if a.key == key))
        )
    running = [attempt for attempt in open_ if attempt.state == "running"]
    if len(running) > 1:
        assert all(after[a.key].count == known.get(a.key, Entry()).count for a in running)
        assert all(after[a.key].suspect for a in running)
