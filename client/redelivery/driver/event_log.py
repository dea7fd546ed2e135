"""Log of a connection: the first observer of its events. It formats each as one line; never a message's contents.

A line on a message is `destination: id: what happened; what happens next`, with the message's own destination. A line
on a consumer begins with its destination. Tracebacks of handlers are logged at DEBUG only.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery.brokers import untested
from redelivery.core.delivery import Cause
from redelivery.core.shown_values import NO_ID, printable
from redelivery.events import (
    BreakerChanged,
    Connected,
    ConnectionLost,
    ConsumerRefused,
    ConsumerStarted,
    ConsumerStopped,
    CreditSpent,
    DeadLetterFailed,
    DeadLettering,
    Deduplicated,
    DrainBegun,
    Drained,
    Dropped,
    Finished,
    HandlerOverdue,
    ManyDropped,
    ManyLosses,
    Parked,
    ParkingFull,
    PolicyFault,
    QueueAdvice,
    QueueCaution,
    ResultStale,
    SetAside,
    TakenBack,
    Unaccounted,
    Unanswered,
    WorkerEnded,
)
from redelivery.log import logger, loggers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redelivery.clock import Clock
    from redelivery.events import Event, MessageEvent

__all__ = ["EventLog", "LogGroup", "LogGroups", "breaker_line", "named"]


# ---- Log groups ------------------------------------------------------------------------------------------
# Grouping of log lines about failures: in a storm a few are written, and then one every ten seconds.
#
# Lines of results form a group if consumer, type of the cause and next step are the same. Of a group the first 10
# lines in 10 s are written; the rest is counted, and one line has their number. For dead letters it is the first 100
# lines in 10 s, and the last line names three messages. A broker takes messages back one by one; only the first line
# about that is written. This module uses no clock and no log: times are arguments.

# Seconds that a group lasts, and lines of it that are written.
WINDOW = 10.0
FIRST_LINES = 10
# Lines of a group of dead letters: up to 10 dead letters a second have a line each.
DEAD_LETTERS = 100
# Message ids in the last line of a group of dead letters.
NAMED = 3
# Groups at a time. Past them each line is written: so many groups are not a storm.
MOST = 1000


# Next steps by which a message is lost to its consumer: they have more lines.
DEAD = ("dead-letter copy", "poison acknowledgement", "set aside", "drop", "stop")
WHAT = {
    "failed": "delivery failed",
    "poison": "delivery poisoned",
    "defer": "deferred",
    "discard": "discarded",
}
THEN = {
    "redelivery": "redelivery",
    "delayed copy": "redelivery; until then the broker holds copies",
    "delayed by the broker": "redelivery; until then the broker holds them",
    "dead-letter copy": "poison",
    "poison acknowledgement": "poison",
    "set aside": "poison, and set aside",
    "drop": "accepted and dropped",
    "stop": "its consumer stops",
    "none": "released to the broker",
    "delivered again": "redelivered",
}


class GroupKey(NamedTuple):
    """Values that are the same for all lines of one group."""

    destination: str
    what: str
    """Text of the line for what happened."""
    cause_type: str | None
    next_step: str
    level: int

    @classmethod
    def of(cls, event: Finished | TakenBack, level: int) -> GroupKey:
        """Return the group of a result, or of messages that the broker has taken back."""
        if isinstance(event, TakenBack):
            what = "taken back by the broker after its consumer timeout"
            return cls(event.destination, what, None, "delivered again", level)
        what = "failed, not charged" if event.outcome == "spared" else WHAT.get(event.verdict, event.verdict)
        return cls(event.destination, what, event.cause_type, event.next_step, level)


@dataclass(slots=True)
class LogGroup:
    """Lines of one group, in one window."""

    key: GroupKey
    began: float
    left: int
    """Lines that may still be written."""
    more: int = 0
    """Lines that were not written."""
    last: float = 0.0
    """Time of the last of them."""
    ids: list[str] = field(default_factory=list[str])

    @classmethod
    def of(cls, event: Finished | TakenBack, level: int, now: float) -> LogGroup:
        """Begin the group of an event."""
        key = GroupKey.of(event, level)
        if isinstance(event, TakenBack):
            return cls(key, now, 1)
        return cls(key, now, DEAD_LETTERS if event.next_step in DEAD else FIRST_LINES)

    def count(self, event: Finished | TakenBack, now: float) -> None:
        """Count a line that is not written."""
        self.more += event.messages if isinstance(event, TakenBack) else 1
        self.last = now
        if isinstance(event, Finished) and self.dead_letters and len(self.ids) < NAMED:
            self.ids.append(event.message_id or NO_ID)

    @property
    def dead_letters(self) -> bool:
        """True if the messages are dead-lettered, dropped or set aside."""
        return self.key.next_step in DEAD

    def text(self, now: float) -> str:
        """Return the line about those that were not written, at the time `now`."""
        key = self.key
        cause = "" if key.cause_type is None else f" ({key.cause_type})"
        ids = f": {printable(', '.join(self.ids))}, …" if self.ids else ""
        seconds = max(1.0, now - self.began)
        what = f"{key.what}{cause}, {THEN[key.next_step]}{ids}"
        # Without it, a group whose failures ended early would read as if they went on.
        ago = f", the last one {now - self.last:.0f} s ago" if now - self.last >= 1 else ""
        return f"{key.destination}: {self.more:,} more in {seconds:.0f} s{ago}: {what}"

    def fields(self, now: float) -> dict[str, Any]:
        """Return the same as fields of the log."""
        key = self.key
        return {
            "event": "grouped", "destination": key.destination, "count": self.more, "seconds": now - self.began,
            "what": key.what, "cause_type": key.cause_type, "next_step": key.next_step, "message_ids": self.ids,
        }  # fmt: skip


class LogGroups:
    """Groups of one connection. Not thread-safe: the caller has a lock."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, LogGroup] = {}
        self._next = inf

    def admits(self, event: Finished | TakenBack, level: int, now: float) -> bool:
        """Return True if the line of an event is to be written; else count it."""
        key = GroupKey.of(event, level)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= MOST:
                return True
            group = self._groups[key] = LogGroup.of(event, level, now)
            self._next = min(self._next, now + WINDOW)
        if group.left > 0:
            group.left -= 1
            return True
        group.count(event, now)
        return False

    def due(self, now: float) -> bool:
        """True if the window of a group is over."""
        return now >= self._next

    def ended(self, now: float, *, last: bool = False) -> Iterator[LogGroup]:
        """Yield the groups with unwritten lines whose window is over; `last`: all groups with unwritten lines.

        Their next window begins at once. While the storm goes on, only the line at its end is written, except for dead
        letters.
        """
        for key, group in list(self._groups.items()):
            if now - group.began < WINDOW and not last:
                continue
            if group.more:
                self._groups[key] = LogGroup(key, now, DEAD_LETTERS if group.dead_letters else 0)
                yield group
            else:
                del self._groups[key]
        self._next = min((group.began + WINDOW for group in self._groups.values()), default=inf)


# ---- Breaker log -----------------------------------------------------------------------------------------
# Log lines about the breaker of a consumer: it opens, tries a message, closes, or charges failures again.


def breaker_line(change: BreakerChanged) -> tuple[int, str]:
    """Return the level and the text of the line about a change of the breaker."""
    cause = "unknown" if change.cause is None else change.cause
    match change.old, change.new:
        case "closed", "open":
            level, text = logging.WARNING, _opened(change, cause)
        case _, "open" if change.reminds:
            level = logging.WARNING
            text = (
                f"the breaker has been open for {change.seconds:.0f} s ({cause}); {change.spared} failures were not "
                f"charged; the next try is in {change.delay:.1f} s"
            )
        case "ramp", "open":
            level = logging.WARNING
            text = f"failures again ({cause}): handling pauses, the next try is in {change.delay:.1f} s"
        case _, "open" if change.delay <= 0:
            level, text = (
                logging.DEBUG,
                "the handlers of the messages that were tried have decided, or were lost; others are tried",
            )
        case _, "open":
            level, text = (
                logging.INFO,
                f"what was tried has failed ({cause}); the next try is in {change.delay:.1f} s",
            )
        case _, "ramp":
            level = logging.INFO
            text = f"a message has succeeded after {change.seconds:.0f} s; handling goes on, slowly at first"
        case _, "closed" if change.charging:
            level = logging.WARNING
            text = (
                f"the breaker has been open for too long, {change.seconds:.0f} s now ({cause}): failures are charged "
                "as the policy says (redelivery.breakerMaximumOpen; 10 minutes if most are no exceptions of trip)"
            )
        case _, "closed":
            # A warning, as its opening: a log without INFO shows the end, too.
            level = logging.WARNING
            text = f"the breaker has closed after {change.seconds:.0f} s; {change.spared} failures were not charged"
        case _:
            level, text = logging.DEBUG, "a message is tried"
    return level, f"{change.destination}: {text}"


def _opened(change: BreakerChanged, cause: str) -> str:
    if change.named:
        return (
            f"{change.failures} failures in a row ({cause}): handling pauses, growing numbers of messages are "
            "tried at growing intervals, nothing is charged"
        )
    name = cause.partition(":")[0]
    other = f"errors=Classifier().retry({name}, outage=False) or " if name.isidentifier() else ""
    return (
        f"{change.failures} failures in a row, of {change.messages} messages ({cause}): handling pauses, growing "
        "numbers of messages are tried at growing intervals, nothing is charged; if the messages are the cause and "
        "not a service, use "
        f"{other}redelivery.breaker=off"
    )


# ---- Event log -------------------------------------------------------------------------------------------

# Seconds (100 years). The log names no longer delay: no process waits for that long.
NEVER = 100 * 365.25 * 86400
_COPY = "; until then the broker holds a copy"
_ITSELF = "; until then the broker holds it"


class Line(NamedTuple):
    """A line of the log."""

    level: int
    text: str
    error: BaseException | None = None


class EventLog:
    """Writes a line for each event that has one; of similar results, a few lines and then one for all the others."""

    def __init__(self, clock: Clock | None = None, *, quiet: bool = False) -> None:
        """Group lines by this clock; None: write each line. `quiet`: write none."""
        self._clock = clock
        self._quiet = quiet
        self._groups = LogGroups()
        self._lock = threading.Lock()

    def observe(self, event: Event) -> None:
        """Write the line of an event, if it has one and its level is logged."""
        # Before anything is formatted: in a storm there are many events, and perhaps none of them is logged.
        if self._quiet or (
            isinstance(event, Finished) and not loggers[event.logger].isEnabledFor(logging.WARNING)
        ):
            return
        form = FORMS.get(type(event))
        line = None if form is None else form(event)
        if line is None:
            return
        log = loggers.get(event.logger, logger)
        if not log.isEnabledFor(line.level):
            return
        if isinstance(event, Finished | TakenBack) and not self._admits(event, line.level):
            return
        error = line.error
        # As a tuple: logging asks for the truth value of `exc_info`, and an exception may raise then.
        traceback = None if error is None else (type(error), error, error.__traceback__)
        log.log(line.level, "%s", line.text, exc_info=traceback, extra={"redelivery": event.fields()})

    def _admits(self, event: Finished | TakenBack, level: int) -> bool:
        if self._clock is None:
            return True
        self.look()
        with self._lock:
            return self._groups.admits(event, level, self._clock.monotonic())

    def look(self, *, last: bool = False) -> None:
        """Write the lines of groups whose time is over; `last`: of all groups, because the connection closes."""
        if self._clock is None:
            return
        now = self._clock.monotonic()
        with self._lock:
            ended = list(self._groups.ended(now, last=last)) if last or self._groups.due(now) else []
        for group in ended:
            log = loggers["redelivery.messages"]
            log.log(group.key.level, "%s", group.text(now), extra={"redelivery": group.fields(now)})


def named(event: MessageEvent) -> str:
    """Return a message's own destination and its id, and the id that `send` returned if the broker's differs."""
    own, sent = event.message_id, event.sent_as
    also = f" (sent as {sent})" if sent is not None and own is not None else ""
    # A producer chooses the id: it must not forge a line of the log.
    return printable(f"{event.message_destination}: {(sent if own is None else own) or NO_ID}{also}")


def _parked(event: Parked) -> Line:
    what = "deferred before" if event.deferred else f"failed before ({event.cause})"
    holds = _COPY if event.copied else _ITSELF if event.native else ""
    return Line(logging.INFO, f"{named(event)}: {what}; {_redelivery(event.delay, holds)}")


def _dead_lettering(event: DeadLettering) -> Line | None:
    if event.again:
        return None
    return Line(
        logging.WARNING,
        f"{named(event)}: given up ({event.cause}); {_dead_letter(event.to, event.own_place)}",
    )


def _dead_letter_failed(event: DeadLetterFailed) -> Line | None:
    if event.again:
        return None
    what = f"its {'delayed copy' if event.delayed else 'dead letter'} is not confirmed ({event.error})"
    text = f"{named(event)}: {what}; the message stays on the broker, next try in {event.delay:g} s"
    return Line(logging.WARNING, text)


def _dropped(event: Dropped) -> Line:
    return Line(logging.INFO, f"{named(event)}: given up ({event.cause}); dropped without a dead letter")


def _deduplicated(event: Deduplicated) -> Line:
    return Line(logging.INFO, f"{named(event)}: accepted without being handled: {event.reason}")


def _set_aside(event: SetAside) -> Line:
    what = "still set aside" if event.still else "set aside, and other messages are handled as usual"
    return Line(logging.WARNING, f"{named(event)}: {what}; {event.error}")


def _unanswered(event: Unanswered) -> Line:
    what = "delayed copy" if event.delayed else "poison acknowledgement"
    text = f"the broker has not confirmed its {what} for {event.seconds:g} s; waiting until it does, or is disconnected"
    return Line(logging.WARNING, f"{named(event)}: {text}")


def _taken_back(event: TakenBack) -> Line:
    after = "" if event.limit is None else f" of {event.limit:g} s"
    late = (
        f"; handlers still have {event.running} of them, and their results will be stale"
        if event.running
        else ""
    )
    messages = "1 message" if event.messages == 1 else f"{event.messages:,} messages"
    text = f"the broker has taken back {messages} after its consumer timeout{after}{late}"
    return Line(logging.WARNING, f"{event.destination}: {text}")


def _losses(event: ManyLosses) -> Line:
    messages = "1 message was" if event.messages == 1 else f"{event.messages:,} messages were"
    text = (
        f"{messages} held here at {event.losses} lost connections; the broker drops a message after {event.limit} "
        "(x-delivery-limit)"
    )
    return Line(logging.WARNING, f"{event.destination}: {text}")


def _unaccounted(event: Unaccounted) -> Line:
    have = (
        "1 message, held here when a connection was lost, has"
        if event.messages == 1
        else (f"{event.messages:,} messages, held here when a connection was lost, have")
    )
    text = f"{have} not come back for a minute: another consumer has them, or the broker has dropped them"
    return Line(logging.INFO, text)


def _breaker(event: BreakerChanged) -> Line:
    return Line(*breaker_line(event))


def _advice(event: QueueAdvice) -> Line:
    return Line(logging.INFO, f"{event.destination}: {event.text}")


def _caution(event: QueueCaution) -> Line:
    return Line(logging.WARNING, f"{event.destination}: {event.text}")


def _stopped(event: ConsumerStopped) -> Line:
    return Line(logging.ERROR, f"{event.destination}: the consumer stops: {event.error}")


def _refused(event: ConsumerRefused) -> Line:
    text = f"the consumer waits for the broker, which refuses it for now: {event.error}"
    return Line(logging.WARNING if event.times == 1 else logging.INFO, f"{event.destination}: {text}")


def _started(event: ConsumerStarted) -> Line | None:
    if not event.refusals:
        return None
    times = "one refusal" if event.refusals == 1 else f"{event.refusals} refusals"
    return Line(logging.WARNING, f"{event.destination}: the broker serves the consumer again, after {times}")


def _worker_ended(event: WorkerEnded) -> Line:
    text = f"{event.destination}: a worker has ended ({Cause.of(event.error).text}); its consumer stops"
    return Line(logging.ERROR, text, event.error)


def _drain_begun(event: DrainBegun) -> Line:
    run = "1 handler runs" if event.running == 1 else f"{event.running or 'no'} handlers run"
    return Line(logging.INFO, f"draining: {run}; waiting for up to {event.timeout:g} s")


def _drained(event: Drained) -> Line:
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in event.counts().items())
    return Line(logging.INFO, f"drained in {event.seconds:.1f} s: {counts or 'nothing was dispatched'}")


def _policy(event: PolicyFault) -> Line:
    return Line(logging.ERROR, f"{event.destination}: the policy {event.policy}: {event.text}", event.error)


def _connected(event: Connected) -> Line:
    # A warning, as the loss or the failed attempt before: a log without INFO shows the end of the outage, too.
    # Where it serves no consumer, the consumers have such lines of their own.
    level = logging.WARNING if (event.again or event.late) and not event.unserved else logging.INFO
    other = untested(event.broker, event.version)
    name = f"{event.broker} {event.version}".rstrip()
    return Line(level, f"connected to {event.address} ({name}{'' if other is None else f', which {other}'})")


def _lost(event: ConnectionLost) -> Line:
    return Line(logging.INFO if event.unserved else logging.WARNING, f"connection lost: {event.error}")


def _many_dropped(event: ManyDropped) -> Line:
    text = "dropped so far instead of dead-lettered (redelivery.reportInterval)"
    return Line(logging.INFO, f"{event.dropped} {'message' if event.dropped == 1 else 'messages'} {text}")


def _spent(event: CreditSpent) -> Line:
    text = f"the application has its whole credit ({event.running} messages) unsettled; "
    return Line(logging.WARNING, f"{event.destination}: {text}the broker sends no more until it settles one")


def _full(event: ParkingFull) -> Line:
    text = (
        f"{event.parked} messages are parked, set aside, or wait for the confirmation of their dead letter; no new "
        "message is dispatched until one of them is settled (redelivery.maxParked)"
    )
    return Line(logging.WARNING, f"{event.destination}: {text}")


def _stale(event: ResultStale) -> Line:
    text = (
        "a result is stale: its connection or consumer has ended, also by a close here, or the broker took the message "
        "back; the broker redelivers it"
    )
    return Line(logging.WARNING, f"{event.destination}: {text}")


def _finished(event: Finished) -> Line | None:
    match event.verdict:
        case "failed" if event.outcome == "spared":
            # INFO only: the breaker has warning lines of its own.
            level, what = logging.INFO, f"failed, not charged ({event.cause})"
        case "failed":
            level, what = logging.WARNING, _charged(event)
        case "poison":
            level, what = logging.WARNING, f"delivery {event.delivery_count} poisoned ({event.cause})"
        case "defer":
            # A deferral is charged only past redelivery.maximumDeferrals.
            if event.outcome in ("redelivered", "poisoned"):
                many = f"deferred {event.deferrals} times, more than redelivery.maximumDeferrals"
                level, what = logging.WARNING, f"{many}: {_charged(event)}"
            else:
                level, what = logging.INFO, f"deferred ({event.cause})"
        case "discard":
            level, what = logging.INFO, f"discarded ({event.cause})"
        case "succeeded" | "release":
            return None
    return Line(level, f"{named(event)}: {what}; {_next(event)}")


def _charged(event: Finished) -> str:
    of = "" if event.maximum is None else f" of {event.maximum}"
    return f"delivery {event.delivery_count}{of} failed ({event.cause})"


def _next(event: Finished) -> str:  # noqa: PLR0911 - the table of what follows
    match event.next_step:
        case "redelivery":
            spared = event.outcome == "spared"
            return _redelivery(event.delay, " or later, when the breaker allows it" if spared else "")
        case "delayed copy":
            return _redelivery(event.delay, _COPY)
        case "delayed by the broker":
            return _redelivery(event.delay, _ITSELF)
        case "dead-letter copy" | "poison acknowledgement":
            return _dead_letter(event.to, event.details.own_place)
        case "drop":
            return "accepted and dropped"
        case "stop":
            return "its consumer stops"
        case "set aside":
            return "poison, and set aside"
        case "none" if event.outcome == "stale":
            return "its connection was lost, and the broker redelivers it"
        case "none":
            return "released to the broker, because the consumer ends"


def _redelivery(delay: float | None, holds: str = "") -> str:
    # For example the longest delay of a Java client, 2^63-1 ms.
    if delay is None or delay > NEVER:
        return "no redelivery for 100 years"
    seconds = f"{delay:.3f}".rstrip("0").rstrip(".")
    return f"redelivery in {seconds} s{holds}"


def _dead_letter(to: str | None, own_place: str) -> str:
    if to is not None:
        return f"poison, a copy goes to {to}"
    return f"poison, the broker dead-letters it{own_place and f' (to {own_place})'}"


def _overdue(event: HandlerOverdue) -> Line:
    what = f"{named(event)}: its handler"
    if event.timeout is None:
        return Line(logging.INFO, f"{what} has run for {event.seconds:.0f} s; its listener has no timeout=")
    if event.given_up:
        text = f"{what} has not ended within {event.seconds:g} s, twice its timeout; it is given up"
        return Line(logging.ERROR, text)
    ends = "it is cancelled" if event.cancelled else "nothing can stop a thread"
    return Line(
        logging.WARNING, f"{what} has run for {event.timeout:g} s, its timeout; {ends}\n{event.stack}"
    )


# Line of each type of event; other events have none.
FORMS: dict[type[Event], Callable[[Any], Line | None]] = {
    BreakerChanged: _breaker,
    Connected: _connected,
    ConnectionLost: _lost,
    ConsumerRefused: _refused,
    ConsumerStarted: _started,
    ConsumerStopped: _stopped,
    CreditSpent: _spent,
    DrainBegun: _drain_begun,
    Drained: _drained,
    DeadLetterFailed: _dead_letter_failed,
    DeadLettering: _dead_lettering,
    Deduplicated: _deduplicated,
    Dropped: _dropped,
    Finished: _finished,
    HandlerOverdue: _overdue,
    ManyLosses: _losses,
    ManyDropped: _many_dropped,
    Parked: _parked,
    ParkingFull: _full,
    PolicyFault: _policy,
    QueueAdvice: _advice,
    QueueCaution: _caution,
    ResultStale: _stale,
    SetAside: _set_aside,
    TakenBack: _taken_back,
    Unaccounted: _unaccounted,
    Unanswered: _unanswered,
    WorkerEnded: _worker_ended,
}
