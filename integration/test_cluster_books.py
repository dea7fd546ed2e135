"""The books of the runs on clusters find what they are kept for."""

from __future__ import annotations

import dataclasses

import pytest

from integration.clusters.books import DELAYS, Books, Call, Mark
from integration.clusters.rows import ROWS, chosen
from integration.clusters.run import port_of, row_fault
from integration.soak import failures

GOOD, ONCE, BAD = 1, 60, 7  # by `failures`: never fails, fails once, always fails


def kept(**calls: list[Call]) -> Books:
    """Return books of the three messages, handled as they must be, except for the calls given."""
    usual = {
        "good": [Call(1, 0.0, 0.1, failed=False)],
        "once": [Call(1, 0.0, 0.1, failed=True), Call(2, 0.1 + DELAYS[0], 1.0, failed=False)],
        "bad": [
            Call(count, at, at, failed=True)
            for count, at in enumerate((0.0, DELAYS[0], sum(DELAYS[:2]), sum(DELAYS)), 1)
        ],
    }
    books = Books(confirmed={GOOD, ONCE, BAD})
    for number, name in ((GOOD, "good"), (ONCE, "once"), (BAD, "bad")):
        for call in {**usual, **calls}[name]:
            books.called(number, call)
    books.letters[BAD] += 1
    return books


def test_the_chosen_numbers_fail_as_named() -> None:
    """The messages of these tests fail never, once and always."""
    assert (failures(GOOD), failures(ONCE), failures(BAD)) == (0, 1, 4)


def test_books_that_add_up() -> None:
    """Each message as its policy says: nothing is wrong, and nothing is open."""
    books = kept()
    assert books.verdict().wrong() == []
    assert books.open() == []


def test_a_message_without_a_call_is_lost() -> None:
    """A confirmed message without a call and a dead letter is lost; one that is still on the broker is left."""
    books = kept(good=[])
    assert books.open() == [GOOD]
    assert books.verdict().lost == [GOOD]
    books.found[GOOD] += 1
    assert (books.verdict().lost, books.verdict().left) == ([], [GOOD])


def test_a_second_success_is_told() -> None:
    """A message that is handled twice is one call too many, too."""
    verdict = kept(good=[Call(1, 0.0, 0.1, failed=False), Call(2, 0.2, 0.3, failed=False)]).verdict()
    assert verdict.wrong() == ["twice: 1", "extra calls: 1"]
    assert verdict.wrong(["twice", "extra calls"]) == []
    many = dataclasses.replace(verdict, extra_calls=21)
    assert many.wrong(["twice", "extra calls"]) == ["extra calls: 21"]


def test_a_result_that_could_not_be_sent_is_no_second_success() -> None:
    """A message whose handler ran when the connection was lost is handled again, as documented."""
    books = kept(good=[Call(1, 0.0, 0.1, failed=False), Call(2, 0.2, 0.3, failed=False)])
    books.losses.append(0.05)
    assert books.verdict().wrong() == []
    assert books.verdict().stale == [GOOD]


def test_each_loss_may_cost_a_call() -> None:
    """A message whose handler ran at two losses is called twice more, and not a third time."""
    calls = [Call(1, at, at + 0.1, failed=False) for at in (0.0, 5.0, 10.0)]
    books = kept(good=calls)
    books.losses += [0.05, 5.05]
    assert books.verdict().wrong() == []
    books = kept(good=[*calls, Call(1, 15.0, 15.1, failed=False)])
    books.losses += [0.05, 5.05]
    assert books.verdict().wrong() == ["extra calls: 1"]


def test_a_stale_result_that_the_library_reports_is_found_further_from_the_loss() -> None:
    """On a busy machine a loss is seen late; no more second successes are excused than results were stale."""
    books = kept(good=[Call(1, 0.0, 0.1, failed=False), Call(2, 1.2, 1.3, failed=False)])
    books.losses.append(1.0)
    assert books.verdict().wrong() == ["twice: 1", "extra calls: 1"]
    books.stale_results = 1
    assert (books.verdict().wrong(), books.verdict().stale) == ([], [GOOD])
    books.losses = [9.0]
    assert books.verdict().wrong() == ["twice: 1", "extra calls: 1"]


def test_wrong_dead_letters_are_told() -> None:
    """A second dead letter, one of a message that succeeds, and one that is missing."""
    books = kept()
    books.letters[BAD] += 1
    books.letters[ONCE] += 1
    assert books.verdict().wrong() == ["dead wrong: 1", "dead double: 1"]
    books.letters.clear()
    assert books.verdict().wrong() == ["lost: 1", "dead missing: 1"]


def test_an_early_redelivery_and_a_broken_count_are_told() -> None:
    """A redelivery before its time, or with the count of the delivery before, is found."""
    verdict = kept(once=[Call(1, 0.0, 0.1, failed=True), Call(1, 0.2, 0.3, failed=False)]).verdict()
    assert verdict.wrong() == ["early: 1", "breaks: 1"]


def test_the_time_to_the_next_call_is_measured() -> None:
    """A mark has the seconds to the next call, or none if there is none."""
    books = kept()
    books.marks += [Mark(1.0, "killed"), Mark(99.0, "the end")]
    assert books.verdict().back == {"killed": 1.5, "the end": None}


def test_each_row_can_run() -> None:
    """Each row has a fault and a name of its own, by which it is found."""
    assert len({row.name for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row_fault(row)
        assert row in chosen([row.name])


@pytest.mark.parametrize(
    "address", ["amqp://127.0.0.1:5672", "amqp://cluster.test:5672 (fd::1)", "stomp+ssl://[::1]:5672"]
)
def test_a_node_has_the_port_of_its_address(address: str) -> None:
    """The port is read behind a name, an address of IPv6, and before the IP address of a node."""
    assert port_of(address) == 5672
