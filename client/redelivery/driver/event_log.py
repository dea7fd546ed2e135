"""Log of a connection: the first observer of its events. It formats each as one line; never a message's contents.

A line on a message is `destination: id: what happened; what happens next`, with the message's own destination. A line
on a consumer begins with its destination. Tracebacks of handlers are logged at DEBUG only.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from redelivery.core.delivery import Cause
from redelivery.core.printable import NO_ID, printable
from redelivery.core.tested_versions import untested
from redelivery.driver.breaker_log import breaker_line
from redelivery.driver.log_groups import LogGroups
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
    from collections.abc import Callable

    from redelivery.clock import Clock
    from redelivery.events import Event, MessageEvent

__all__ = ["EventLog", "Line", "named"]

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
        form = LINES.get(type(event))
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
LINES: dict[type[Event], Callable[[Any], Line | None]] = {
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
