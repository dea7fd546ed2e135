"""The tools of a dead-letter queue: `redelivery.dead_letters`."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Self, Unpack, cast

from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.option_values import seconds
from redelivery.dlq import export
from redelivery.dlq.dlq_connection import DeadLetterConnection
from redelivery.dlq.ledger_causes import LedgerCauses
from redelivery.dlq.queue_browser import IDLE, QueueBrowser
from redelivery.dlq.removal_run import RemovalPlan, RemovalRun, check_in_flight, new_run
from redelivery.dlq.results import CauseGroup, CountedLetters, Purged, Redriven, contents_of, summarise
from redelivery.dlq.selection import EVERYTHING, Filters, Selection
from redelivery.driver.port import single
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from redelivery.clock import Clock
    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery.dlq.ledger_causes import CauseOf
    from redelivery.ledger import Ledger

    Told = Callable[[int], None]

__all__ = ["DeadLetterQueue", "dead_letters"]


def dead_letters(
    uri: str,
    queue: str | None = None,
    *,
    take: bool = False,
    idle: float = IDLE,
    ledger: Ledger | str | None = None,
    cause_of: CauseOf | None = None,
    clock: Clock | None = None,
) -> DeadLetterQueue:
    """Return the tools of a dead-letter queue. No I/O happens before `with`.

    Args:
        uri: as for `redelivery.connect`.
        queue: the dead-letter queue; by default the URI's `redelivery.deadLetterDestination`, or the broker's own.
        take: read by receiving and giving back, where the broker cannot show a queue without taking from it.
        idle: seconds (2 by default) after the last message when a queue that is taken from is at its end.
        ledger: the ledger of whoever consumed, as for `redelivery.connect`, or its URL; by default the URI's
            `redelivery.ledger`. It tells of what the broker poisoned itself why it died, and where it came from. It is
            only read: it must be there, and may be in use.
        cause_of: asked before the ledger: `cause_of(destination, message_id)`.
        clock: a `redelivery.testing.ManualClock` in tests.

    Raises:
        ConfigurationError: an option, or an argument, cannot be honoured.
    """
    return DeadLetterQueue(uri, queue, take=take, idle=idle, ledger=ledger, cause_of=cause_of, clock=clock)


class DeadLetterQueue:
    """A dead-letter queue, looked after over a connection of its own. Use it as a context manager."""

    def __init__(
        self,
        uri: str,
        queue: str | None,
        *,
        take: bool,
        idle: float,
        ledger: Ledger | str | None,
        cause_of: CauseOf | None,
        clock: Clock | None,
    ) -> None:
        self._reading = DeadLetterConnection(uri, ledger=cast("Ledger | None", ledger), clock=clock)
        self._idle = seconds(idle, "idle")
        if not self._idle:
            raise ConfigurationError("idle must be more than 0 seconds", option="idle")
        self._memories = LedgerCauses(self._reading.ledger, cause_of)
        self._browser = QueueBrowser(self._reading, queue, self._memories, take=take, idle=self._idle)

    def __enter__(self) -> Self:
        """Read the ledger, if there is one, and connect. Raises as `Connection.__enter__` does."""
        self._memories.refresh()
        self._reading.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reading.close()

    @property
    def queue(self) -> str:
        """The dead-letter queue, qualified."""
        return self._browser.queue

    @property
    def browses(self) -> bool:
        """Whether a look takes nothing: then what would be done can be counted before. Only inside of `with`."""
        return self._browser.takes_nothing

    @property
    def limit(self) -> str | None:
        """Why the last look may not have shown everything, or None."""
        return self._browser.limit

    # Looking.

    def summary(self, **filters: Unpack[Filters]) -> Sequence[CauseGroup]:
        """Count them by original destination, kind of cause and day; the most first. Arguments and errors as `list`."""
        return summarise(self.list(**filters))

    def list(self, **filters: Unpack[Filters]) -> Iterator[DeadLetter]:
        """Go through the dead letters, as the broker orders them. They stay where they are.

        Args:
            cause, destination, id, older_than, younger_than: which ones; see `redelivery.dlq.selection.Filters`.

        Raises:
            ConfigurationError: the broker takes what it shows, and `take` was not given; or a filter makes no sense.
            AdapterError: the broker refuses the queue.
            TransportError: the connection was lost.
        """
        selection = Selection.of(filters)
        return (letter for _, letter in self._browser.look(selection))

    def __iter__(self) -> Iterator[DeadLetter]:
        """Go through all dead letters."""
        return self.list()

    def contents(self, *, take: bool = False) -> CountedLetters:
        """Count all that is there by cause and by origin: for who meant something that is not. Errors as `list`.

        Args:
            take: receive and give back where the broker cannot show the queue, as `dead_letters(take=True)` does.
        """
        return contents_of(letter for _, letter in self._browser.look(EVERYTHING, take=take))

    def show(self, message_id: str) -> DeadLetter:
        """Return the dead letter with this id, its own or the one it had before.

        Raises:
            AdapterError: there is none; and as `list`.
        """
        for letter in self.list(id=message_id):
            return letter
        raise AdapterError(f"there is no dead letter {message_id!r} in {self.queue}")

    def export(
        self,
        target: IO[bytes] | str | os.PathLike[str],
        form: str = "jsonl",
        *,
        told: Told | None = None,
        **filters: Unpack[Filters],
    ) -> int:
        """Write them as `jsonl` or `parquet` (needs pyarrow); return how many.

        Args:
            target: a binary file, or the name of one, which it gets only when all of it is written.
            form: `jsonl` by default; the columns are in `redelivery.dlq.export`.
            told: called with the number written so far.
            cause, destination, id, older_than, younger_than: which ones.

        Raises:
            ConfigurationError: there is no such form, or pyarrow is not installed.
            OSError: it cannot be written; and as `list`.
        """
        export.check(form)
        if not isinstance(target, str | os.PathLike):
            return export.write(self.list(**filters), target, form, told)
        with export.published(target) as file:
            return export.write(self.list(**filters), file, form, told)

    # Taking away.

    def redrive(
        self,
        *,
        to: str | None = None,
        rate: float | None = None,
        in_flight: int | None = None,
        quarantine: str | None = None,
        maximum_redrives: int = 3,
        topics: bool = False,
        native: bool = False,
        dry_run: bool = False,
        told: Told | None = None,
        **filters: Unpack[Filters],
    ) -> Redriven:
        """Put dead letters back where they came from. Each leaves only after the broker has confirmed its copy.

        Killed, it is started again: what went is gone from here, and at most one (or `in_flight`) is there twice.

        Args:
            to: where they all go instead.
            rate: messages a second at most; as fast as it goes by default.
            in_flight: copies that may be unconfirmed at once, where a copy and its acceptance are two; 1 by default, 65
                where the broker drops a second copy. So many messages at most may a kill leave twice.
            quarantine: where those go that have been redriven `maximum_redrives` times (3 by default) and died again.
            maximum_redrives: see `quarantine`.
            topics: also put back what came from a topic, though each of its subscribers gets it.
            native: also put back what came from an address of the broker's own (`native://…`), which nothing can check.
            dry_run: send nothing, and report what would be done.
            told: called with the number of messages sent so far.
            cause, destination, id, older_than, younger_than: which ones; see `redelivery.dlq.selection.Filters`.

        Raises:
            ConfigurationError: an argument makes no sense.
            AdapterError: the broker refuses the queue, or where a message should go; nothing of it is lost.
            TransportError: the connection was lost, and reconnecting was given up.
        """
        selection = Selection.of(filters)
        places = self._other("to", to), self._other("quarantine", quarantine)
        redrive = Redrive(new_run(), *places, maximum_redrives, native=native)
        if isinstance(maximum_redrives, bool) or maximum_redrives < 1:
            raise ConfigurationError(
                f"maximum_redrives must be 1 or more, not {maximum_redrives!r}", option="maximum_redrives"
            )
        plan = RemovalPlan(self.queue, selection, redrive, topics=topics or to is not None)
        check_in_flight(in_flight, self._reading.capabilities)
        return cast("Redriven", self._done(plan, rate, told, dry_run=dry_run, in_flight=in_flight))

    def purge(self, *, dry_run: bool = False, told: Told | None = None, **filters: Unpack[Filters]) -> Purged:
        """Drop dead letters for ever. Arguments and errors as `redrive`."""
        plan = RemovalPlan(self.queue, Selection.of(filters), None, topics=True)
        return cast("Purged", self._done(plan, None, told, dry_run=dry_run))

    def _done(
        self,
        plan: RemovalPlan,
        rate: float | None,
        told: Told | None,
        *,
        dry_run: bool,
        in_flight: int | None = None,
    ) -> Redriven | Purged:
        if rate is not None and not seconds(rate, "rate"):
            raise ConfigurationError("rate must be more than 0 messages a second", option="rate")
        if plan.redrive is not None:
            plan.redrive.origin = self._memories.origin
        if plan.selection.nothing:
            return plan.report(None, dry_run=dry_run)
        if not dry_run:
            self._memories.refresh()
            run = RemovalRun(
                self._reading,
                plan,
                self._browser.read,
                rate=rate,
                idle=self._idle,
                told=told,
                in_flight=in_flight,
            )
            return plan.report(run.carry_out())
        now = self._reading.clock.time()
        for delivery, letter in self._browser.look(Selection()):
            verdict = plan.judge(letter, delivery, now)
            if verdict == "go":
                plan.gone(delivery)
            else:
                plan.left[verdict] += 1
        return plan.report(self.limit, dry_run=True)

    def _other(self, option: str, destination: str | None) -> str | None:
        """Return a place for dead letters that is not this queue itself. Raises ConfigurationError."""
        if destination is None:
            return None
        parsed = str(single(destination))
        if parsed == self.queue:
            raise ConfigurationError(
                f"{option}={destination} is the dead-letter queue itself: name another queue", option=option
            )
        return parsed
