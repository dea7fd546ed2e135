"""Log lines about messages: what happened to each, and what happens next; never their contents.

A line on a message is `destination: id: what happened; what happens next`, with the message's own destination. A line
on a consumer begins with its destination. Tracebacks of handlers are logged at DEBUG only.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple, assert_never

from redelivery.core.commands import (
    Accept,
    AcceptUnseen,
    BreakerChanged,
    Bury,
    Clear,
    Credit,
    Dispatch,
    Dropped,
    Forward,
    Hold,
    LookUp,
    Mark,
    PoisonAck,
    PolicyFault,
    Release,
    SetAside,
    StillAside,
    Stop,
    Unanswered,
)
from redelivery.core.events import (
    Alone,
    Arrived,
    Committed,
    Confirmed,
    Connected,
    ConnectionLost,
    Continued,
    Deferred,
    Discarded,
    Drained,
    Failed,
    Inherited,
    Known,
    Paused,
    Poisoned,
    Released,
    Resumed,
    Succeeded,
    Tick,
    Wanted,
)
from redelivery.core.policy.policy_guard import limit_of
from redelivery.errors import RedeliveryError
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from redelivery.core.commands import Command, Subscribe
    from redelivery.core.delivery import Delivery
    from redelivery.core.events import Event
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap

    Observer = Callable[[Subscribe, Command], None]

__all__ = [
    "Drops",
    "Line",
    "Once",
    "aside",
    "brief",
    "named",
    "said",
    "say",
    "say_all",
    "stopped",
    "unobserved",
    "unobserved_end",
    "unseen",
    "waits",
]

# Seconds, 100 years: no process waits for that long.
NEVER = 100 * 365.25 * 86400


class Line(NamedTuple):
    """A line of the log that is not written yet: no lock may be held while a log handler runs."""

    level: int
    text: str
    values: tuple[object, ...]
    error: BaseException | None = None


def brief(error: RedeliveryError) -> RedeliveryError:
    """Return an error to be raised `from None` at a public call, with a traceback that begins there.

    The whole traceback is logged at DEBUG.
    """
    logger.debug("%s", error, exc_info=error)
    return error.with_traceback(None)


def named(delivery: Delivery) -> str:
    """Return a message's own destination and its id, with the id that `send` returned if that is another one."""
    sent = delivery.headers.get("redeliveryId")
    own = delivery.message_id
    also = f" (sent as {sent})" if sent is not None and sent != own and own is not None else ""
    return f"{delivery.destination}: {sent if own is None else own}{also}"


def say(line: Line | None) -> None:
    """Write a line. Call it without a lock: a log handler may be slow, and it may close the connection."""
    if line is not None:
        logger.log(line.level, line.text, *line.values, exc_info=line.error)


def say_all(lines: Iterable[Line]) -> None:
    """Write lines. Call it without a lock."""
    for line in lines:
        say(line)


def said(event: Event, commands: Sequence[Command], policies: RedeliveryPolicyMap) -> Line | None:
    """Return the line on the result of a dispatch; None for a message that was accepted or released.

    `commands`: those that follow from the result.
    """
    match event:
        case Failed() if event.delivery.outcome == "spared":
            # The breaker's own lines are warnings.
            level, what = logging.INFO, f"failed, and is not charged ({event.cause.text})"
        case Failed() | Poisoned():
            level, what = logging.WARNING, _failed(event, policies)
        case Deferred():
            record = event.delivery.record
            # Past redelivery.maximumDeferrals.
            charged = event.delivery.outcome in ("redelivered", "poisoned")
            level = logging.WARNING if charged else logging.INFO
            many = f" {record.deferrals} times, and charged" if charged and record is not None else ""
            what = f"deferred{many} ({event.cause.text.removeprefix('Defer: ')})"
        case Discarded():
            level, what = logging.INFO, f"discarded ({event.cause.text.removeprefix('Discard: ')})"
        case Succeeded() | Committed() | Released():
            return None
        case Wanted() | Known() | Alone() | Arrived() | Resumed() | Confirmed() | Tick() | Inherited():
            return None
        case Connected() | ConnectionLost() | Paused() | Continued() | Drained():
            return None
        case _:
            assert_never(event)
    if not logger.isEnabledFor(level):
        return None
    return Line(level, "%s", (f"{named(event.delivery)}: {what}; {_next(event.delivery, commands)}",))


def unseen(command: AcceptUnseen) -> Line | None:
    """Return the line on a message that is accepted without being handled; None if it is not logged."""
    if not logger.isEnabledFor(logging.INFO):
        return None
    text = "%s: accepted without being handled: %s"
    return Line(logging.INFO, text, (named(command.delivery), command.why))


def aside(command: SetAside | StillAside) -> Line | None:
    """Return the line on a message that is set aside, once, and each hour that it still is."""
    if isinstance(command, StillAside):
        what = "still set aside"
    elif command.again:
        return None
    else:
        what = "set aside, and everything else goes on"
    return Line(logging.WARNING, "%s: %s; %s", (named(command.delivery), what, command.error))


def stopped(consumer: Subscribe, command: Stop) -> Line:
    """Return the line on a consumer that stops."""
    return Line(logging.ERROR, "%s: the consumer stops: %s", (consumer.destination, command.error))


def unobserved(consumer: Subscribe, error: BaseException) -> Line:
    """Return the line on an observer that raises."""
    text = "%s: the observer failed; what was decided is carried out"
    if not isinstance(error, Exception):
        text += ", and its consumer stops"
    return Line(logging.ERROR, text, (consumer.destination,), error)


def unobserved_end(consumer: Subscribe, error: BaseException) -> RedeliveryError:
    """Return the error of a consumer that stops because its observer raised what is no `Exception`."""
    stopped = RedeliveryError(f"{consumer.destination}: the observer raised {type(error).__name__}")
    stopped.__cause__ = error
    return stopped


def waits(commands: Sequence[Command]) -> Iterator[Line]:
    """Return the lines on commands that follow from no result.

    They are for messages that were redelivered, have expired, or are repeated.
    """
    for command in commands:
        match command:
            case Accept() | AcceptUnseen() | Dispatch() | Credit() | Release() | Stop() | PolicyFault():
                continue
            case LookUp() | Mark() | Clear() | Bury() | SetAside() | StillAside() | BreakerChanged():
                continue
            case Hold():
                record = command.delivery.record
                put_off = command.deferred and not (record is not None and record.spared)
                what = "deferred before" if put_off else f"failed before ({_cause(command)})"
                line = logging.INFO, what, _redelivery(command)
            case Forward() if command.delayed:
                line = logging.INFO, f"failed before ({command.cause.text})", _copied(command)
            case PoisonAck() | Forward():
                line = logging.WARNING, f"given up ({command.cause.text})", _copied(command)
            case Dropped():
                line = logging.INFO, f"given up ({command.cause.text})", "dropped without a dead letter"
            case Unanswered():
                record = command.delivery.record
                delayed = record is not None and not record.poisoned
                what = "delayed copy" if delayed else "poison acknowledgement"
                what = f"no answer to its {what} for {command.seconds:g} s"
                line = logging.WARNING, what, "waited for as long as the connection stands"
            case _:
                assert_never(command)
        if logger.isEnabledFor(line[0]):
            yield Line(line[0], "%s: %s; %s", (named(command.delivery), *line[1:]))


def _failed(event: Failed | Poisoned, policies: RedeliveryPolicyMap) -> str:
    record = event.delivery.record
    count = 1 if record is None else record.count
    if isinstance(event, Poisoned):
        return f"delivery {count} poisoned ({event.cause.text.removeprefix('Poison: ')})"
    policy = policies.policy_for(event.delivery.destination) if event.policy is None else event.policy
    maximum, _ = limit_of(policy)
    of = "" if maximum < 0 else f" of {maximum + 1}"
    # With a policy's limit of time, if that is why it is poison.
    cause = event.cause if record is None or record.cause is None else record.cause
    return f"delivery {count}{of} failed ({cause.text})"


def _next(delivery: Delivery, commands: Sequence[Command]) -> str:  # noqa: PLR0911 - the table of commands
    for command in commands:
        match command:
            case Hold():
                return _redelivery(command)
            case PoisonAck() | Forward():
                return _copied(command)
            case Accept():
                return "accepted and dropped"
            case Stop():
                return "its consumer stops"
            case SetAside():
                return "poison, and set aside"
            case (
                AcceptUnseen() | Dispatch() | Credit() | Release() | Dropped() | Unanswered() | PolicyFault()
            ):
                pass
            case LookUp() | Mark() | Clear() | Bury() | StillAside() | BreakerChanged():
                pass
            case _:
                assert_never(command)
    if delivery.outcome == "stale":
        return "its connection was lost, and the broker sends it again"
    return "given back to the broker, for the consumer ends"


def _redelivery(command: Hold) -> str:
    return _redelivered(command.delay)


def _redelivered(delay: float) -> str:
    # As Java's longest delay is meant, 2^63-1 ms.
    return "no redelivery for 100 years" if delay > NEVER else f"redelivery in {_seconds(delay)}"


def _seconds(delay: float) -> str:
    return f"{f'{delay:.3f}'.rstrip('0').rstrip('.')} s"


def _cause(command: Hold) -> str:
    return command.cause.text if command.cause else "unknown"


def _copied(command: PoisonAck | Forward) -> str:
    if isinstance(command, Forward):
        if command.copy.delay is not None:
            return f"{_redelivered(command.copy.delay)}, for which the broker holds a copy"
        return f"poison, a copy goes to {command.copy.destination}"
    return "poison, the broker dead-letters it"


class Drops:
    """Logs the number of dead letters that a connection has dropped, once for each `interval` of them; 0: never."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._dropped = 0
        self._lock = threading.Lock()

    def count(self) -> Line | None:
        """Count one more; return the line that is due."""
        with self._lock:
            self._dropped += 1
            dropped = self._dropped
        if not self._interval or dropped % self._interval:
            return None
        text = "%d messages have been dropped instead of dead-lettered (redelivery.reportInterval)"
        return Line(logging.INFO, text, (dropped,))


class Once:
    """Warnings on a consumer that are logged once, because their reason stays. Each is added to `lines`."""

    def __init__(self, consumer: Subscribe, lines: list[Line]) -> None:
        self._consumer = consumer
        self._lines = lines
        self._said: set[str] = set()

    def spent(self, running: int) -> None:
        """Warn that no message arrives because none is settled."""
        self._say(
            "the application holds its whole credit (%d messages) unsettled; nothing more comes until it settles one",
            running,
        )

    def full(self, parked: int) -> None:
        """Warn that no fresh message is dispatched, because too many are parked."""
        self._say(
            "%d messages wait here for a redelivery, a dead letter or the end of the consumer; nothing fresh is "
            "dispatched until one of them is done (redelivery.maxParked)",
            parked,
        )

    def policy(self, fault: PolicyFault) -> None:
        """Log what is wrong with a policy."""
        kind = type(fault.policy)
        # Not by policy: one may be made for each message.
        about = f"{kind.__module__}.{kind.__qualname__}.{fault.member}"
        if about not in self._said:
            self._said.add(about)
            values = self._consumer.destination, kind.__name__, fault.text
            self._lines.append(Line(logging.ERROR, "%s: the policy %s: %s", values, fault.error))

    def stale(self) -> None:
        """Warn of a stale result."""
        self._say("a result came too late, for its connection was lost; the broker sends the message again")

    def _say(self, text: str, *values: object) -> None:
        if text not in self._said:
            self._said.add(text)
            self._lines.append(Line(logging.WARNING, f"%s: {text}", (self._consumer.destination, *values)))
