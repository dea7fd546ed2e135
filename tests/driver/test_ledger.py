"""Consumers with a ledger, on threads and on a loop: counts, crash suspects, and a ledger that fails."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.driver.twins import body_of

import redelivery_memory
from redelivery import Defer, LedgerError, RedeliveryPolicy, RedeliveryPolicyMap, SqliteLedger
from redelivery.core.ledger_entry import CRASH, AttemptMark, Entry, after_death, fingerprint
from redelivery.core.message_history import RETURN
from redelivery.driver.connection.connection_ledger import VERDICT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.driver.twins import Twin

    from redelivery import Message

POLICIES = RedeliveryPolicyMap(
    default=RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=5.0, redelivery_delay=5.0)
)


@pytest.fixture
def ledger(tmp_path: Path) -> SqliteLedger:
    """Return a ledger that is not open."""
    return SqliteLedger(tmp_path / "ledger.db")


def die_over(ledger: SqliteLedger, *messages: Message) -> None:
    """Write the marks of a process that died with these messages open."""
    keys = [fingerprint(message._delivery) for message in messages]
    ledger.open(print)
    for key, entry in after_death([AttemptMark(key, 0, "running") for key in keys], {}, 0.0).items():
        ledger.end(None, key, entry, failed=False, keep=False)
    ledger.close(print)


def defers(_: Message) -> None:
    """Defer the message."""
    raise Defer(5)


def test_a_count_outlives_the_connection(twin: Twin, ledger: SqliteLedger) -> None:
    """The third failure of a message is its last, on whichever connection; the dead letter has its cause."""
    twin.broker.send("orders", "x")
    for count in range(3):
        connection = twin.connect(ledger=ledger, policies=POLICIES)
        consumer = twin.call(connection.consumer("orders"))
        message = twin.receive(consumer, 10)
        assert message is not None
        assert message.redelivery_count == count
        message.fail("no stock")
        if count == 2:
            assert message.outcome == "poisoned"
        twin.leave(connection)
    assert [letter.count for letter in twin.broker.dead_letters()] == [3]
    assert [one.cause for one in ledger.buried()] == ["no stock"]


def test_a_clock_that_is_set_back_to_1970_costs_no_count(twin: Twin, ledger: SqliteLedger) -> None:
    """A clock that is set back to 1970 between a failure and a deferral leaves a ledger that opens, with its count."""
    twin.broker.send("orders", "x")
    connection = twin.connect(ledger=ledger, policies=POLICIES)
    consumer = twin.call(connection.consumer("orders"))
    twin.receive(consumer, 10).fail("no stock")
    message = twin.receive(consumer, 10)
    offset, twin.clock._offset = twin.clock._offset, 10.0 - twin.clock.monotonic()
    twin.inside(message, defers)
    assert message.outcome == "deferred"
    twin.leave(connection)
    twin.clock._offset = offset
    again = twin.receive(twin.call(twin.connect(ledger=ledger, policies=POLICIES).consumer("orders")), 10)
    assert again is not None
    assert again.redelivery_count == 1


def test_without_a_ledger_it_begins_anew(twin: Twin) -> None:
    """Without a ledger the count begins anew in a new process, whatever the broker counts."""
    twin.broker.send("orders", "x")
    for _ in range(4):
        connection = twin.connect(policies=POLICIES)
        message = twin.receive(twin.call(connection.consumer("orders")), 10)
        assert message is not None
        assert message.redelivery_count <= 2
        twin.leave(connection)
    assert twin.broker.dead_letters() == []


def test_what_has_killed_its_process_too_often_is_poison(
    twin: Twin, ledger: SqliteLedger, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that killed its process too often is poison; no handler gets it, and log, DLQ and ledger say why."""
    twin.broker.send("orders", "killer")
    twin.broker.send("orders", "good")
    connection = twin.connect(ledger=ledger, policies=POLICIES)
    consumer = twin.call(connection.consumer("orders"))
    message = twin.receive(consumer)
    assert message is not None
    twin.leave(connection)
    ledger.open(print)
    entry = Entry(3, CRASH, 0.0, 0.0, suspect=True)
    ledger.end(None, fingerprint(message._delivery), entry, failed=False, keep=False)
    connection = twin.connect(ledger=ledger, policies=POLICIES)
    consumer = twin.call(connection.consumer("orders"))
    assert body_of(twin.receive(consumer)) == "good"
    assert [(letter.text, letter.cause) for letter in twin.broker.dead_letters()] == [("killer", "crash")]
    assert "given up (crash); poison" in caplog.text
    ledger.close(print)
    twin.leave(connection)
    assert [one.cause for one in ledger.buried()] == ["crash"]


def test_a_result_that_comes_too_late_leaves_a_greater_count(twin: Twin, ledger: SqliteLedger) -> None:
    """A late result of a lost connection does not lower the count of another consumer's failure."""
    twin.broker.send("orders", "x")
    connection = twin.connect(ledger=ledger, policies=POLICIES)
    message = twin.receive(twin.call(connection.consumer("orders")))
    assert message is not None
    key = fingerprint(message._delivery)
    twin.broker.cut()
    twin.advance(1)
    ledger.end(None, key, Entry(2, "elsewhere"), failed=True, keep=False)
    assert not message.fail("late")
    assert ledger.look_up(key, fresh=True) == Entry(2, "elsewhere")
    twin.leave(connection)


def test_a_suspect_runs_alone(twin: Twin, ledger: SqliteLedger) -> None:
    """A crash suspect runs exclusively: no other handler of the process runs meanwhile; then all go on."""
    for queue in ("a", "b"):
        for number in range(4):
            twin.broker.send(queue, f"{queue}{number}")
    connection = twin.connect(ledger=ledger, policies=POLICIES)
    consumer = twin.call(connection.consumer("a"))
    messages = [twin.receive(consumer) for _ in range(2)]
    twin.leave(connection)
    die_over(ledger, *(message for message in messages if message is not None))
    running: set[str] = set()
    beside: dict[str, set[str]] = {}
    lock = threading.Lock()

    def handle(message: Message) -> None:
        with lock:
            running.add(message.text)
            for text in running:
                beside.setdefault(text, set()).update(running - {text})
        with lock:
            running.discard(message.text)

    connection = twin.connect(ledger=ledger, policies=POLICIES)
    for queue in ("a", "b"):
        twin.listen(connection, queue, handle, workers=3)
    report = twin.run(connection, until_idle=0.05)
    assert (report.accepted, report.redelivered) == (8, 0)
    assert beside["a0"] == beside["a1"] == set()


def test_a_pulled_message_that_is_held_is_company(twin: Twin, ledger: SqliteLedger) -> None:
    """A crash suspect waits for a pulled message for a while, lets others go on, and runs when that is settled."""
    for number in range(3):
        twin.broker.send("orders", str(number))
    connection = twin.connect(ledger=ledger, policies=POLICIES)
    suspect = twin.receive(twin.call(connection.consumer("orders")))
    assert suspect is not None
    twin.leave(connection)
    die_over(ledger, suspect, suspect)
    ledger.open(print)
    ledger.end(None, fingerprint(suspect._delivery), Entry(suspect=True), failed=False, keep=False)
    connection = twin.connect(ledger=ledger, policies=POLICIES)
    others = twin.call(connection.consumer("others"))
    twin.broker.send("others", "held")
    held = twin.receive(others)
    assert held is not None
    consumer = twin.call(connection.consumer("orders"))
    assert twin.receive(consumer) is None  # it waits for its exclusive run
    later = twin.receive(consumer, 15)
    assert body_of(later) == "1"
    assert later is not None
    later.accept()
    held.accept()
    assert body_of(twin.receive(consumer)) == "0"
    assert twin.receive(consumer) is None  # its exclusive run goes on
    ledger.close(print)


def test_what_the_application_leaves_unsettled_is_not_charged(twin: Twin, ledger: SqliteLedger) -> None:
    """A message that is unsettled when its consumer closes has no open attempt, and is not charged later."""
    twin.broker.send("orders", "x")
    connection, other = (twin.connect(ledger=ledger, policies=POLICIES) for _ in range(2))
    message = twin.receive(twin.call(connection.consumer("orders")))
    assert message is not None
    assert ledger._marks is not None
    assert ledger._marks.open
    twin.leave(connection)
    assert not ledger._marks.open
    assert not message.accept()
    twin.leave(other)
    assert list(ledger.path.parent.glob("*-marks-*")) == []


def test_all_consumers_stop_when_the_ledger_fails(twin: Twin, ledger: SqliteLedger) -> None:
    """All consumers stop when the ledger fails, also waiting ones; no attempt is uncounted."""
    connection = twin.connect(ledger=ledger, policies=POLICIES)
    consumer = twin.call(connection.consumer("orders"))
    twin.broker.send("orders", "x")
    ledger.fail(OSError(28, "No space left on device"))
    with pytest.raises(LedgerError, match="its disk is full"):
        twin.receive(consumer)
    assert twin.broker.depth("orders") == 1
    with pytest.raises(LedgerError, match="its disk is full"):
        twin.receive(consumer, 5)


def test_a_lost_connection_charges_nothing_and_keeps_the_count(twin: Twin, ledger: SqliteLedger) -> None:
    """A lost connection charges nothing and keeps the count; the redelivered message waits for the old handler."""
    twin.broker.send("orders", "x")
    connection = twin.connect(ledger=ledger, policies=POLICIES)
    consumer = twin.call(connection.consumer("orders"))
    message = twin.receive(consumer)
    assert message is not None
    twin.broker.cut()
    assert twin.receive(consumer, 1) is None
    message.fail("late")
    again = twin.receive(consumer, 10)
    assert again is not None
    assert again.redelivery_count == 1
    again.accept()
    twin.leave(connection)
    ledger.open(print)
    assert ledger.look_up(fingerprint(again._delivery)) is None
    ledger.close(print)


def test_both_ledgers_contradict_each_other(twin: Twin, ledger: SqliteLedger) -> None:
    """A ledger in the URI and one as an argument are refused."""
    with pytest.raises(ValueError, match=r"ledger= and redelivery.ledger in the URI: give one of them"):
        twin.make("?redelivery.ledger=sqlite:///x.db", ledger=ledger)


@pytest.mark.parametrize("ends", ["time", "close", "no answer", "outage"])
def test_a_verdict_stays_until_the_original_is_acknowledged(
    twin: Twin, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """The ledger's entry of a dead letter stays until the original is acknowledged, in case the process dies before."""
    able = replace(
        redelivery_memory.CAPABILITIES,
        poison_persistent=False,
        poison_non_persistent=False,
        forward="confirmed",
    )
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    twin.broker.send("orders", "x")
    connection = twin.connect(ledger=ledger, policies=POLICIES)
    message = twin.receive(twin.call(connection.consumer("orders")), 10)
    assert message is not None
    key = fingerprint(message._delivery)
    message.poison("no good")
    twin.advance(0.5)
    assert len(twin.broker.dead_letters()) == 1
    found = ledger.look_up(key, fresh=True)
    assert found is not None
    assert found.poisoned
    if ends == "outage":
        twin.broker.refuse_connections()
        twin.broker.cut()
        twin.advance(4 * VERDICT)
        twin.broker.accept_connections()
        twin.advance(RETURN - 1)
        assert ledger.look_up(key, fresh=True) is not None
        twin.advance(120)
        assert ledger.look_up(key, fresh=True) is None
        twin.leave(connection)
    elif ends == "time":
        twin.advance(VERDICT)
        assert ledger.look_up(key, fresh=True) is None
        twin.leave(connection)
    else:
        if ends == "no answer":
            # The broker reads nothing more: it may not have the acknowledgement.
            plain = redelivery_memory.adapter.MemoryAdapter.close
            monkeypatch.setattr(
                redelivery_memory.adapter.MemoryAdapter,
                "close",
                lambda adapter, timeout: plain(adapter, timeout) and False,
            )
        twin.leave(connection)
        ledger.open(print)
        assert (ledger.look_up(key, fresh=True) is None) == (ends == "close")
        ledger.close(print)
