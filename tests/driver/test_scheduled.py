"""Redelivery by the broker, on threads and on a loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.driver.twins import body_of

import redelivery
import redelivery_memory.adapter
from redelivery import AdapterError, ConfigurationError, RedeliveryPolicy, RedeliveryPolicyMap, SqliteLedger
from redelivery.core.capabilities import Capabilities
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.destination import Destination
from redelivery.core.ledger_entry import AttemptMark, after_death, fingerprint
from redelivery.driver.consumer.plan import planned
from redelivery_memory.server import MemoryServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.driver.twins import Twin

    from redelivery.core.capabilities import Capabilities as Able
    from redelivery.core.outgoing import Outgoing
    from redelivery.driver.arguments import ConsumerOptions

BY_BROKER = "?redelivery.scheduler=broker"
POLICIES = RedeliveryPolicyMap(
    default=RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=5.0, redelivery_delay=60.0)
)


@pytest.fixture(params=["atomic", "native"], autouse=True)
def reschedule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the capability: the broker holds a copy, which it takes in a transaction, or the message itself."""
    able = replace(redelivery_memory.adapter.CAPABILITIES, reschedule=request.param)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", able)
    return str(request.param)


def test_the_broker_holds_what_waits(twin: Twin) -> None:
    """No message is parked or unsettled here; redeliveries are on time, and the dead letter has all properties."""
    sent = twin.broker.send("orders", "bad", headers={"n": 1})
    connection = twin.connect(BY_BROKER + "&redelivery.maxParked=1", policies=POLICIES)
    consumer = twin.call(connection.consumer("orders"))
    for count, delay in enumerate((0.0, 5.0, 60.0)):
        if delay:
            twin.advance(delay - 0.01)
            assert twin.receive(consumer) is None
            twin.advance(0.01)
        message = twin.receive(consumer)
        assert message is not None
        assert (message.redelivery_count, message.headers["n"]) == (count, 1)
        message.fail(f"cause {count}")
        assert consumer.parked == 0
        assert twin.broker.depth("orders") == 0
    assert connection.report() == redelivery.Report(redelivered=2, poisoned=1)
    (letter,) = twin.broker.dead_letters()
    assert (letter.count, letter.cause, letter.original_id) == (3, "cause 2", sent)
    assert {name for name in letter.headers if not name.startswith("redelivery")} == {"n"}


def test_what_waits_outlives_its_consumer(twin: Twin) -> None:
    """The next connection continues the count; one with `scheduler=client` ignores it."""
    twin.broker.send("orders", "bad")
    for count, options in ((0, BY_BROKER), (1, BY_BROKER), (0, "")):
        connection = twin.connect(options, policies=POLICIES)
        message = twin.receive(twin.call(connection.consumer("orders")), 100)
        assert message is not None
        assert message.redelivery_count == count
        if options:
            message.fail("no")
        twin.leave(connection)


def test_a_redriven_message_starts_afresh(twin: Twin) -> None:
    """A redriven message has no properties that a consumer would count by."""
    twin.broker.send("orders", "bad")
    connection = twin.connect(BY_BROKER, policies=POLICIES)
    consumer = twin.call(connection.consumer("orders"))
    for _ in range(3):
        message = twin.receive(consumer, 100)
        assert message is not None
        message.fail("no")
    with redelivery.dead_letters(twin.broker.uri, clock=twin.clock) as tools:
        assert tools.redrive().redriven == 1
    message = twin.receive(consumer, 10)
    assert message is not None
    assert message.redelivery_count == 0
    assert {"redeliveryCopy", "redeliveryDue", "redeliveryCount"}.isdisjoint(message.headers)
    message.accept()


def test_a_dead_letter_is_not_taken_for_a_copy(twin: Twin) -> None:
    """A consumer of the DLQ begins with the first delivery, whatever properties its dead letters have."""
    twin.broker.send("orders", "bad")
    connection = twin.connect(BY_BROKER, policies=POLICIES)
    consumer = twin.call(connection.consumer("orders"))
    for _ in range(3):
        message = twin.receive(consumer, 100)
        assert message is not None
        message.fail("no")
    other = twin.connect(BY_BROKER + "&redelivery.deadLetterDestination=graves", policies=POLICIES)
    letter = twin.receive(twin.call(other.consumer("DLQ")), 10)
    assert letter is not None
    assert (letter.headers["redeliveryCount"], letter.redelivery_count) == ("3", 0)


def test_a_ledger_charges_the_death_over_a_copy(twin: Twin, tmp_path: Path) -> None:
    """The copy has the count, the ledger the crash; the limit is for both together."""
    ledger = SqliteLedger(tmp_path / "ledger.db")
    twin.broker.send("orders", "killer")
    connection = twin.connect(BY_BROKER, policies=POLICIES, ledger=ledger)
    message = twin.receive(twin.call(connection.consumer("orders")), 100)
    assert message is not None
    message.fail("no")
    twin.leave(connection)
    for count in (1, 2):
        connection = twin.connect(BY_BROKER, policies=POLICIES, ledger=ledger)
        message = twin.receive(twin.call(connection.consumer("orders")), 100)
        assert message is not None
        assert message.redelivery_count == count
        message.release()
        key = fingerprint(message._delivery)
        twin.leave(connection)
        ledger.open(print)
        for dead, entry in after_death([AttemptMark(key, count, "running")], {}, twin.clock.time()).items():
            ledger.end(None, dead, entry, failed=False, keep=False)
        ledger.close(print)
    connection = twin.connect(BY_BROKER, policies=POLICIES, ledger=ledger)
    assert twin.receive(twin.call(connection.consumer("orders")), 100) is None
    assert [(letter.count, letter.cause) for letter in twin.broker.dead_letters()] == [(3, "crash")]


REFUSED: list[tuple[str, ConsumerOptions, str]] = [
    ("topic://prices", {}, "a topic has other subscribers"),
    ("temp-queue://answers", {}, "may be gone before"),
    ("native:///queue/x", {}, "consume it as queue://"),
    ("orders.>", {}, "a consumer for each queue"),
    ("orders", {"ordering": "blocking"}, "ordering=blocking cannot be kept"),
    ("orders", {"ordering": "per_group"}, "ordering=per_group cannot be kept"),
    ("orders", {"selector": "a = 1"}, "need not match"),
]


def test_what_a_copy_cannot_do_is_refused(twin: Twin) -> None:
    """A consumer that cannot use delayed copies, or a transacted session, is refused with the reason."""
    connection = twin.connect(BY_BROKER)
    for destination, options, words in REFUSED:
        if "selector" in options:  # memory:// has no selectors
            continue
        with pytest.raises(ConfigurationError, match="redelivery.scheduler=broker: .*" + words):
            twin.call(connection.consumer(destination, **options))
    session = connection.session("transacted")
    with pytest.raises(ConfigurationError, match="transacted session"):
        twin.call(session.consumer("orders"))
    able = Capabilities("clever", reschedule="atomic")
    for destination, options, words in REFUSED:
        with pytest.raises(ConfigurationError, match=words):
            planned(1, Destination.parse(destination), options, connection.settings, able)
    with pytest.raises(ConfigurationError, match="simple cannot hold a message back"):
        planned(1, Destination.parse("orders"), {}, connection.settings, Capabilities("simple"))


def test_a_policy_longer_than_the_broker_lets_hold_is_taken(twin: Twin) -> None:
    """A policy longer than the broker's time limit is accepted if the broker itself holds the message."""
    policies = RedeliveryPolicyMap(default=RedeliveryPolicy(initial_redelivery_delay=86_400))
    settings = twin.make(BY_BROKER, policies=policies).settings
    able = Capabilities("a", max_hold=1.0, reschedule="atomic")
    planned(1, Destination.parse("orders"), {}, settings, able)
    planned(1, Destination.parse("DLQ"), {}, settings, able, redrive=Redrive("run", "queue://orders"))


def able(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> Able:
    found = replace(redelivery_memory.adapter.CAPABILITIES, **changed)
    monkeypatch.setattr(redelivery_memory.adapter, "CAPABILITIES", found)
    return found


def delaying(monkeypatch: pytest.MonkeyPatch, change: Callable[[float], float]) -> None:
    """Make the broker hold messages for the time that `change` returns."""
    plain = MemoryServer._take

    def take(self: MemoryServer, message: Outgoing) -> Any:
        return plain(self, replace(message, delay=None if message.delay is None else change(message.delay)))

    monkeypatch.setattr(MemoryServer, "_take", take)


def test_it_is_proved_before_a_consumer_starts(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that the broker holds for a second proves it, once for each connection; nothing stays on the broker."""
    able(monkeypatch, reschedule_proof="arrival", selectors=False)
    twin.broker.send("orders", "x")
    connection = twin.connect(BY_BROKER)
    began = twin.clock.monotonic()
    first = twin.call(connection.consumer("orders"), over=5)
    assert twin.clock.monotonic() - began >= 1.0
    proved = twin.clock.monotonic()
    twin.call(connection.consumer("others"))
    assert twin.clock.monotonic() == proved
    assert body_of(twin.receive(first, 1)) == "x"
    assert [step.action for step in twin.broker.history() if "probe" in step.destination] == [
        "sent", "delivered", "accepted",
    ]  # fmt: skip


LACKING: list[tuple[str, Callable[[float], float], str]] = [
    ("arrival", lambda _: 0.0, "did not hold a message back for 1 s.*: it needs patience"),
    ("held", lambda _: 0.0, "did not hold a message back for 1 s.*: it needs patience"),
    ("arrival", lambda _: 1000.0, "did not deliver .* within 20 s after its delay of 1 s: it needs patience"),
]


def test_a_broker_that_cannot_is_found_out(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that does not hold messages back is refused before the first dispatch, with what it needs."""
    for proof, change, words in LACKING:
        with monkeypatch.context() as patch:
            able(patch, reschedule_proof=proof, selectors=False, reschedule_needs="patience")
            delaying(patch, change)
            twin.broker.send("orders", "x")
            connection = twin.connect(BY_BROKER)
            with pytest.raises(AdapterError, match=words):
                twin.call(connection.consumer("orders"), over=30)
            assert not [
                one
                for one in twin.broker.history()
                if one.action == "delivered" and one.destination == "queue://orders"
            ]
    able(monkeypatch, reschedule_proof="held", selectors=False)
    delaying(monkeypatch, lambda delay: delay + 30.0)
    twin.call(twin.connect(BY_BROKER).consumer("orders"), over=5)


def test_a_refused_probe_says_so(twin: Twin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused probe names its queue, for the permissions."""
    able(monkeypatch, reschedule_proof="arrival", selectors=False)
    connection = twin.connect(BY_BROKER)
    twin.broker.refuse_sends(1)
    with pytest.raises(AdapterError, match=r"the probe with queue://orders\.redelivery-probe\.\w+ failed"):
        twin.call(connection.consumer("orders"), over=5)
