"""Faults that are planted in the engine, one at a time: the simulator finds each of them."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulator.explore import breaks
from tests.simulator.process import SimLedger
from tests.simulator.world import Case

from redelivery.core.broker_redelivery import BrokerRedelivery
from redelivery.core.commands import Accept, AcceptUnseen
from redelivery.core.dispatch_order import Blocking, PerGroup
from redelivery.core.engine import Engine
from redelivery.core.events import Confirmed
from redelivery.core.ledger_engine import LedgerEngine
from redelivery.core.ledger_entry import fingerprint
from redelivery.core.message_history import MessageHistory
from redelivery.core.pending_confirms import PendingConfirms
from redelivery.core.released_here import ReleasedHere
from redelivery.core.returns import release

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.consumer_state import ConsumerState
    from redelivery.core.delivery import Record

    Fault = Callable[[pytest.MonkeyPatch], None]

MOST = 4000
ALL: Any = ("ok", "fail", "poison")
CUTS = {"cut": 3}
STRONG = Case("artemis-stomp", "AB", outcomes=ALL, budget=CUTS)
WEAK = Case("rabbitmq-amqp", "AA'B", outcomes=ALL, budget=CUTS)
NATIVE = Case("classic-amqp", "AB", outcomes=ALL, budget={"cut": 1, "close": 1, "kill": 1})
TWO = Case("brokerj-amqp", "AtA'tB", consumers=2, budget=CUTS)
LEDGER = Case("artemis-amqp", "AtA'tB", ledger=True, outcomes=ALL, budget={"cut": 1, "crash": 2})


def accepted_poison(patch: pytest.MonkeyPatch) -> None:
    """Accept poison messages."""
    plain = PendingConfirms.begin

    def begin(self: PendingConfirms, delivery: Any, record: Record, now: float) -> Any:
        if record.count < 2:
            return plain(self, delivery, record, now)
        self._settle(delivery)
        return (Accept((delivery,)),)

    patch.setattr(PendingConfirms, "begin", begin)


def taken_for_confirmed(patch: pytest.MonkeyPatch) -> None:
    """Accept the original although its copy was refused."""
    plain = PendingConfirms.confirmed
    patch.setattr(PendingConfirms, "confirmed", lambda my, own, now: plain(my, Confirmed(own.delivery), now))


def remembering(**lost: Any) -> Fault:
    """Lose a part of each record that is kept."""

    def fault(patch: pytest.MonkeyPatch) -> None:
        plain = MessageHistory.remember

        def remember(self: MessageHistory, delivery: Any, record: Record, *, runs: bool = False) -> None:
            for name, value in lost.items():
                setattr(record, name, value)
            plain(self, delivery, record, runs=runs)

        patch.setattr(MessageHistory, "remember", remember)

    return fault


def closing(*, verdicts: bool) -> Fault:
    """Forget verdicts, or all unsettled messages, when a consumer closes."""

    def fault(patch: pytest.MonkeyPatch) -> None:
        plain = MessageHistory.connection_lost

        def lost(self: Any, consumer: int, done: Any, open_: Any, run: Any, now: float, *of: Any) -> None:
            plain(self, consumer, done, () if now == inf and not verdicts else open_, run, now, *of)
            if now == inf and verdicts:
                self._verdicts.clear()

        patch.setattr(MessageHistory, "connection_lost", lost)

    return fault


def charged_for_losses(patch: pytest.MonkeyPatch) -> None:
    """Charge the broker's count of prefetched messages."""
    plain = MessageHistory.remember

    def remember(self: MessageHistory, delivery: Any, record: Record, *, runs: bool = False) -> None:
        if record.count or record.due is not None or record.poisoned:
            plain(self, delivery, record, runs=runs)

    patch.setattr(MessageHistory, "remember", remember)


def never_consumed(patch: pytest.MonkeyPatch) -> None:
    """Keep a record that an arrival has taken."""
    plain = MessageHistory.known

    def known(self: MessageHistory, delivery: Any, age: float) -> Record | None:
        record = plain(self, delivery, age)
        if record is not None and record.copy is not delivery:
            self._records.add(delivery.key, record, self._limit)
        return record

    patch.setattr(MessageHistory, "known", known)


def not_awaited(patch: pytest.MonkeyPatch) -> None:
    """Dispatch another consumer's message while that one's handler has it."""

    def looked(self: MessageHistory, delivery: Any) -> bool:
        record = delivery.record
        if record is not None and record.copy is delivery:
            self._part(record)
            delivery.record = record.apart()
        return True

    patch.setattr(MessageHistory, "looked", looked)


def without_its_record(patch: pytest.MonkeyPatch) -> None:
    """Release a message, and forget its record."""

    def forgetting(state: ConsumerState, delivery: Any) -> Any:
        delivery.record = None
        return release(state, delivery)

    for module in ("engine", "ledger_engine", "returns"):
        patch.setattr(f"redelivery.core.{module}.release", forgetting)


def without_proof(patch: pytest.MonkeyPatch) -> None:
    """Use an id without a time as proof."""

    def proof(_: MessageHistory, delivery: Any) -> Any:
        digest = None if delivery.strong else delivery.digest()
        return None if delivery.key is None else (delivery.key, digest)

    patch.setattr(MessageHistory, "_proof", proof)


def without_a_mark(patch: pytest.MonkeyPatch) -> None:
    """Use the broker's id as proof without its flag."""
    plain = MessageHistory.accepted_before

    def before(self: MessageHistory, delivery: Any, age: float, *, marks: bool) -> bool:
        if delivery.strong:
            return self._doubts.take(delivery.key, None)
        return plain(self, delivery, age, marks=marks)

    patch.setattr(MessageHistory, "accepted_before", before)


def uncounted(patch: pytest.MonkeyPatch) -> None:
    """Accept unseen without counting it."""

    def accept(self: Engine, delivery: Any, why: str, now: float) -> Any:
        return (*self._accept(delivery, now), AcceptUnseen(delivery, why))

    patch.setattr(Engine, "_accept_unseen", accept)


def unlogged(patch: pytest.MonkeyPatch) -> None:
    """Accept unseen without the command for the log."""

    def accept(self: Engine, delivery: Any, why: str, now: float) -> Any:
        self.state.counts.deduplicated += bool(why)
        return self._accept(delivery, now)

    patch.setattr(Engine, "_accept_unseen", accept)


def forgetful_ledger(patch: pytest.MonkeyPatch) -> None:
    """Write nothing about a failure."""

    def clear(self: SimLedger, command: Any) -> None:
        self.marks.pop(command.delivery, None)
        self.entries.pop(fingerprint(command.delivery), None)

    patch.setattr(SimLedger, "clear", clear)


def charging_nobody(patch: pytest.MonkeyPatch) -> None:
    """Ignore the messages that a dead process had open."""
    patch.setattr(SimLedger, "died", lambda self, _: self.marks.clear())


def beside_others(patch: pytest.MonkeyPatch) -> None:
    """Run crash suspects beside other handlers."""

    def begun(self: LedgerEngine, delivery: Any) -> Any:
        suspects = self.state.suspects
        found = suspects.pop() if suspects else delivery
        return plain(self, found)

    plain, known = LedgerEngine._begun, LedgerEngine._known

    def unsuspected(self: LedgerEngine, delivery: Any, entry: Any, now: float) -> Any:
        if entry is not None:
            object.__setattr__(entry, "suspect", False)
        return known(self, delivery, entry, now)

    patch.setattr(LedgerEngine, "_begun", begun)
    patch.setattr(LedgerEngine, "_known", unsuspected)


def passing(*, ahead: bool) -> Fault:
    """Dispatch a later message before a parked one, or a redelivered one before those that arrived earlier."""

    def fault(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(Blocking, "_ahead", lambda self: ahead and bool(self._ready))

    return fault


def waiting_for_others(patch: pytest.MonkeyPatch) -> None:
    """Dispatch nothing fresh while a message waits for its redelivery."""
    patch.setattr(ReleasedHere, "room", lambda *_: False)


def leaderless(patch: pytest.MonkeyPatch) -> None:
    """Continue a group while a handler has its head from a lost connection."""
    patch.setattr(PerGroup, "occupy", lambda *_: None)


def uncounted_copies(patch: pytest.MonkeyPatch) -> None:
    """Ignore the failures noted on a delayed copy."""
    plain = BrokerRedelivery.record_of

    def record_of(self: BrokerRedelivery, *about: Any) -> Record | None:
        record = plain(self, *about)
        if record is not None:
            record.count = 0
        return record

    patch.setattr(BrokerRedelivery, "record_of", record_of)


def copying(**wrong: Any) -> Fault:
    """Send delayed copies with a wrong value in the record."""

    def fault(patch: pytest.MonkeyPatch) -> None:
        plain = BrokerRedelivery.command

        def command(self: BrokerRedelivery, delivery: Any, record: Record, *others: Any) -> Any:
            for name, value in wrong.items():
                setattr(record, name, value)
            return plain(self, delivery, record, *others)

        patch.setattr(BrokerRedelivery, "command", command)

    return fault


def for_ever(patch: pytest.MonkeyPatch) -> None:
    """Carry out an old verdict on a message that was put back, however old the connection is."""
    patch.setattr("redelivery.core.message_history.RETURN", inf)


def anywhere(patch: pytest.MonkeyPatch) -> None:
    """Trust the ids of one broker at another."""
    plain = MessageHistory.connected
    patch.setattr(MessageHistory, "connected", lambda self, _, epoch: plain(self, "anywhere", epoch))


BLOCKING = Case("rabbitmq-stomp", "AtA'tB", "blocking", workers=1, outcomes=("ok", "fail", "release"))
GROUPS = Case("artemis-amqp", "AB", "per_group", outcomes=("ok", "fail"), budget=CUTS)
BACK = Case("classic-stomp", "ABC", outcomes=("poison",), budget={"cut": 1, "redrive": 2})
COPIES = Case("classic-stomp", "ABC", scheduled=True, budget=CUTS)
MOVING = Case("artemis-stomp", "AB", budget={"cut": 3, "move": 1})


@pytest.mark.parametrize(
    ("fault", "case", "kinds"),
    [
        pytest.param(fault, case, kinds, id=name)
        for name, fault, case, kinds in (
            ("poison is accepted", accepted_poison, WEAK, "unseen"),
            ("a refused copy is taken for confirmed", taken_for_confirmed,
             Case("rabbitmq-stomp", "AB", outcomes=ALL, budget={"refuse": 1}), "loss"),
            ("a due time is dropped by a cut", remembering(due=None), STRONG, "early"),
            ("a count is dropped by a cut", remembering(count=0), STRONG, "verdict limit"),
            ("a verdict is dropped by a cut", remembering(poisoned=False), NATIVE, "verdict"),
            ("verdicts are dropped when a consumer closes", closing(verdicts=True), NATIVE, "verdict"),
            ("all is dropped when a consumer closes", closing(verdicts=False), NATIVE, "verdict early"),
            ("the broker's count is believed", charged_for_losses,
             Case("classic-amqp", "AtA'tB", budget=CUTS), "false dead letter"),
            ("a record is used twice", never_consumed,
             Case("rabbitmq-stomp", "AA'", budget=CUTS), "false dead letter early"),
            ("another consumer's handler is not waited for", not_awaited, TWO, "overlap"),
            ("a release washes off the charge", without_its_record,
             Case("artemis-amqp", "AtA'tB", outcomes=("ok", "fail", "release")), "verdict early"),
            ("an id without a time is proof", without_proof, WEAK, "unproven loss"),
            ("no mark is asked for", without_a_mark, STRONG, "unproven"),
            ("what is accepted unseen is not counted", uncounted, STRONG, "uncounted"),
            ("what is accepted unseen is not logged", unlogged, STRONG, "unseen"),
            ("a ledger forgets failures", forgetful_ledger, LEDGER, "verdict early limit beside"),
            ("a ledger forgets who was open", charging_nobody, LEDGER, "verdict early beside"),
            ("a suspect runs beside others", beside_others, LEDGER, "beside"),
            ("a later message passes a parked one", passing(ahead=True), BLOCKING, "order"),
            ("a parked message passes an earlier one", passing(ahead=False), BLOCKING, "order"),
            ("a group does not wait for its head", leaderless, GROUPS, "order"),
            ("others wait for what fails", waiting_for_others,
             Case("artemis-amqp", "ABC", outcomes=("ok", "fail")), "idle"),
            ("a verdict is remembered for ever", for_ever, BACK, "false dead letter"),
            ("a copy is not counted", uncounted_copies, COPIES, "verdict limit"),
            ("a copy is not delayed", copying(returns=0.0), COPIES, "early"),
            ("a copy that is sent again has another name", copying(name=None), COPIES, "copy"),
            ("a refused delayed copy is taken for confirmed", taken_for_confirmed,
             replace(COPIES, budget={"refuse": 2}), "loss stuck"),
            ("ids of another broker are believed", anywhere, MOVING, "loss false dead letter"),
        )
    ],
)  # fmt: skip
def test_it_is_found(monkeypatch: pytest.MonkeyPatch, fault: Fault, case: Case, kinds: str) -> None:
    """Each fault breaks an invariant that names it."""
    fault(monkeypatch)
    breaks(case, kinds, MOST)
