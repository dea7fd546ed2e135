"""Redelivery by the broker: it holds back the message itself, or a copy that goes to the same queue again.

The message itself (RabbitMQ 4.3, quorum queues) is given back with the time at which it is due, uncounted, and with
what is known of it. It is the broker's from then on, as what was accepted is.

A copy, to the engine, is a poison acknowledgement with another destination: the copy is sent, confirmed, and only then
is the original accepted; in one transaction where that is atomic. The copy is another message to the broker, so it
carries what was known of the original.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from redelivery.core.commands import Forward, Reschedule
from redelivery.core.dead_lettering.routing import COPY, DEFERRALS, DUE, arrived_whole, copy_of, told_of
from redelivery.core.delivery import UNKNOWN, Cause, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import Delivery
    from redelivery.core.message_history import MessageHistory
    from redelivery.core.policy.policy_guard import PolicyGuard
    from redelivery.core.policy.redelivery_policy import Policy

__all__ = ["EARLY", "BrokerRedelivery"]

# Seconds: what is due already, because its copy was refused before, still goes as a delayed one.
SHORTEST = 0.001
EARLY = 1.0
"""Seconds that a copy may come before it is due. Earlier, the broker has not held it (another one took over, which
cannot), and it waits here; less is taken for clocks that differ."""
# Seconds since the Unix epoch: the time zone's hours short of what Python has dates for.
NEVER = 250_000_000_000.0
BASE = "redeliveryBase"
"""What the broker had counted when a count was noted."""
_NOTED = ("redeliveryCount", "redeliveryFirstFailure", "redeliveryLastFailure")
MOST = 10_000
"""The highest count that is believed where a policy has no maximum: a delay is computed step by step."""


class BrokerRedelivery:
    """Makes the delayed copies of one consumer's messages, and knows them again.

    `destination`: the queue that is consumed, qualified; copies go there. `run`: a name that no other consumer has, of
    which the names of copies are made. `maximum_deferrals` bounds what is believed of their number.
    """

    def __init__(
        self, destination: str, run: str, *, maximum_deferrals: int = 100, empty_is_whole: bool = False
    ) -> None:
        self._destination = destination
        self._run = run
        self._maximum_deferrals = maximum_deferrals
        self._empty_is_whole = empty_is_whole
        self._numbers = itertools.count(1)
        self._history: MessageHistory | None = None

    def share(self, history: MessageHistory) -> None:
        """Remember in it what was given back, for all consumers of the source."""
        self._history = history

    def gave_back(self, command: Reschedule, record: Record, now: float) -> None:
        """Learn that the broker is to hold a message back: if that is lost, it comes at once, and is known here."""
        due = _whole(command.notes, DUE)
        if self._history is not None and due is not None:
            self._history.rescheduled.add(command.delivery, record, due, now)

    def takes(self, delivery: Delivery, due: float, *, native: bool) -> bool:
        """Whether the message, or a copy of it, can wait at the broker until the wall-clock time `due`.

        No copy if its body did not arrive whole. Nor if it expires before: brokers drop what expires, or keep it where
        nobody looks.
        """
        expires = delivery.expires_at
        whole = native or (delivery.readable and arrived_whole(delivery, empty_is_whole=self._empty_is_whole))
        return whole and (expires is None or expires > due)

    def holds(
        self, delivery: Delivery, record: Record, able: Capabilities, wall_offset: float, now: float
    ) -> bool:
        """Whether the broker is to hold it until the message is due: then the record says until when."""
        noted = delivery.noted
        if BASE in noted and self._noted_here(noted):
            # Another process may have charged it since it was here.
            record.count = max(record.count, _count(noted, "redeliveryCount", MOST))
        due = record.due
        if due is None or due <= now:
            return False
        native = able.reschedule == "native"
        if able.reschedule == "none":
            # Another broker has taken over, which cannot: it is held here.
            return False
        if able.longest_delay is not None:
            due = min(due, now + able.longest_delay)
        if not self.takes(delivery, due + wall_offset, native=native):
            return False
        delivery.record = record
        record.returns = due
        return True

    def command(
        self, delivery: Delivery, record: Record, capabilities: Capabilities, wall_offset: float, now: float
    ) -> Forward | Reschedule:
        """Return the command that has the broker hold the message, or a copy of it."""
        due = now if record.returns is None else record.returns
        cause = record.cause or UNKNOWN
        if capabilities.reschedule == "native":
            notes = self._notes(delivery, record, cause, due, wall_offset)
            delay, deferred = max(due - now, 0.0), record.deferred
            return Reschedule(delivery, due + wall_offset, notes, delay, cause, record.count, deferred)
        headers = told_of(delivery, record, cause, wall_offset)
        # Sent again, it keeps its name: so consumers, and Artemis, know the second one for the same. Whoever moves it
        # to another queue by hand means another message.
        record.name = record.name or f"{self._run}-{next(self._numbers)}@{self._destination}"
        headers[COPY] = record.name
        headers[DUE] = str(round((due + wall_offset) * 1000))
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
        # Not believed of a message that somebody has moved to another queue.
        notes[COPY] = f"@{self._destination}"
        notes[DUE] = round((due + wall_offset) * 1000)
        # Always, for a broker keeps what was noted before.
        notes[DEFERRALS] = record.deferrals
        notes[BASE] = delivery.broker_count or 0
        return notes

    def seeded(
        self,
        delivery: Delivery,
        counted: int | None,
        seeded: Record | None,
        policies: PolicyGuard,
        policy: Policy,
        most: float | None,
        wall_offset: float,
        now: float,
    ) -> Record | None:
        """Return what is known of a message that comes: what is noted on it, else what was `seeded`.

        `counted`: what the broker has counted; None with a ledger, which counts instead.
        """
        if self._history is not None and self._history.rescheduled:
            noted = delivery.noted
            due = _whole(noted, DUE) if self._noted_here(noted) else None
            if (unread := self._history.rescheduled.arrived(delivery, due)) is not None:
                return unread
        record = self.record_of(delivery, policies.limit(policy), wall_offset, counted)
        if record is None:
            return seeded
        if seeded is not None and BASE not in delivery.noted:
            record.count = max(record.count, seeded.count)
        # As a producer may write it; nothing waits for longer than its policy says.
        if record.due is not None:
            delay = policies.delay(policy, max(1, record.count), jitter=False)
            record.due = min(record.due, now + min(delay, most or delay))
        return record

    def _noted_here(self, noted: Mapping[str, Any]) -> bool:
        """Whether what is noted on a message was noted in this queue: else somebody has moved it here."""
        return _text(noted, COPY).endswith(f"@{self._destination}")

    def record_of(
        self, delivery: Delivery, maximum: int, wall_offset: float, counted: int | None = None
    ) -> Record | None:
        """Return what a delayed copy carries, or what is noted on a message, or None for another message.

        Anybody can send such properties. So none of them poisons a message before a dispatch: a count is believed up
        to the policy's `maximum` (-1: none), and what is no whole number is ignored.
        """
        headers = delivery.noted
        if not self._noted_here(headers):
            return None
        most = MOST if maximum < 0 else maximum
        record = Record(_count(headers, "redeliveryCount", most))
        base = _whole(headers, BASE)
        if base is not None:
            # The broker has counted the rest: lost connections, and processes that have died.
            record.count = min(record.count + max(0, (counted or 0) - max(0, base)), most)
        record.deferrals = _count(headers, DEFERRALS, self._maximum_deferrals)
        cause = _text(headers, "redeliveryCause")
        record.cause = Cause.of(cause) if cause else None
        record.first_failure = _time(headers, "redeliveryFirstFailure", wall_offset)
        record.last_failure = _time(headers, "redeliveryLastFailure", wall_offset)
        due = _whole(headers, DUE)
        record.due = None if due is None else due / 1000 - wall_offset
        return record


def _text(headers: Mapping[str, Any], name: str) -> str:
    value = headers.get(name)
    return value if isinstance(value, str) else ""


def _whole(headers: Mapping[str, Any], name: str) -> int | None:
    value = headers.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        # A producer may have written a date: what is noted of it is a plain number.
        return int(value)
    # Text of more digits than any date has is no number of ours, and slow to read.
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
    # Half of a millisecond more: it is cut to whole ones when it is told again.
    return seconds + 0.0005 - wall_offset if 0 <= seconds < NEVER else None
