"""Faults that are planted in the support of RabbitMQ 4.3's quorum queues, one at a time: the simulator finds each."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulator.explore import breaks, wander
from tests.simulator.quorum import QuorumBroker
from tests.simulator.world import Case

from redelivery.core.broker_redelivery import BrokerRedelivery
from redelivery.core.commands import Reschedule
from redelivery.core.message_history import MessageHistory, Rescheduled
from redelivery.core.pending_confirms import PendingConfirms
from redelivery.core.returns import taken_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.consumer_state import ConsumerState
    from redelivery.core.delivery import Record

    Fault = Callable[[pytest.MonkeyPatch], None]

MOST = 4000
HELD = Case("rabbitmq4-quorum", "ABC", scheduled=True, budget={"cut": 2, "die": 1})
LATE = Case("rabbitmq4-quorum", "ABC", outcomes=("ok", "fail"), budget={"cut": 1, "takeback": 3})
EQUAL = replace(HELD, messages="AA*", outcomes=("ok", "fail"), budget={"cut": 3})


def noting(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Fault:
    """Write other notes on a message to be delayed."""

    def fault(patch: pytest.MonkeyPatch) -> None:
        plain = BrokerRedelivery.command

        def command(self: BrokerRedelivery, *about: Any) -> Any:
            found = plain(self, *about)
            return replace(found, notes=change(dict(found.notes))) if isinstance(found, Reschedule) else found

        patch.setattr(BrokerRedelivery, "command", command)

    return fault


def due_alone(notes: dict[str, Any]) -> dict[str, Any]:
    """Leave the count out."""
    return {**notes, "redeliveryCount": "0"}


def twice(notes: dict[str, Any]) -> dict[str, Any]:
    """Count the delay as an attempt, too."""
    return {**notes, "redeliveryCount": str(int(notes["redeliveryCount"]) + 1)}


def believed_late(patch: pytest.MonkeyPatch) -> None:
    """Use the result of a handler whose message was taken back as one of the present connection."""

    def take(state: ConsumerState, deliveries: Any) -> Any:
        commands = taken_back(state, deliveries)
        for delivery in deliveries:
            delivery.epoch = state.epoch
        return commands

    patch.setattr("redelivery.core.engine.taken_back", take)


def unsettled(patch: pytest.MonkeyPatch) -> None:
    """Do not settle deliveries that the broker has taken back."""

    def settle_taken(self: QuorumBroker) -> None:
        consumer, gone = self.notices.pop(0)
        for delivery in gone:
            delivery.final = delivery.final or "outcome"
        self.settled.append((consumer, gone))

    patch.setattr(QuorumBroker, "settle_taken", settle_taken)


def unremembered(patch: pytest.MonkeyPatch) -> None:
    """Count each settlement as read."""
    patch.setattr(Rescheduled, "add", lambda *_: None)


def begun_at_once(patch: pytest.MonkeyPatch) -> None:
    """Dispatch messages that arrive early."""
    patch.setattr("redelivery.core.engine.EARLY", 1e9)


def uncounted(patch: pytest.MonkeyPatch) -> None:
    """Ignore the broker's count."""
    plain = BrokerRedelivery.record_of

    def record_of(self: BrokerRedelivery, delivery: Any, most: int, offset: float, *_: Any) -> Record | None:
        return plain(self, delivery, most, offset, None)

    patch.setattr(BrokerRedelivery, "record_of", record_of)


def counted_with_a_ledger(patch: pytest.MonkeyPatch) -> None:
    """Add the broker's count to the ledger's."""
    plain = BrokerRedelivery.record_of

    def record_of(self: BrokerRedelivery, delivery: Any, most: int, offset: float, *_: Any) -> Record | None:
        return plain(self, delivery, most, offset, delivery.broker_count)

    patch.setattr(BrokerRedelivery, "record_of", record_of)


def each_for_itself(patch: pytest.MonkeyPatch) -> None:
    """Remember releases in each consumer only, although another one may get the message."""
    plain, seeded, lost = BrokerRedelivery.gave_back, BrokerRedelivery.seeded, MessageHistory.lost
    own: dict[tuple[MessageHistory, int], MessageHistory] = {}

    def gave_back(history: MessageHistory, command: Reschedule, *about: Any) -> None:
        plain(own.setdefault((history, command.delivery.consumer), MessageHistory()), command, *about)

    def seed(self: BrokerRedelivery, state: ConsumerState, *about: Any) -> Record | None:
        mine = own.setdefault((state.history, state.consumer), MessageHistory())
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(state.history, "rescheduled", mine.rescheduled)
            return seeded(self, state, *about)

    def lose(self: MessageHistory, now: float, epoch: int, age: float) -> None:
        lost(self, now, epoch, age)
        for each in (mine for (shared, _), mine in own.items() if shared is self):
            for key, record in each.rescheduled.lost(now):
                self._records.add(key, record, 100)

    patch.setattr(BrokerRedelivery, "gave_back", staticmethod(gave_back))
    patch.setattr(BrokerRedelivery, "seeded", seed)
    patch.setattr(MessageHistory, "lost", lose)


def taken_for_read(patch: pytest.MonkeyPatch) -> None:
    """Count a settlement as read, whatever arrives."""
    patch.setattr(Rescheduled, "arrived", lambda *_: None)


def no_connections_epoch(patch: pytest.MonkeyPatch) -> None:
    """Mark taken-back deliveries by the epoch that the engine has without a connection."""
    patch.setattr("redelivery.core.returns.NONE", -1)


def forgotten(patch: pytest.MonkeyPatch) -> None:
    """Forget the records of messages that the broker has taken back."""
    plain = MessageHistory.gave_back

    def gave_back(self: MessageHistory, delivery: Any, record: Record | None = None) -> None:
        plain(self, delivery, None if delivery.state == "lost" else record)

    patch.setattr(MessageHistory, "gave_back", gave_back)


def not_given_back(patch: pytest.MonkeyPatch) -> None:
    """Ignore delayed messages when an equal message was accepted."""
    plain = PendingConfirms._gave_back

    def gave_back(self: PendingConfirms, *about: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(MessageHistory, "gave_back", lambda *_: None)
            return plain(self, *about)

    patch.setattr(PendingConfirms, "_gave_back", gave_back)


@pytest.mark.parametrize(
    ("fault", "case", "kinds"),
    [
        pytest.param(fault, case, kinds, id=name)
        for name, fault, case, kinds in (
            ("notes do not count", noting(due_alone), HELD, "count limit"),
            ("a wait is counted too", noting(twice), HELD, "false dead letter count"),
            ("a note without a due time", noting(lambda _: {}), replace(HELD, skew=2.0), "early"),
            ("a late result is believed", believed_late, LATE, "settled twice"),
            ("what was taken back is not settled", unsettled, LATE, "stuck"),
            ("a lost settlement is not remembered", unremembered, HELD, "early"),
            ("what comes early is begun", begun_at_once, replace(HELD, skew=2.0), "early"),
            ("the broker's count is not read", uncounted, replace(HELD, outcomes=("ok", "fail", "defer")), "count"),
            ("a ledger counts, and the broker", counted_with_a_ledger,
             replace(HELD, ledger=True, outcomes=("ok", "fail", "defer"), budget={"cut": 3, "crash": 1}), "early"),
            ("each consumer remembers what it gave back", each_for_itself,
             replace(HELD, consumers=2, outcomes=("ok", "fail", "poison"), budget={"cut": 3}), "verdict early"),
            ("a settlement is taken for read", taken_for_read,
             replace(HELD, budget={"takeback": 2, "cross": 1}), "early"),
            ("a connection is taken for none", no_connections_epoch, LATE, "epoch"),
            ("what was taken back is forgotten", forgotten, LATE, "early"),
            ("what is held back is no evidence", not_given_back, replace(EQUAL, messages="AtAt*"), "loss"),
        )
    ],
)  # fmt: skip
def test_it_is_found(monkeypatch: pytest.MonkeyPatch, fault: Fault, case: Case, kinds: str) -> None:
    """Each fault breaks an invariant that names it."""
    fault(monkeypatch)
    breaks(case, kinds, MOST)


@pytest.mark.ci("all schedules of small cases without a fault: 0.7 s")
@pytest.mark.parametrize("case", [HELD, replace(HELD, skew=-2.0), LATE, EQUAL])
def test_nothing_is_found_without_them(case: Case) -> None:
    """The correct library breaks no invariant in these cases."""
    for seed in range(150):
        assert wander(case, random.Random(seed))[0] is None
