"""What one consumer remembers beyond a connection, and what of it goes to others."""

from __future__ import annotations

from tests.core.bench import NOTHING, Bench
from tests.core.model import Arrival, Letter

from redelivery.core.commands import Accept
from redelivery.core.delivery import Cause, Record
from redelivery.core.events import Committed
from redelivery.core.message_history import MessageHistory


def running(count: int = 1) -> Record:
    """Return the record of a message whose handler runs on after its connection was lost."""
    record = Record(count)
    record.running = True
    return record


def test_of_a_message_that_still_runs_the_others_get_a_record_of_their_own() -> None:
    """They neither wait for its handler nor hear of what it reports later; this consumer keeps its own."""
    history, record = MessageHistory(10), running()
    history.remember("m", record)
    left = history.leave(closed=False)["m"]
    assert left is not record
    assert (left.count, left.running) == (1, False)
    assert history.records == {"m": record}


def test_what_has_come_back_here_is_not_left_to_others() -> None:
    """Its copy waits here for the handler: nobody else can get the message."""
    history, record = MessageHistory(10), running()
    record.copy = Arrival(Letter(0), 1, counts=False)
    history.remember("m", record)
    assert history.leave(closed=False) == {}
    assert history.leave(closed=True) == {"m": record}
    assert history.records == {}


def test_what_ran_here_last_is_known_better_here() -> None:
    """What another consumer left counts for nothing where the message was accepted, or is remembered already."""
    history, mine = MessageHistory(10), Record(3)
    history.remember("mine", mine)
    history.accepted(["accepted"])
    history.inherit({"mine": Record(1), "accepted": Record(1), "new": Record(2)})
    assert history.records.keys() == {"mine", "new"}
    assert history.records["mine"] is mine


def test_a_record_apart_has_all_that_was_charged() -> None:
    """Counts, deferrals, dates, the cause and the verdict go along; the handler and the copy do not."""
    record = running(2)
    record.copy = Arrival(Letter(0), 1, counts=False)
    record.deferrals, record.deferred, record.due, record.tries = 3, True, 5.0, 4
    record.cause, record.first_failure, record.last_failure = Cause("bad"), 1.0, 2.0
    record.poisoned = record.confirmed = True
    other = record.apart()
    for name in (
        "count", "deferrals", "deferred", "due", "tries", "cause", "first_failure", "last_failure", "poisoned",
        "confirmed",
    ):  # fmt: skip
        assert getattr(other, name) == getattr(record, name), name
    assert (other.running, other.copy) == (False, None)


def test_a_copy_of_what_was_committed_is_accepted() -> None:
    """A broker that sends again what it has committed is told so; of what it has not sent again, it knows."""
    bench = Bench()
    old = bench.run(Letter(0))
    assert bench.feed(Committed(bench.run(Letter(1)))) == NOTHING
    bench.lose()
    bench.connect()
    copy = bench.again(Letter(0))
    (accept,) = bench.feed(Committed(old))
    assert isinstance(accept, Accept)
    assert list(accept.deliveries) == [copy]
