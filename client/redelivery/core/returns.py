"""Return of deliveries to the broker: released or kept here by us, or taken back by the broker.

Functions of the consumer's state. A delivery is released if the broker can take it, and otherwise kept here until the
consumer closes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.commands import Release, TookBack
from redelivery.core.delivery import Record
from redelivery.core.transitions import enter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.commands import Command
    from redelivery.core.consumer_state import ConsumerState
    from redelivery.core.delivery import Delivery

__all__ = ["drained", "paused", "release", "release_fresh", "release_withheld", "taken_back"]


def release(state: ConsumerState, delivery: Delivery) -> Sequence[Command]:
    """Release a delivery if the broker can; otherwise keep it until the consumer closes, which gives it back.

    It is also kept once nothing is dispatched any more, if credit cannot be withdrawn: it would return at once.
    """
    able, record = state.capabilities, delivery.record
    waited = record is not None and record.copy is delivery
    if record is not None and waited:
        # The handler that it has waited for keeps the record.
        state.history.let_wait(record)
        record = None
    if able is not None and able.release and (able.flow or not state.gate.closed):
        enter(delivery, "settled")
        state.flow.settled += 1
        record = Record() if delivery.record is None and able.counts and not waited else record
        if record is not None and able.release_counts:
            record.released += 1
        # A release removes neither charge nor delay; one that is lost charges nothing.
        state.history.gave_back(delivery, record)
        state.history.source.released(delivery, record)
        return (Release((delivery,)),)
    state.released.keep(delivery)
    return ()


def release_fresh(state: ConsumerState, *, late: bool = False) -> list[Command]:
    """Release messages that were never dispatched and may not be now: another process may be able to handle them.

    `late`: they arrived after the credit was withdrawn; release only as many as were on their way then. A broker
    that sends more (Classic 6.1.7, for released messages) would send them again and again.

    Only if a release is not counted and credit can be withdrawn; otherwise they would return at once. A schedule
    that keeps an order releases none: the messages after a parked one must stay behind it.
    """
    able, flow = state.capabilities, state.flow
    commands: list[Command] = []
    if able is None or not (able.flow and able.release) or able.release_counts:
        return commands
    keep = state.gate.wanted
    if late:
        keep = max(keep, state.schedule.ready() - flow.late)
    withdrawn = state.schedule.withdrawn(keep)
    if late:
        flow.late -= len(withdrawn)
    for fresh in withdrawn:
        state.counts.released += 1
        commands += release(state, fresh)
    return commands


def release_withheld(state: ConsumerState, now: float) -> list[Command]:
    """Release every message that the breaker or a pause withholds; the broker redelivers them at once."""
    state.gate.gave_back(now)
    commands: list[Command] = []
    for delivery in state.take_undispatched():
        commands += release(state, delivery)
    state.occupy()
    return commands


def paused(state: ConsumerState, now: float, *, paused: bool) -> Sequence[Command]:
    """Begin or end a pause; at its beginning, release messages never dispatched. Handlers continue."""
    state.gate.pause(now, paused=paused)
    return [*state.flow.withdrawn(), *release_fresh(state)] if paused and not state.gate.closed else ()


def drained(state: ConsumerState) -> Sequence[Command]:
    """Release all messages that are not running: the consumer dispatches no more."""
    state.gate.close()
    held = state.take_undispatched()
    state.counts.released += len(held)
    commands: list[Command] = [*state.flow.withdrawn()]
    for delivery in held:
        commands += release(state, delivery)
    return commands


# An epoch that no connection has, and not the one that the engine has between two of them.
NONE = -2


def taken_back(state: ConsumerState, deliveries: Sequence[Delivery]) -> Sequence[Command]:
    """Invalidate deliveries that the broker takes back on a connection that still stands; return the log's command.

    RabbitMQ 4.3 does so after a consumer's timeout, as they were not settled in time: the message goes to any consumer
    at once. As after the loss of a connection, later results are stale, and the record of the message is kept. Those
    settled meanwhile were settled in vain: a message that was to be delayed is recognised when it arrives.
    """
    mine = [each for each in deliveries if each.epoch == state.epoch]
    for delivery in mine:
        if delivery.state == "settled" and delivery.record is not None:
            state.history.not_rescheduled(delivery.record)
    gone = [each for each in mine if each.state not in ("settled", "lost")]
    if not gone:
        return ()
    running = [each for each in gone if each in state.running]
    unsettled = [each for each in gone if each not in state.running]
    for delivery in gone:
        delivery.record = delivery.record or Record()
    state.remove(set(unsettled))
    # They count as settled: their credit is free.
    state.flow.settled += len(running)
    state.history.taken_back(unsettled, running)
    for delivery in running:
        # Makes its result stale.
        delivery.epoch = NONE
    able = state.capabilities
    return (TookBack(len(gone), len(running), None if able is None else able.max_hold),)
