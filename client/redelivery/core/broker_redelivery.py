"""Redelivery by the broker: it delays the message itself, or a delayed copy sent to the same queue.

RabbitMQ 4.3 delays the message itself (quorum queues): it is released, uncounted, with its due time and the facts noted
on it. From then on it belongs to the broker, as an accepted message does.

For the engine, a delayed copy is a poison acknowledgement with another destination: the copy is sent and confirmed, and
then the original is accepted; in one transaction where the broker can do so. For the broker the copy is a new message;
therefore it carries the count, cause and times of the original.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redelivery.core.commands import Forward, Reschedule
from redelivery.core.dead_lettering.routing import (
    COPY,
    DEFERRALS,
    DUE,
    EXPIRES,
    arrived_whole,
    copy_of,
    told_of,
)
from redelivery.core.delivery import UNKNOWN, Cause, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.consumer_state import ConsumerState
    from redelivery.core.delivery import Delivery
    from redelivery.core.message_history import MessageHistory
    from redelivery.core.policy.policy_guard import PolicyGuard
    from redelivery.core.policy.redelivery_policy import Policy

__all__ = ["EARLY", "BrokerRedelivery", "original_expiry"]

# Seconds. A message that is due already, because its copy was refused before, is still sent as a delayed copy.
SHORTEST = 0.001
EARLY = 1.0
"""Seconds that a copy may arrive before it is due; allowed for clocks that differ. If it arrives earlier, the broker
has not delayed it (after a failover to a broker that cannot), and it is parked here."""
# Seconds since the Unix epoch: the end of Python's calendar, less the hours of any time zone.
NEVER = 250_000_000_000.0
BASE = "redeliveryBase"
"""Name of the note with the broker's own count at the time when the other notes were made."""
_NOTED = ("redeliveryCount", "redeliveryFirstFailure", "redeliveryLastFailure")
MOST = 10_000
"""Highest count that is accepted from a message whose policy has no maximum: a delay is computed step by step."""


class BrokerRedelivery:
    """Makes the delayed copies of one consumer's messages, and recognises them when they arrive.

    `destination`: the consumed queue, qualified; copies are sent to it. `run`: a name that no other consumer has; the
    names of copies begin with it. `maximum_deferrals`: the highest number of deferrals accepted from a message.
    """

    def __init__(
        self, destination: str, run: str, *, maximum_deferrals: int = 100, empty_is_whole: bool = False
    ) -> None:
        self._destination = destination
        self._run = run
        self._maximum_deferrals = maximum_deferrals
        self._empty_is_whole = empty_is_whole
        self._numbers = itertools.count(1)

    @staticmethod
    def gave_back(history: MessageHistory, command: Reschedule, record: Record, now: float) -> None:
        """Note that the broker delays a message: if that is lost, the message arrives early and is recognised here."""
        due = _whole(command.notes, DUE)
        if due is not None:
            history.rescheduled.add(command.delivery, record, due, now)

    def takes(self, delivery: Delivery, due: float, *, native: bool) -> bool:
        """Return True if the broker can delay the message, or a copy of it, until the wall-clock time `due`.

        A copy needs a body that arrived whole. The message must not expire before `due`: brokers drop an expired
        message, or keep it where no consumer reads it.
        """
        expires = delivery.expires_at
        whole = native or (delivery.readable and arrived_whole(delivery, empty_is_whole=self._empty_is_whole))
        return whole and (expires is None or expires > due)

    def holds(self, state: ConsumerState, delivery: Delivery, record: Record, now: float) -> bool:
        """Return True if the broker delays the message until it is due; `record.returns` is then that time."""
        noted = delivery.noted
        if BASE in noted and self._noted_here(noted):
            # Another process may have charged the message since this one had it.
            record.count = max(record.count, _count(noted, "redeliveryCount", MOST))
        due, able = record.due, state.capabilities
        if due is None or due <= now or able is None:
            return False
        native = able.reschedule == "native"
        if able.reschedule == "none":
            # After a failover to a broker that cannot delay, the message is parked here.
            return False
        if able.longest_delay is not None:
            due = min(due, now + able.longest_delay)
        if not self.takes(delivery, due + state.wall_offset, native=native):
            return False
        delivery.record = record
        record.returns = due
        return True

    def command(
        self, delivery: Delivery, record: Record, capabilities: Capabilities, wall_offset: float, now: float
    ) -> Forward | Reschedule:
        """Return the command that makes the broker delay the message, or a copy of it."""
        due = now if record.returns is None else record.returns
        cause = record.cause or UNKNOWN
        if capabilities.reschedule == "native":
            notes = self._notes(delivery, record, cause, due, wall_offset)
            delay, deferred = max(due - now, 0.0), record.deferred
            return Reschedule(delivery, due + wall_offset, notes, delay, cause, record.count, deferred)
        headers = told_of(delivery, record, cause, wall_offset)
        # A copy that is sent a second time keeps its name: consumers and Artemis recognise the duplicate by it. The
        # name ends with the queue: a copy that an operator moved to another queue is a message of its own.
        record.name = record.name or f"{self._run}-{next(self._numbers)}@{self._destination}"
        headers[COPY] = record.name
        headers[DUE] = str(round((due + wall_offset) * 1000))
        if delivery.expires_at is not None:
            headers[EXPIRES] = str(int(delivery.expires_at * 1000))
        if record.deferrals:
            headers[DEFERRALS] = str(record.deferrals)
        copy = copy_of(delivery, self._destination, headers, delivery.expires_at)
        return Forward(delivery, replace(copy, delay=max(due - now, SHORTEST)), cause, record.count)

    def _notes(
        self, delivery: Delivery, record: Record, cause: Cause, due: float, wall_offset: float
    ) -> Mapping[str, str | int]:
        told = told_of(delivery, record, cause, wall_offset)
        notes: dict[str, str | int] = {name: told[name] for name in _NOTED if name in told}
        notes["redeliveryCause"] = cause.text
        # Names the queue: the notes of a message that was moved to another queue are ignored.
        notes[COPY] = f"@{self._destination}"
        notes[DUE] = round((due + wall_offset) * 1000)
        # Always written: a broker keeps the earlier notes.
        notes[DEFERRALS] = record.deferrals
        notes[BASE] = delivery.broker_count or 0
        return notes

    def seeded(
        self,
        state: ConsumerState,
        delivery: Delivery,
        counted: int | None,
        seeded: Record | None,
        policies: PolicyGuard,
        policy: Policy,
        now: float,
    ) -> Record | None:
        """Return the record of an arriving message: from the notes on it, otherwise `seeded`.

        `counted`: the broker's count; None with a ledger, which counts instead.
        """
        if rescheduled := state.history.rescheduled:
            noted = delivery.noted
            due = _whole(noted, DUE) if self._noted_here(noted) else None
            if (unread := rescheduled.arrived(delivery, due)) is not None:
                return unread
        record = self.record_of(delivery, policies.limit(policy), state.wall_offset, counted)
        if record is None:
            return seeded
        if seeded is not None and BASE not in delivery.noted:
            record.count = max(record.count, seeded.count)
        # A producer can write these properties as well. No message is delayed for longer than its policy says.
        if record.due is not None:
            delay = policies.delay(policy, max(1, record.count), jitter=False)
            record.due = min(record.due, now + min(delay, state.most_delay or delay))
        return record

    def _noted_here(self, noted: Mapping[str, Any]) -> bool:
        """Return True if the notes on a message were made in this queue; otherwise the message was moved here."""
        return _text(noted, COPY).endswith(f"@{self._destination}")

    def record_of(
        self, delivery: Delivery, maximum: int, wall_offset: float, counted: int | None = None
    ) -> Record | None:
        """Return the record noted on a delayed copy or on a released message; None for any other message.

        Any producer can send such properties. Therefore none of them poisons a message before a dispatch: a count is
        accepted up to the policy's `maximum` (-1: no limit), and a value that is no whole number is ignored.
        """
        headers = delivery.noted
        if not self._noted_here(headers):
            return None
        most = MOST if maximum < 0 else maximum
        record = Record(_count(headers, "redeliveryCount", most))
        base = _whole(headers, BASE)
        if base is not None:
            # The broker has counted the deliveries since: lost connections, and processes that died.
            record.count = min(record.count + max(0, (counted or 0) - max(0, base)), most)
        record.deferrals = _count(headers, DEFERRALS, self._maximum_deferrals)
        cause = _text(headers, "redeliveryCause")
        record.cause = Cause.of(cause) if cause else None
        record.first_failure = _time(headers, "redeliveryFirstFailure", wall_offset)
        record.last_failure = _time(headers, "redeliveryLastFailure", wall_offset)
        due = _whole(headers, DUE)
        record.due = None if due is None else due / 1000 - wall_offset
        return record


def original_expiry(at: float | None, noted: Mapping[str, Any]) -> float | None:
    """Return when a message expires: `at`, or earlier, if it is a delayed copy whose expiry the broker has moved."""
    told = _whole(noted, EXPIRES) if at is not None and COPY in noted else None
    return at if at is None or told is None else min(at, told / 1000)


def _text(headers: Mapping[str, Any], name: str) -> str:
    value = headers.get(name)
    return value if isinstance(value, str) else ""


def _whole(headers: Mapping[str, Any], name: str) -> int | None:
    value = headers.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        # A producer may have written a date, which AMQP decodes as a subclass of int: make a plain number of it.
        return int(value)
    # Text of more digits than any date has was not written here, and is slow to convert.
    text = value if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def _count(headers: Mapping[str, Any], name: str, most: int) -> int:
    return min(max(0, _whole(headers, name) or 0), most)


def _time(headers: Mapping[str, Any], name: str, wall_offset: float) -> float | None:
    try:
        at = datetime.fromisoformat(_text(headers, name))
        seconds = at.timestamp() if at.tzinfo is not None else -1.0
    except (ValueError, OverflowError):
        return None
    # Half a millisecond more: the time is cut to whole milliseconds when it is written again.
    return seconds + 0.0005 - wall_offset if 0 <= seconds < NEVER else None
