"""Driver of the core engine for rows of the write-ahead log: counts, delays, dead-letters. One thread."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

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
from redelivery.core.printable import printable_id
from redelivery_spark.stream.logged_delivery import CONSUMER, LOG_EPOCH, LoggedDelivery
from redelivery_spark.wal.records import DIED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command
    from redelivery.core.delivery import Cause, Delivery
    from redelivery.core.engine import Engine
    from redelivery.core.events import Event
    from redelivery.errors import RedeliveryError
    from redelivery_spark.wal.places import Place
    from redelivery_spark.wal.wal_ledger import WalLedger

    Answer = Callable[[RedeliveryError | None], None]

__all__ = ["EngineDriver"]

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
        counts = self.engine.counts
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
        self.engine.wall_offset = self._clock.time() - now
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
