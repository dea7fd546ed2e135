"""Driver of the core engine for rows of the write-ahead log: counts, delays, dead-letters. One thread."""

from __future__ import annotations

import json
import logging
from collections import deque
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, assert_never

from redelivery.clock import pass_time
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
    LossesCounted,
    Mark,
    PoisonAck,
    PolicyFault,
    Postponed,
    Refused,
    Release,
    Reschedule,
    SetAside,
    StillAside,
    Stop,
    TookBack,
    Unanswered,
)
from redelivery.core.delivery import BodyKind, Cause, Delivery, Record
from redelivery.core.events import (
    Alone,
    Arrived,
    Confirmed,
    Connected,
    Deferred,
    Discarded,
    Failed,
    Inherited,
    Known,
    Poisoned,
    Resumed,
    Succeeded,
    Tick,
    Wanted,
)
from redelivery.core.ledger_entry import Entry, fingerprint
from redelivery.core.shown_values import printable_id
from redelivery.driver.port import restorer
from redelivery_spark.wal.records import DIED
from redelivery_spark.wal.wal_state import Fact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command
    from redelivery.core.engine import Engine
    from redelivery.core.events import Event
    from redelivery.driver.port import Restore
    from redelivery.errors import RedeliveryError
    from redelivery_spark.wal.places import Place
    from redelivery_spark.wal.wal_state import WalLedger

__all__ = ["EngineDriver", "LoggedDelivery", "StoredRow", "fact_of", "record_of", "restored"]


# ---- Logged delivery -------------------------------------------------------------------------------------
# Row of the log as the engine takes it: the original message, identified by its place in the log.

LOG_EPOCH = 1
"""Epoch of rows in the log: no connection is ever lost to it."""
CONSUMER = 0


@dataclass(frozen=True, slots=True)
class StoredRow:
    """Row as stored in the log. `place`: its first place in the log; `count`: that of its last delivery.

    `wire`: JSON by which the bytes are restored to a delivery; `arrived`: seconds since the Unix epoch.
    """

    place: Place
    head: bytes
    body: bytes | None
    wire: str
    arrived: float
    count: int = 1


@lru_cache(maxsize=64)
def _restorer(wire: str) -> Restore:
    return restorer(json.loads(wire))


def restored(row: StoredRow) -> Delivery:
    """Return the message of a row. Raises ConfigurationError: its protocol is not installed here."""
    return _restorer(row.wire)(row.head, row.body, row.arrived)


class LoggedDelivery(Delivery):
    """One row. Only the log has its message: the broker has dropped it."""

    __slots__ = ("delay", "message", "passed", "row")

    def __init__(self, row: StoredRow) -> None:
        self.message = restored(row)
        super().__init__(CONSUMER, LOG_EPOCH, self.message.body)
        self.row = row
        # Its last delay, in seconds.
        self.delay = 0.0
        # Number of batches that had succeeded when it last failed as the only row of one.
        self.passed: int | None = None

    @property
    def place(self) -> Place:
        """First place of the row in the log. No two rows have the same."""
        return self.row.place

    @property
    def count(self) -> int:
        """Count of its next delivery: 1 at first."""
        return 1 + (0 if self.record is None else self.record.count)

    @property
    def original(self) -> bool:
        return False

    @property
    def key(self) -> Place:
        return self.row.place

    @property
    def strong(self) -> bool:
        return True

    @property
    def identity(self) -> str | None:
        return self.message.identity

    @property
    def destination(self) -> str:
        return self.message.destination

    @property
    def origin(self) -> str | None:
        return self.message.origin

    @property
    def moved(self) -> bool:
        return self.message.moved

    @property
    def died_of(self) -> str | None:
        return self.message.died_of

    @property
    def redelivered(self) -> bool:
        return self.message.redelivered

    @property
    def expires_at(self) -> float | None:
        return self.message.expires_at

    @property
    def group(self) -> str | None:
        return self.message.group

    @property
    def persistent(self) -> bool:
        return self.message.persistent

    @property
    def body_kind(self) -> BodyKind:
        return self.message.body_kind

    @property
    def readable(self) -> bool:
        return self.message.readable

    @property
    def message_id(self) -> str | None:
        return self.message.message_id

    @property
    def noted(self) -> Mapping[str, Any]:
        return self.message.noted

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.message.headers

    @property
    def content_type(self) -> str | None:
        return self.message.content_type

    @property
    def correlation_id(self) -> str | None:
        return self.message.correlation_id

    @property
    def reply_to(self) -> str | None:
        return self.message.reply_to

    @property
    def message_type(self) -> str | None:
        return self.message.message_type

    @property
    def priority(self) -> int:
        return self.message.priority

    @property
    def timestamp(self) -> datetime | None:
        return self.message.timestamp

    @property
    def expiration(self) -> datetime | None:
        return self.message.expiration

    @property
    def value(self) -> Any:
        return self.message.value


# ---- Engine driver ---------------------------------------------------------------------------------------

if TYPE_CHECKING:
    Answer = Callable[[RedeliveryError | None], None]


logger = logging.getLogger("redelivery.spark")
# Rows restored together: fewer than an engine remembers.
CHUNK = 1000
# Seconds between two looks at the broker's answers.
POLL = 0.005
DEFERRAL, LONGEST_DEFERRAL = 1.0, 60.0
"""Seconds that a row waits whose batch failed while no other batch succeeded: doubled from the first to the last."""


class EngineDriver:
    """Drives one engine. Rows that it hands out run until `finish` or `crashed`."""

    def __init__(
        self,
        engine: Engine,
        capabilities: Capabilities,
        ledger: WalLedger,
        log: Callable[[Event, Sequence[Command]], None],
        forward: Callable[[Forward, Answer], None],
        clock: Clock,
    ) -> None:
        self.engine = engine
        self.ledger = ledger
        self.error: RedeliveryError | None = None
        self.changed = False
        """True if the log does not have the newest state."""
        # Logs a result and the commands that follow from it.
        self._log = log
        # Sends a dead letter; the answer is reported on any thread.
        self._forward = forward
        self._clock = clock
        self._answers: deque[tuple[Delivery, RedeliveryError | None]] = deque()
        # Rows that the engine has handed out, and `take` not yet.
        self._found: deque[LoggedDelivery] = deque()
        self.held: dict[Place, LoggedDelivery] = {}
        """All rows that wait or run here, or whose dead letter is not confirmed."""
        self._feed(Connected(LOG_EPOCH, capabilities))

    # Rows in and out.

    def restore(self, rows: Sequence[LoggedDelivery]) -> None:
        """Add rows that wait, each with its record."""
        for begin in range(0, len(rows), CHUNK):
            part = rows[begin : begin + CHUNK]
            self.held |= {row.place: row for row in part}
            self._feed(Inherited({row.key: row.record for row in part if row.record is not None}))
            self._feed(Arrived(CONSUMER, part))
        self.changed = False

    def add(self, row: LoggedDelivery) -> None:
        """Add a row that runs: it is in the current batch."""
        self.held[row.place] = row
        self._feed(Resumed(row))
        assert row.state == "running", row.state

    def take(self, most: int, most_bytes: int) -> list[LoggedDelivery]:
        """Return due rows up to these limits, at least one if there is any; they run until they are finished."""
        taken: list[LoggedDelivery] = []
        size = 0
        while len(taken) < most and size < most_bytes and (self._found or self._wanted()):
            if self._found:
                taken.append(self._found.popleft())
                size += len(taken[-1].body)
        return taken

    def take_alone(self) -> LoggedDelivery | None:
        """Return a row that may kill the process that runs it, and that must be the only one of its batch."""
        self._feed(Alone())
        return self._found.pop() if self._found else None

    @property
    def suspects(self) -> int:
        """Number of rows that wait for a batch of their own."""
        return self.engine.load.suspects

    def next_due(self) -> float | None:
        """Return the seconds until the next row is due, or None."""
        if self._found:
            return 0.0
        due = self.engine.load.next_due()
        return None if due is None else max(0.0, due - self._clock.monotonic())

    # Results of rows.

    def succeeded(self, row: LoggedDelivery) -> None:
        """Finish a row whose batch has been committed."""
        self._finish(Succeeded(row))

    def failed(self, row: LoggedDelivery, kind: str, cause: Cause, delay: float) -> None:
        """Finish a row whose handler raised. `kind`: the classifier's verdict."""
        match kind:
            case "poison":
                event: Event = Poisoned(row, cause)
            case "discard":
                event = Discarded(row, cause)
            case "defer":
                event = Deferred(row, delay, cause)
            case _:
                event = Failed(row, cause)
        self._finish(event)
        if kind == DIED and row.place in self.held:
            self._suspect(row)

    def spared(self, row: LoggedDelivery, cause: Cause) -> None:
        """Retry a row whose batch failed and had only this row, while no other batch has succeeded since.

        The row need not be the cause: the sink can be. The row is tried alone again, up to
        `redelivery.maximumDeferrals` times, before it is charged: there may be only such rows.
        """
        logger.error(
            "%s: its batch failed, and no other batch has succeeded since (%s); check the sink, which may be the "
            "cause; the message is tried again alone",
            printable_id(row.message_id),
            cause.text,
        )
        before = 0 if row.record is None else row.record.deferrals
        self._finish(Deferred(row, min(DEFERRAL * 2 ** min(before, 10), LONGEST_DEFERRAL), cause))
        if row.place in self.held:
            self._suspect(row)

    def _suspect(self, row: LoggedDelivery) -> None:
        """Mark a row to run in a batch of its own."""
        key = fingerprint(row)
        self.ledger.entries[key] = replace(self.ledger.entries.get(key) or Entry(), suspect=True)
        self.changed = True

    def added_to(self, totals: dict[str, int]) -> dict[str, int]:
        """Return totals with the results of rows in this process added."""
        counts = self.engine.state.counts
        return totals | {
            name: totals[name] + getattr(counts, name)
            for name in ("redelivered", "deferred", "poisoned", "discarded")
        }

    def wait_answered(self, timeout: float) -> None:
        """Wait until the broker has answered all dead letters, or for `timeout` seconds; then take the answers.

        It sends nothing: a dead letter that was refused is not sent again here.
        """
        deadline = self._clock.monotonic() + timeout
        while len(self._answers) < self.engine.load.in_doubt:
            if (left := deadline - self._clock.monotonic()) <= 0:
                break
            # SIGTERM raises SystemExit on this thread, at any point: a lock that the connection needs could stay taken.
            pass_time(self._clock, min(left, POLL))
        self._take_answers()

    def pump(self) -> None:
        """Handle answers to dead letters, and run the engine's timers. Raises the error that must end the query."""
        self._take_answers()
        alarm = self.engine.next_alarm()
        if alarm is not None and alarm <= self._clock.monotonic():
            self._feed(Tick())
        if self.error is not None:
            raise self.error

    def _take_answers(self) -> None:
        unconfirmed: dict[str, list[Delivery]] = {}
        while self._answers:
            delivery, error = self._answers.popleft()
            if error is not None:
                unconfirmed.setdefault(str(error), []).append(delivery)
            self._feed(Confirmed(delivery, error))
        # One line for all: without a broker there can be thousands.
        for text, (first, *others) in unconfirmed.items():
            logger.warning(
                "%s: %s: its dead letter was not confirmed (%s); it is sent again%s",
                first.destination,
                printable_id(first.message_id),
                text,
                f", as are those of {len(others)} other messages" if others else "",
            )

    # The engine.

    def _finish(self, event: Event) -> None:
        commands = self._feed(event)
        if not isinstance(event, Succeeded):
            self._log(event, commands)

    def _wanted(self) -> bool:
        """Ask the engine for a row; return False if it has none at the moment."""
        return bool(self._feed(Wanted()))

    def _feed(self, event: Event) -> Sequence[Command]:
        now = self._clock.monotonic()
        self.engine.state.wall_offset = self._clock.time() - now
        commands = self.engine.feed(event, now)
        for command in commands:
            self._carry_out(command)
        return commands

    def _carry_out(self, command: Command) -> None:  # noqa: C901, PLR0912 - it is the table of commands
        match command:
            case LookUp():
                entry = self.ledger.look_up(fingerprint(command.delivery))
                self._feed(Known(command.delivery, entry))
            case Dispatch():
                assert isinstance(command.delivery, LoggedDelivery)
                self._found.append(command.delivery)
            case Clear():
                self.changed = True
                key = fingerprint(command.delivery)
                self.ledger.end(None, key, command.entry, failed=command.failed, keep=command.keep)
            case Bury():
                self.ledger.bury(command.key, command.buried)
                self._let_go(command.delivery)
            case Accept():
                for done in command.deliveries:
                    self._let_go(done)
            case Forward():
                delivery = command.delivery
                self._forward(command, lambda error: self._answers.append((delivery, error)))
            case Hold():
                assert isinstance(command.delivery, LoggedDelivery)
                command.delivery.delay = command.delay
                self.changed = True
            case Stop():
                self.error = command.error
            case Dropped():
                logger.info("%s: dropped: %s", printable_id(command.delivery.message_id), command.cause.text)
            case Unanswered(unanswered, lasted):
                logger.warning(
                    "%s: no answer to its dead letter for %g s", printable_id(unanswered.message_id), lasted
                )
            case PolicyFault():
                logger.error("the policy %s: %s", type(command.policy).__name__, command.text)
            # A row runs with its batch and stays in the log. A port's plan has no breaker, and sets nothing aside.
            case Mark() | Release() | Credit() | AcceptUnseen() | SetAside() | StillAside() | PoisonAck():
                pass
            # Refusals have one line for all, where their answers are taken.
            case BreakerChanged() | TookBack() | LossesCounted() | Reschedule() | Postponed() | Refused():
                pass
            case _:
                assert_never(command)

    def _let_go(self, delivery: Delivery) -> None:
        self.changed = True
        assert isinstance(delivery, LoggedDelivery)
        self.held.pop(delivery.place, None)


# ---- Record codec ----------------------------------------------------------------------------------------
# Conversion of a row's failure state: the engine's records and the log's facts.


def record_of(fact: Fact, clock: Clock) -> Record:
    """Return the engine's record of a row that was in the log.

    No row waits for longer than its delay, wherever the clock stood when that was written.
    """
    record = Record()
    now = clock.monotonic()
    offset, entry = clock.time() - now, fact.entry
    record.count, record.deferrals, record.exhausted = entry.count, fact.deferrals, fact.exhausted
    record.cause = None if entry.cause is None else Cause(entry.cause)
    record.first_failure = None if entry.first is None else entry.first - offset
    record.last_failure = None if entry.last is None else entry.last - offset
    record.poisoned = entry.poisoned
    record.due = now if fact.due is None else min(fact.due - offset, now + fact.delay)
    return record


def fact_of(row: LoggedDelivery, ledger: WalLedger, clock: Clock) -> Fact:
    """Return the facts of a row to be stored."""
    entry, record = ledger.entries.get(fingerprint(row)) or Entry(), row.record
    if record is None:
        return Fact(row.place, entry, passed=row.passed)
    due = None if record.due is None else record.due + clock.time() - clock.monotonic()
    return Fact(row.place, entry, due, row.delay, record.deferrals, record.exhausted, row.passed)
