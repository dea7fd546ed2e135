"""Memory of messages over connections: by which evidence, how often, and for which consumer."""

from __future__ import annotations

import threading
from math import inf
from typing import Any

import pytest
from tests.core.bench import NOTHING, Bench
from tests.core.copies import Copy, Proven, accepted, run_into_a_loss, unseen, waiting
from tests.core.model import Arrival, Letter

from redelivery.core.commands import Accept, AcceptUnseen
from redelivery.core.delivery import Cause, Record
from redelivery.core.events import Arrived, Committed
from redelivery.core.message_history import RETURN, MessageHistory


class Weak(Arrival):
    """Delivery whose id its producer set, with a creation time."""

    __slots__ = ()
    digested = True

    @property
    def strong(self) -> bool:
        return False

    @property
    def dated(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [Copy, Proven])
def test_a_record_is_consumed_by_its_message(kind: type[Copy]) -> None:
    """The first equal arrival takes the record; a second one is a fresh message."""
    history = MessageHistory()
    (record,) = waiting(history, kind())
    assert history.known(kind(), 0.0) is record
    assert history.known(kind(), 0.0) is None
    assert history.empty


def test_other_bytes_are_another_message() -> None:
    """Each of two messages with the same id keeps its own count."""
    history = MessageHistory()
    one, two = waiting(history, Copy(body=b"created"), Copy(body=b"cancelled"))
    assert history.known(Copy(body=b"refunded"), 0.0) is None
    assert history.known(Copy(body=b"cancelled"), 0.0) is two
    assert history.known(Copy(body=b"created"), 0.0) is one


def test_without_an_id_nothing_is_known() -> None:
    """Of a message without an id neither a record nor an acceptance is kept."""
    history = MessageHistory()
    waiting(history, Copy(key=None))
    accepted(history, Copy(key=None))
    run_into_a_loss(history, Copy(key=None))
    history.poisoned(Copy(key=None), Record(), inf)
    assert len(history) == 0
    assert history.known(Copy(key=None), 0.0) is None
    assert not unseen(history, Copy(key=None))


@pytest.mark.parametrize(
    ("copy", "age", "marks", "taken"),
    [
        (Proven(), RETURN * 100, True, True),
        (Proven(mark=False), 0.0, True, False),
        (Proven(body=b"other"), 0.0, False, True),
        (Proven(mark=False), RETURN, False, True),
        (Proven(mark=False), RETURN + 1, False, False),
        (Proven(mark=False, dated=False), 0.0, False, False),
        (Copy(), RETURN, True, True),
        (Copy(), RETURN + 1, True, False),
        (Copy(mark=False), 0.0, True, False),
        (Copy(mark=False), 0.0, False, True),
        (Copy(dated=False), 0.0, True, False),
        (Copy(body=b"other"), 0.0, True, False),
    ],
)
def test_by_which_evidence_a_message_is_accepted_unseen(
    copy: Copy, age: float, *, marks: bool, taken: bool
) -> None:
    """Evidence: the broker's own id, or equal bytes with a time; flagged, or soon if the broker does not flag all."""
    history = MessageHistory()
    accepted(history, (Proven if copy.strong else Copy)(dated=copy.dated))
    assert unseen(history, copy, age, marks=marks) is taken


@pytest.mark.parametrize("kind", [Copy, Proven])
def test_an_accept_pays_for_one_copy(kind: type[Copy]) -> None:
    """Two acceptances count for two copies; the third equal arrival is handled."""
    history = MessageHistory()
    accepted(history, kind(), kind())
    assert [unseen(history, kind()) for _ in range(3)] == [True, True, False]
    assert len(history) == 0


@pytest.mark.parametrize("kind", [Copy, Proven])
def test_an_unmarked_copy_ends_the_doubt(kind: type[Copy]) -> None:
    """A copy without the flag is handled, and ends the doubt: nothing is accepted unseen afterwards."""
    history = MessageHistory()
    accepted(history, kind())
    assert not unseen(history, kind(mark=False))
    assert not unseen(history, kind())


def test_the_users_word_makes_up_for_a_time() -> None:
    """With unique ids a message without a creation time is accepted unseen if its bytes are equal."""
    history = MessageHistory(unique_ids=True)
    accepted(history, Copy(dated=False))
    assert not unseen(history, Copy(body=b"other", dated=False))
    assert unseen(history, Copy(dated=False))


def test_the_ids_of_another_broker_prove_nothing() -> None:
    """An id made by a broker at another address proves no more than a producer's: the bytes must be equal."""
    history = MessageHistory()
    history.connected("one", 1)
    accepted(history, Proven("done"), Copy("weak"))
    same, other, running = Record(2), Record(3), Proven("running", b"a")
    for key, record in (("same", same), ("other", other)):
        history.remember(Proven(key, b"a"), record)
    run_into_a_loss(history, running)
    history.connected("one", 1)
    assert history.known(Proven("same", b"b"), 0.0) is same
    history.remember(Proven("same", b"a"), same)
    history.connected("two", 1)
    assert not unseen(history, Proven("done"))
    assert unseen(history, Copy("weak"))
    assert history.known(Proven("other", b"b"), 0.0) is None
    assert history.known(Proven("same", b"a"), 0.0) is same
    assert history.known(Proven("running", b"b"), 0.0) is None


@pytest.mark.parametrize("kind", [Copy, Proven])
def test_one_copy_waits_for_one_handler(kind: type[Copy]) -> None:
    """A copy waits without a flag; a second equal arrival is another message, and does not wait."""
    history, running = MessageHistory(), kind()
    record = run_into_a_loss(history, running)
    copy = kind(mark=False)
    assert history.known(copy, 0.0) is record
    assert record.copy is copy
    assert history.known(kind(), 0.0) is None
    assert history.ended(running, succeeded=True) is copy
    assert len(history) == 0


def test_of_equal_messages_the_first_copy_waits_for_the_handler() -> None:
    """The first of several equal copies waits: otherwise a handler would run beside the one that has its message."""
    history, running = MessageHistory(), Copy()
    (before,) = waiting(history, Copy())
    record = run_into_a_loss(history, running)
    (after,) = waiting(history, Copy())
    assert [history.known(Copy(), 0.0) for _ in range(4)] == [record, before, after, None]


@pytest.mark.parametrize("kind", [Copy, Proven])
def test_a_handler_that_succeeds_with_no_copy_waiting_pays_for_one(kind: type[Copy]) -> None:
    """A success without a waiting copy becomes an acceptance in doubt: the message is redelivered, unacknowledged."""
    history, running = MessageHistory(), kind()
    run_into_a_loss(history, running)
    assert history.ended(running, succeeded=True) is None
    assert history.known(kind(), 0.0) is None
    assert [unseen(history, kind()) for _ in range(2)] == [True, False]


def test_a_handler_that_fails_with_no_copy_waiting_leaves_its_count() -> None:
    """A failure without a waiting copy leaves its count, which a later delivery continues."""
    history, running = MessageHistory(), Copy()
    record = run_into_a_loss(history, running)
    record.count = 3
    assert history.ended(running, succeeded=False) is None
    assert history.known(Copy(), 0.0) is record
    assert record.runner is None


def test_a_consumer_that_closes_leaves_nothing_in_doubt() -> None:
    """A closing consumer leaves nothing in doubt, because the broker has read it; its counts are kept."""
    history, parked, running = MessageHistory(), Copy("parked"), Copy("running")
    parked.record, running.record = Record(2), Record(1)
    history.poisoned(Copy("bad"), Record(), 5.0)
    history.connection_lost(1, [Copy("done")], [parked], [running], inf, 1)
    assert not unseen(history, Copy("done"))
    known = [history.known(Copy(key), 0.0) for key in ("parked", "running", "bad")]
    assert [None if record is None else record.count for record in known] == [2, 1, None]
    # The connection may be lost next, and with it the broker.
    history.lost(4.0, 1, 0.0)
    assert history.known(Copy("bad"), 0.0) is not None


def test_a_verdict_is_of_equal_bytes() -> None:
    """A good message with the id of a dead letter is handled."""
    history, verdict = MessageHistory(), Record()
    verdict.poisoned = verdict.confirmed = True
    history.poisoned(Copy(body=b"bad"), verdict, 5.0)
    history.lost(1.0, 1, 0.0)
    assert history.known(Copy(body=b"good"), 1.0) is None
    assert history.known(Copy(body=b"bad"), 1.0) is verdict


def test_a_message_is_forgotten_by_its_own_bytes() -> None:
    """`forget` removes the records of this message only; not those of others with its id, or with a handler."""
    history = MessageHistory()
    waiting(history, Copy(body=b"a"), Copy(body=b"b"))
    run_into_a_loss(history, Copy("running"))
    for known in (Copy(body=b"a"), Copy("running"), Copy("unknown"), Copy(key=None)):
        history.forget(known)
    assert history.known(Copy(body=b"a"), 0.0) is None
    assert history.known(Copy(body=b"b"), 0.0) is not None
    assert history.known(Copy("running"), 0.0) is not None


def test_what_another_history_has_left_is_taken_over() -> None:
    """Counts, verdicts and the address of a closed consumer are taken over."""
    left, history = MessageHistory(), MessageHistory()
    left.connected("one", 1)
    (record,) = waiting(left, Proven())
    left.poisoned(Proven("bad"), Record(), 5.0)
    history.absorb(left)
    history.connected("one", 1)
    history.lost(1.0, 1, 0.0)
    assert history.known(Proven(), 0.0) is record
    assert history.known(Proven("bad"), 0.0) is not None


def test_two_consumers_never_take_one_record() -> None:
    """Each of many records goes to one thread only."""
    history = MessageHistory(lock=threading.Lock())
    waiting(history, *(Copy(str(number)) for number in range(500)))
    taken: list[Any] = []

    def take() -> None:
        for number in range(500):
            record = history.known(Copy(str(number)), 0.0)
            if record is not None:
                taken.append(record)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(taken) == len(set(taken)) == 500


def test_a_record_apart_has_all_that_was_charged() -> None:
    """`apart` copies counts, deferrals, dates, the cause and the verdict, but not the handler or the copy."""
    record = Record(2)
    record.runner, record.copy = 1, Arrival(Letter(0), 1, counts=False)
    record.deferrals, record.deferred, record.due, record.tries = 3, True, 5.0, 4
    record.cause, record.first_failure, record.last_failure = Cause("bad"), 1.0, 2.0
    record.poisoned = record.confirmed = True
    record.digest = b"digest"
    other = record.apart()
    for name in (
        "count", "deferrals", "deferred", "due", "tries", "cause", "first_failure", "last_failure", "poisoned",
        "confirmed", "digest",
    ):  # fmt: skip
        assert getattr(other, name) == getattr(record, name), name
    assert (other.runner, other.copy) == (None, None)


def test_a_copy_of_what_was_committed_is_accepted() -> None:
    """A redelivered copy of a committed message is accepted."""
    bench = Bench()
    old = bench.run(Letter(0))
    assert bench.feed(Committed(bench.run(Letter(1)))) == NOTHING
    bench.lose()
    bench.connect()
    copy = bench.again(Letter(0))
    accept, unseen_copy = bench.feed(Committed(old))
    assert isinstance(accept, Accept)
    assert list(accept.deliveries) == [copy]
    assert isinstance(unseen_copy, AcceptUnseen)


def test_an_id_that_a_producer_has_copied_from_the_broker_proves_nothing() -> None:
    """If a producer copies an id that a broker made (a bridge may), the bytes are compared as well."""
    history, running = MessageHistory(), Proven(body=b"genuine")
    run_into_a_loss(history, running)
    forged = Copy(body=b"forged")
    assert history.known(forged, 0.0) is None
    history.forget(forged)
    copy = Proven(body=b"genuine")
    assert history.known(copy, 0.0) is not None
    assert history.ended(running, succeeded=True) is copy


def test_what_was_left_at_another_address_is_known_by_its_bytes() -> None:
    """Messages of two consumers that closed at different brokers are recognised by their bytes."""
    left, history = MessageHistory(), MessageHistory()
    left.connected("one", 1)
    history.connected("two", 1)
    same, other = waiting(left, Proven("same", b"a"), Proven("other", b"a"))
    history.absorb(left)
    assert history.known(Proven("other", b"b"), 0.0) is None
    assert history.known(Proven("same", b"a"), 0.0) is same
    assert history.known(Proven("other", b"a"), 0.0) is other


def test_what_was_committed_is_not_in_doubt() -> None:
    """A committed message is not in doubt: equal bytes that arrive later are another message."""
    bench, same = Bench(), Weak(Letter(0), 1, counts=False)
    bench.feed(Arrived(1, [same]))
    assert bench.want() is same
    bench.feed(Committed(same))
    bench.lose()
    assert len(bench.engine.state.history) == 0
