"""The ledger's replies before a dispatch, and the commands to it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.core.bench import CAUSE, CONFIRMED_FORWARD, Counted, routed
from tests.core.copies import Copy, Proven
from tests.core.model import WALL_OFFSET, Arrival, Letter

from redelivery.core.capabilities import Capabilities
from redelivery.core.commands import (
    Accept,
    Bury,
    Clear,
    Dispatch,
    Dropped,
    Forward,
    Hold,
    LookUp,
    Mark,
    PoisonAck,
    Refused,
)
from redelivery.core.delivery import Cause
from redelivery.core.events import (
    Alone,
    Committed,
    Confirmed,
    Deferred,
    Drained,
    Known,
    Poisoned,
    Released,
    Tick,
    Wanted,
)
from redelivery.core.ledger_entry import CRASH, Entry, fingerprint
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from redelivery.core.commands import Command


def cleared(commands: list[Command]) -> Clear:
    """Return the command to the ledger, which precedes all others."""
    first = commands[0]
    assert isinstance(first, Clear)
    return first


def test_an_attempt_is_marked_before_its_dispatch_and_cleared_by_its_result() -> None:
    """A message without an entry leaves none when it succeeds."""
    bench = Counted()
    arrival = bench.begun(Letter(0))
    commands = bench.succeed(arrival)
    assert cleared(commands).entry is None
    assert isinstance(commands[1], Accept)


def test_a_failure_is_written_with_its_count_its_cause_and_its_time() -> None:
    """The mark stays until the failure is written, in wall-clock time, which other processes can read."""
    bench = Counted()
    commands = bench.fail(bench.begun(Letter(0)))
    clear = cleared(commands)
    at = bench.now + WALL_OFFSET
    assert clear.failed
    assert clear.entry == Entry(1, CAUSE.text, at, at)
    assert isinstance(commands[1], Hold)


def test_the_ledger_decides_the_count_and_the_broker_does_not() -> None:
    """The ledger's count decides; the broker's count is information only."""
    bench = Counted()
    bench.able = CONFIRMED_FORWARD.__class__("model", counts=True, poison_persistent=True)
    bench.connect()
    arrival = bench.begun(Letter(0, attempts=3))
    assert arrival.record is None
    bench.fail(arrival)
    other = bench.begun(Letter(1, attempts=9), Entry(2, "ValueError", 0.0, 0.0))
    assert other.record is not None
    assert other.record.count == 2
    assert isinstance(bench.fail(other)[1], Hold)


def test_what_has_used_up_its_redeliveries_is_poison_before_a_dispatch() -> None:
    """A message that killed its process each time is dead-lettered before a dispatch, with that cause."""
    bench = Counted(able=CONFIRMED_FORWARD)
    arrival, (forward,) = bench.known(Letter(0), Entry(4, CRASH, 0.0, 0.0, suspect=True))
    assert isinstance(forward, Forward)
    assert forward.cause.text == CRASH
    assert forward.copy.headers["redeliveryCause"] == "crash"
    commands = bench.feed(Confirmed(arrival))
    assert isinstance(commands[-1], Bury)
    # Its original is acknowledged only now; the copy carries the cause.
    assert commands[-1].early
    assert (commands[-1].key, commands[-1].buried) == (fingerprint(arrival), None)


def test_a_refused_dead_letter_stays_in_the_ledger() -> None:
    """The ledger removes an entry when the dead letter is confirmed, not when it is refused."""
    bench = Counted()
    arrival = bench.begun(Letter(0))
    bench.feed(Poisoned(arrival, CAUSE))
    assert [type(command) for command in bench.feed(Confirmed(arrival, AdapterError("full")))] == [Refused]
    bench.now += 1
    assert [type(command) for command in bench.feed(Tick())] == [PoisonAck]
    assert [type(command) for command in bench.feed(Confirmed(arrival))] == [Bury]


def test_the_cause_of_a_native_poison_acknowledgement_is_kept() -> None:
    """The ledger keeps the cause of a native poison acknowledgement: no broker does."""
    bench = Counted()
    arrival = bench.begun(Letter(0))
    clear = cleared(bench.feed(Poisoned(arrival, CAUSE)))
    assert clear.entry is not None
    assert clear.entry.poisoned
    (bury,) = bench.feed(Confirmed(arrival))
    assert isinstance(bury, Bury)
    assert not bury.early
    assert bury.buried is not None
    assert (bury.buried.destination, bury.buried.cause, bury.buried.count) == (
        "queue://orders",
        CAUSE.text,
        1,
    )


def test_a_verdict_outlives_the_process() -> None:
    """A verdict of the application that was not confirmed is carried out by the next process."""
    bench = Counted()
    _, (poison,) = bench.known(Letter(0), Entry(1, "Poison: bad", 0.0, 0.0, poisoned=True))
    assert isinstance(poison, PoisonAck)


def test_a_verdict_with_a_place_of_its_own_does_not_outlive_the_process() -> None:
    """The ledger does not have the place: after a crash the handler runs again, also if no redelivery is left."""
    bench = Counted(policy=RedeliveryPolicy(maximum_redeliveries=0), able=CONFIRMED_FORWARD)
    commands = bench.feed(Poisoned(bench.begun(Letter(0)), Cause("no", place="queue://invalid")))
    (copy,) = [command for command in commands if isinstance(command, Forward)]
    assert copy.copy.destination == "queue://invalid"
    entry = cleared(commands).entry
    assert entry is not None
    assert (entry.count, entry.poisoned) == (0, False)
    again = Counted(policy=RedeliveryPolicy(maximum_redeliveries=0), able=CONFIRMED_FORWARD)
    again.begun(Letter(0), entry)


def test_what_is_dropped_leaves_the_ledger_at_once() -> None:
    """With deadLetter=discard the entry is removed at once: no dead letter must be confirmed."""
    bench = Counted(dead_letters=routed(dead_letter="discard"))
    _, commands = bench.known(Letter(0), Entry(4, CRASH, 0.0, 0.0))
    assert [type(command) for command in commands] == [Accept, Dropped, Bury]
    assert cleared(bench.feed(Poisoned(bench.begun(Letter(1)), CAUSE))).entry is None


def test_the_rest_of_a_delay_is_waited_for_in_the_next_process() -> None:
    """After a failure ten seconds ago in a dead process, the rest of the one-minute delay is waited for."""
    bench = Counted()
    last = bench.now + WALL_OFFSET - 10
    arrival, (hold,) = bench.known(Letter(0), Entry(1, CRASH, last, last))
    assert isinstance(hold, Hold)
    assert (hold.delay, arrival.state) == (50.0, "parked")
    bench.now += 50
    (look,) = bench.feed(Wanted())
    assert isinstance(look, LookUp)
    assert len(bench.feed(Known(arrival, Entry(1, CRASH, last, last)))) == 2


def test_what_was_released_is_looked_up_when_it_comes_again() -> None:
    """A message released here is looked up again when it is dispatched again, uncharged."""
    bench = Counted(able=Capabilities("model"), max_parked=1)
    arrival = bench.begun(Letter(0))
    assert bench.feed(Released(arrival))
    bench.succeed(bench.begun(Letter(1)))
    (look,) = bench.feed(Wanted())
    assert isinstance(look, LookUp)
    assert look.delivery is arrival
    assert len(bench.feed(Known(arrival, None))) == 2
    assert (arrival.state, arrival.record, bench.engine.load.parked) == ("running", None, 0)


def test_a_suspect_waits_for_a_turn_alone() -> None:
    """A crash suspect counts as parked while others are dispatched, and runs as soon as its exclusive run begins."""
    bench = Counted()
    suspect, commands = bench.known(Letter(0), Entry(suspect=True))
    assert (commands, suspect.state, bench.engine.load.suspects, bench.engine.load.parked) == (
        [],
        "parked",
        1,
        1,
    )
    bench.begun(Letter(1))
    mark, dispatch = bench.feed(Alone())
    assert isinstance(mark, Mark)
    assert isinstance(dispatch, Dispatch)
    assert dispatch.delivery is suspect
    assert bench.feed(Alone()) == []


def test_a_suspect_is_not_overtaken_where_order_was_asked_for() -> None:
    """In blocking order nothing is dispatched before a suspect's exclusive run, and no worker polls meanwhile."""
    bench = Counted(ordering="blocking")
    failed = Letter(0)
    bench.fail(bench.begun(failed))
    bench.lose()
    bench.connect()
    bench.known(Letter(1), Entry(suspect=True))
    bench.again(failed)
    bench.now += 3600
    assert bench.feed(Wanted()) == []
    assert bench.engine.load.next_due() is None
    assert bench.feed(Alone())
    assert bench.engine.load.next_due() is not None


def test_a_suspect_goes_with_its_connection_or_the_end() -> None:
    """A suspect is dropped with a lost connection, and released when the consumer drains."""
    bench = Counted()
    bench.known(Letter(0), Entry(suspect=True))
    bench.lose()
    assert bench.engine.load.suspects == 0
    bench.connect()
    suspect, _ = bench.known(Letter(0), Entry(suspect=True))
    bench.feed(Drained())
    assert suspect.state == "held"  # no release while it drains
    assert bench.feed(Alone()) == []


def test_what_is_released_keeps_what_is_known_and_what_is_deferred_is_no_suspect() -> None:
    """A release leaves the entry unchanged; a message whose handler deferred it is no suspect any more."""
    bench = Counted()
    assert cleared(bench.feed(Released(bench.begun(Letter(0))))).keep
    deferred = bench.begun(Letter(1), Entry(2, "ValueError", 0.0, 0.0))
    clear = cleared(bench.feed(Deferred(deferred, 5.0, CAUSE)))
    assert clear.entry is not None
    assert (clear.entry.count, clear.entry.suspect, clear.failed) == (2, False, False)


def test_a_handler_that_ends_too_late_never_makes_less_of_what_is_written() -> None:
    """A handler that ends after its connection was lost never lowers the entry: the message may have failed since."""
    bench = Counted()
    running = bench.begun(Letter(0), Entry(1, "ValueError", 0.0, 0.0))
    bench.lose()
    bench.connect()
    clear = cleared(bench.fail(running))
    assert clear.entry is not None
    known = (None, Entry(1), Entry(2), Entry(2, poisoned=True), Entry(3))
    assert [clear.keeps(entry) for entry in known] == [False, False, False, True, True]
    in_time = cleared(bench.fail(bench.begun(Letter(1))))
    assert not in_time.keeps(Entry(3))
    deferred = bench.begun(Letter(2))
    bench.lose()
    assert cleared(bench.feed(Deferred(deferred, 5.0, CAUSE))).keep


def test_a_look_up_that_is_answered_too_late_begins_nothing() -> None:
    """A reply after the loss of the connection, or after a drain, begins nothing and counts nowhere."""
    bench = Counted()
    (arrival,) = bench.arrive(Letter(0))
    bench.feed(Wanted())
    bench.lose()
    bench.connect()
    again = bench.again(arrival.letter)
    assert again.state == "waiting"
    assert bench.feed(Known(arrival, None)) == []
    (look,) = bench.feed(Wanted())
    assert isinstance(look, LookUp)
    assert look.delivery is again
    bench.feed(Drained())
    bench.feed(Known(again, None))
    assert (again.state, bench.engine.state.counts.stale, bench.engine.state.counts.released) == (
        "held",
        0,
        1,
    )


def test_the_key_is_the_identity_or_a_digest_of_what_is_in_it() -> None:
    """Two messages without an identity share a ledger entry only if all their content is equal."""

    class Plain(Arrival):
        __slots__ = ()

        @property
        def key(self) -> Any:
            return None

    one, same, other = (Plain(Letter(n), 1, counts=False) for n in range(3))
    other.body = b"other"
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)
    arrivals = [Arrival(Letter(n), 1, counts=False) for n in range(2)]
    assert fingerprint(arrivals[0]) != fingerprint(arrivals[1])
    assert len({fingerprint(one), fingerprint(arrivals[0])}) == 2


def test_a_commit_ends_an_attempt_and_a_rollback_beside_another_message_charges_nothing() -> None:
    """A commit removes the entry; a rollback together with another message charges nothing."""
    bench = Counted(transacted=True)
    entry = Entry(1, "ValueError", 0.0, 0.0)
    assert cleared(bench.feed(Committed(bench.begun(Letter(0), entry)))).entry is None
    clear = cleared(bench.feed(Deferred(bench.begun(Letter(1), entry), 0.0, CAUSE, counted=False)))
    assert clear.entry is not None
    assert (clear.entry.count, clear.failed) == (1, False)


def test_in_a_ledger_a_message_is_known_by_its_bytes_too() -> None:
    """Counts, verdicts and suspicions never pass from one message to another with the same id."""
    created, cancelled = Copy("order-1", b"created"), Copy("order-1", b"cancelled")
    assert fingerprint(created) != fingerprint(cancelled)
    assert fingerprint(created) == fingerprint(Copy("order-1", b"created", mark=False))
    assert fingerprint(Proven("broker-1", b"a")) == fingerprint(Proven("broker-1", b"b")), "the key is enough"
