"""The core engine over what the log holds: counts it, waits, and has it dead-lettered. One thread."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from redelivery.core.commands import (
    Accept,
    Bury,
    Clear,
    Dispatch,
    Dropped,
    Forward,
    Hold,
    LookUp,
    Poison,
    Stop,
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
    Released,
    Succeeded,
    Tick,
    Wanted,
)
from redelivery.core.ledger import Entry, fingerprint
from redelivery.drive import log
from redelivery_spark.rows import CONSUMER, LOG_EPOCH, LoggedDelivery

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Command
    from redelivery.core.delivery import Cause, Delivery, Record
    from redelivery.core.engine import Engine
    from redelivery.core.events import Event
    from redelivery.core.policy_map import RedeliveryPolicyMap
    from redelivery.errors import RedeliveryError
    from redelivery_spark.log.ledger import LogLedger

__all__ = ["Originals", "Redeliveries"]

logger = logging.getLogger("redelivery.spark")
DEFERRAL, LONGEST_DEFERRAL = (
    1.0,
    60.0,
)  # seconds that a row waits whose batch failed together with everything else
SPARED = (
    10  # times that it is not charged for that: five minutes; then it may well be that there are only killers
)


class Originals(Protocol):
    """What the broker still has of the rows, and the way to it."""

    def accept(self, key: Hashable) -> None:
        """Accept the original, if the broker still has it."""

    def poison(self, key: Hashable, cause: Cause, done: Callable[[], None]) -> None:
        """Have the broker dead-letter the original; `done` is called when it has been told, which may be later."""

    def forward(self, command: Forward, done: Callable[[RedeliveryError | None], None]) -> None:
        """Send the copy; `done` is called, on any thread, when the broker has answered."""


class Redeliveries:
    """Drives one engine. What it hands out runs until `finish` or `crashed`."""

    def __init__(
        self,
        engine: Engine,
        capabilities: Capabilities,
        ledger: LogLedger,
        policies: RedeliveryPolicyMap,
        originals: Originals,
        clock: Clock,
    ) -> None:
        self.engine = engine
        self.ledger = ledger
        self.error: RedeliveryError | None = None
        self.changed = False
        """Whether there is something that the log has not been told."""
        self._policies = policies  # for the log; the engine has them too
        self._originals = originals
        self._clock = clock
        self._answers: deque[tuple[Delivery, RedeliveryError | None]] = deque()
        self._found: deque[LoggedDelivery] = deque()  # given out by the engine, not yet by `take`
        self.held: dict[LoggedDelivery, None] = {}
        """All that waits or runs here, or whose dead letter is not safe yet."""
        self._feed(Connected(LOG_EPOCH, capabilities))

    # Rows in and out.

    def restore(self, rows: Sequence[LoggedDelivery], records: Sequence[Record]) -> None:
        """Take in what the log holds: rows, and what is known of each."""
        for row in rows:
            self.held[row] = None
        inherited = {row.key: record for row, record in zip(rows, records, strict=True)}
        self._feed(Inherited(inherited))
        self._feed(Arrived(CONSUMER, rows))
        self.changed = False

    def add(self, row: LoggedDelivery) -> None:
        """Take in a row that runs for the first time: the batch that it is in has begun."""
        self.held[row] = None
        row.state, row.outcome = "ready", None  # it may have been here before
        self._feed(Arrived(CONSUMER, [row]))
        while row not in self._found and self._wanted():
            pass
        self._found = deque(each for each in self._found if each is not row)

    def take(self, most: int) -> list[LoggedDelivery]:
        """Return rows whose time has come; they run until they are finished."""
        while len(self._found) < most and self._wanted():
            pass
        return [self._found.popleft() for _ in range(min(most, len(self._found)))]

    def take_alone(self) -> LoggedDelivery | None:
        """Return a row that may kill whatever runs it, and must be the only one of its batch."""
        self._feed(Alone())
        return self._found.pop() if self._found else None

    @property
    def suspects(self) -> int:
        """How many rows wait for a batch of their own."""
        return self.engine.suspects

    def next_due(self) -> float | None:
        """Return the seconds until a row's time comes, or None."""
        if self._found:
            return 0.0
        due = self.engine.next_due()
        return None if due is None else max(0.0, due - self._clock.monotonic())

    # What became of them.

    def part_with(self, row: LoggedDelivery) -> None:
        """Give a row that runs back to who asked for it, uncounted: it comes again by `add`."""
        self._finish(Released(row))
        self.held.pop(row, None)

    def succeeded(self, row: LoggedDelivery) -> None:
        """Its batch has been committed."""
        self._finish(Succeeded(row))

    def failed(self, row: LoggedDelivery, kind: str, cause: Cause, delay: float) -> None:
        """Its handler raised: `kind` is what the classifier made of it."""
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

    def crashed(self, row: LoggedDelivery, cause: Cause, *, world: bool) -> None:
        """It was the only row of a batch that failed: it is charged, and goes on alone.

        `world`: so much failed that it need not be the row's fault: then it is tried again a few times before that.
        """
        spared = 0 if row.record is None else row.record.deferrals
        if world and spared < SPARED:
            delay = min(DEFERRAL * 2**spared, LONGEST_DEFERRAL)
            self._finish(Deferred(row, delay, cause))
        else:
            self._finish(Failed(row, cause))
        if row in self.held:
            self.suspect(row)

    def suspect(self, row: LoggedDelivery) -> None:
        """See to it that a row runs in a batch of its own."""
        key = fingerprint(row)
        self.ledger.entries[key] = replace(self.ledger.entries.get(key) or Entry(), suspect=True)
        self.changed = True

    def pump(self) -> None:
        """Take the answers to dead letters, and let the engine look at the time. Raises what must end the query."""
        while self._answers:
            delivery, error = self._answers.popleft()
            if error is not None:
                logger.warning("%s: its dead letter is tried again: %s", delivery.message_id, error)
            self._feed(Confirmed(delivery, error))
        alarm = self.engine.next_alarm()
        if alarm is not None and alarm <= self._clock.monotonic():
            self._feed(Tick())
        if self.error is not None:
            raise self.error

    # The engine.

    def _finish(self, event: Event) -> None:
        commands = self._feed(event)
        line = None if isinstance(event, Succeeded) else log.said(event, commands, self._policies)
        log.say(line)

    def _wanted(self) -> bool:
        """Ask the engine for a row; False: there is none at the moment."""
        return bool(self._feed(Wanted()))

    def _feed(self, event: Event) -> Sequence[Command]:
        now = self._clock.monotonic()
        self.engine.wall_offset = self._clock.time() - now
        commands = self.engine.feed(event, now)
        for command in commands:
            self._carry_out(command)
        return commands

    def _carry_out(self, command: Command) -> None:
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
                self._done(command.deliveries)
            case Forward():
                delivery = command.delivery
                self._originals.forward(command, lambda error: self._answers.append((delivery, error)))
            case Poison():
                poisoned = command.delivery
                self._originals.poison(
                    poisoned.key, command.cause, lambda: self._answers.append((poisoned, None))
                )
            case Hold():
                self.changed = True
            case Stop():
                self.error = command.error
            case Dropped():
                logger.info("%s: dropped: %s", command.delivery.message_id, command.cause.text)
            case Unanswered():
                logger.warning(
                    "%s: no answer to its dead letter for %g s", command.delivery.message_id, command.seconds
                )
            case _:
                pass

    def _done(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            self._let_go(delivery)
            self._originals.accept(delivery.key)

    def _let_go(self, delivery: Delivery) -> None:
        self.changed = True
        assert isinstance(delivery, LoggedDelivery)
        self.held.pop(delivery, None)
