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
from redelivery.dlq.results import (
    CauseGroup,
    CountedLetters,
    Purged,
    Redriven,
    contents_of,
    summarise,
    together,
)
from redelivery.dlq.selection import EVERYTHING, Filters, Selection
from redelivery.driver.port import single
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from redelivery.clock import Clock
    from redelivery.core.delivery import Delivery
    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery.dlq.ledger_causes import CauseOf
    from redelivery.ledger import Ledger

    Progress = Callable[[int], None]

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
        uri: Connection URI, as for `redelivery.connect`.
        queue: Dead-letter queue, or a pattern (`DLQ.>`): all queues whose names match, each by its own name. None: the
            URI's `redelivery.deadLetterDestination`, or the broker's own.
        take: True: read by receiving and releasing, where the broker cannot show a queue without taking from it.
        idle: Seconds without a message after which a queue that is taken from counts as empty. Default 2.
        ledger: Ledger of the consumer, as for `redelivery.connect`, or its URL; None: the URI's `redelivery.ledger`.
            It has cause and origin of the messages that the broker dead-lettered itself. It is only read: it must
            exist, and can be in use.
        cause_of: Called before the ledger is asked, as `cause_of(destination, message_id)`; None: no such call.
        clock: A `redelivery.testing.ManualClock` in tests; None: the system's clock.

    Returns:
        The tools: a context manager that connects.

    Raises:
        ConfigurationError: An option of the URI, or an argument, cannot be honoured.
    """
    return DeadLetterQueue(uri, queue, take=take, idle=idle, ledger=ledger, cause_of=cause_of, clock=clock)


class DeadLetterQueue:
    """Tools of one dead-letter queue, over a connection of their own. Use it as a context manager."""

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
        self._browser = self._browser_of(queue, take=take)
        self._take = take
        # Browsers of the last look: several where a pattern stands for several queues.
        self._looked: Sequence[QueueBrowser] = (self._browser,)

    def __enter__(self) -> Self:
        """Read the ledger, if there is one, and connect. Raises LedgerError, and as `Connection.__enter__` does."""
        self._memories.refresh()
        self._reading.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reading.close()

    @property
    def queue(self) -> str:
        """Dead-letter queue, qualified."""
        return self._browser.queue

    @property
    def browses(self) -> bool:
        """True if the broker shows messages without giving them. Only inside of `with`."""
        return self._browser.takes_nothing

    @property
    def limit(self) -> str | None:
        """Reason why the last look may not have shown everything; None: it has."""
        limits = [browser.limit for browser in self._looked if browser.limit is not None]
        return "; ".join(dict.fromkeys(limits)) or None

    # Reading: messages stay.

    def summary(self, **filters: Unpack[Filters]) -> Sequence[CauseGroup]:
        """Count dead letters by original destination, kind of cause and day.

        Args:
            cause, destination, id, older_than, younger_than: Filters; see `redelivery.dlq.selection.Filters`.

        Returns:
            Groups, the largest first.

        Raises:
            AdapterError: The broker refuses the queue.
            ConfigurationError: As `list`.
            TransportError: The connection was lost.
        """
        return summarise(self.list(**filters))

    def list(self, **filters: Unpack[Filters]) -> Iterator[DeadLetter]:
        """Yield the dead letters, in the broker's order. They stay on the queue.

        Args:
            cause, destination, id, older_than, younger_than: Filters; see `redelivery.dlq.selection.Filters`.

        Raises:
            ConfigurationError: The broker cannot show a queue without taking from it, and `take` was not given; or a
                filter makes no sense.
            AdapterError: The broker refuses the queue.
            LedgerError: The ledger cannot be read.
            TransportError: The connection was lost.
        """
        selection = Selection.of(filters)
        return (letter for _, letter in self._look(selection))

    def __iter__(self) -> Iterator[DeadLetter]:
        """Yield all dead letters, as `list` does."""
        return self.list()

    def contents(self, *, take: bool = False) -> CountedLetters:
        """Count all dead letters by cause and by origin, for example after filters that matched none.

        Args:
            take: True: receive and release where the broker cannot show the queue, as `dead_letters(take=True)` does.

        Raises:
            AdapterError: The broker refuses the queue.
            ConfigurationError: As `list`.
            TransportError: The connection was lost.
        """
        return contents_of(letter for _, letter in self._look(EVERYTHING, take=take))

    def show(self, message_id: str) -> DeadLetter:
        """Return one dead letter by its id, on the dead-letter queue or before.

        Raises:
            AdapterError: There is no such dead letter; and as `list`.
        """
        for letter in self.list(id=message_id):
            return letter
        raise AdapterError(f"there is no dead letter {message_id!r} in {self.queue}")

    def export(
        self,
        target: IO[bytes] | str | os.PathLike[str],
        form: str = "jsonl",
        *,
        progress: Progress | None = None,
        **filters: Unpack[Filters],
    ) -> int:
        """Write dead letters to a file. They stay on the queue.

        Args:
            target: Binary file, or the name of one. A named file is replaced only when all of it is written.
            form: `jsonl` (default), or `parquet`, which needs pyarrow. The columns are in `redelivery.dlq.export`.
            progress: Called with the number written so far; None: no calls.
            cause, destination, id, older_than, younger_than: Filters, as for `list`.

        Returns:
            The number of dead letters written.

        Raises:
            ConfigurationError: There is no such form, or pyarrow is not installed.
            OSError: The file cannot be written. It is as it was before; and as `list`.
        """
        export.check(form)
        if not isinstance(target, str | os.PathLike):
            return export.write(self.list(**filters), target, form, progress)
        with export.published(target) as file:
            return export.write(self.list(**filters), file, form, progress)

    # Removing.

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
        progress: Progress | None = None,
        **filters: Unpack[Filters],
    ) -> Redriven:
        """Send dead letters back to where they came from. Each leaves only after the broker has confirmed its copy.

        After a kill, call it again: redriven messages are gone from here, and at most one (or `in_flight`) is at its
        destination twice.

        Args:
            to: Destination for all of them; None: the origin of each.
            rate: Messages a second at most; None: no limit.
            in_flight: Copies that may be unconfirmed at once, where a copy and its acceptance are two operations. A
                kill can leave so many messages twice. None: 1, or 65 where the broker drops a second copy.
            quarantine: Queue for those that were redriven `maximum_redrives` times and died again; None: they are
                redriven once more.
            maximum_redrives: See `quarantine`. Default 3.
            topics: True: also redrive what came from a topic; each of its subscribers gets it.
            native: True: also redrive to an address of the broker's own (`native://…`), which cannot be checked.
            dry_run: True: send nothing, and report what would be done.
            progress: Called with the number of messages redriven so far; None: no calls.
            cause, destination, id, older_than, younger_than: Filters; see `redelivery.dlq.selection.Filters`.

        Returns:
            Counts of what went where, and of what stays, and why.

        Raises:
            ConfigurationError: An argument makes no sense.
            AdapterError: The broker refuses the queue, or a destination; the dead letter stays on the queue.
            LedgerError: The ledger cannot be read.
            TransportError: The connection was lost, and reconnecting was given up.
        """
        selection = Selection.of(filters)
        redrive = self._routing(to, quarantine, maximum_redrives, native=native)
        check_in_flight(in_flight, self._reading.capabilities)

        def plan(queue: str) -> RemovalPlan:
            return RemovalPlan(queue, selection, redrive, topics=topics or to is not None)

        return cast("Redriven", self._done(plan, rate, progress, dry_run=dry_run, in_flight=in_flight))

    def purge(
        self, *, dry_run: bool = False, progress: Progress | None = None, **filters: Unpack[Filters]
    ) -> Purged:
        """Delete dead letters for ever.

        Args:
            dry_run: True: delete nothing, and report what would be deleted.
            progress: Called with the number deleted so far; None: no calls.
            cause, destination, id, older_than, younger_than: Filters; see `redelivery.dlq.selection.Filters`.

        Returns:
            The number deleted, and the number that stays.

        Raises:
            AdapterError: The broker refuses an acknowledgement.
            ConfigurationError: As `redrive`.
            TransportError: The connection was lost.
        """
        selection = Selection.of(filters)

        def plan(queue: str) -> RemovalPlan:
            return RemovalPlan(queue, selection, None, topics=True)

        return cast("Purged", self._done(plan, None, progress, dry_run=dry_run))

    def _routing(
        self, to: str | None, quarantine: str | None, maximum_redrives: int, *, native: bool
    ) -> Redrive:
        """Return where dead letters go. Raises ConfigurationError."""
        places = self._other("to", to), self._other("quarantine", quarantine)
        if isinstance(maximum_redrives, bool) or maximum_redrives < 1:
            what = f"maximum_redrives must be 1 or more, not {maximum_redrives!r}"
            raise ConfigurationError(what, option="maximum_redrives")
        return Redrive(new_run(), *places, maximum_redrives, native=native)

    def _browser_of(self, queue: str | None, *, take: bool) -> QueueBrowser:
        return QueueBrowser(self._reading, queue, self._memories, take=take, idle=self._idle)

    def _browsers(self) -> Sequence[QueueBrowser]:
        """Return a browser for each queue that the name means now. Raises as `DeadLetterConnection.queues`."""
        queues = self._reading.queues(self.queue)
        own = queues == (self.queue,)
        self._looked = (
            (self._browser,) if own else [self._browser_of(each, take=self._take) for each in queues]
        )
        return self._looked

    def _look(self, selection: Selection, *, take: bool = False) -> Iterator[tuple[Delivery, DeadLetter]]:
        for browser in self._browsers():
            yield from browser.look(selection, take=take)

    def _done(
        self,
        plan_of: Callable[[str], RemovalPlan],
        rate: float | None,
        progress: Progress | None,
        *,
        dry_run: bool,
        in_flight: int | None = None,
    ) -> Redriven | Purged:
        """Carry out the plan of each queue, one queue after the other; return the sums."""
        if rate is not None and not seconds(rate, "rate"):
            raise ConfigurationError("rate must be more than 0 messages a second", option="rate")
        plans: list[RemovalPlan] = []

        def tell(_: int) -> None:
            if progress is not None:
                progress(sum(each.destinations.total() for each in plans))

        done = plan_of(self.queue).report(None, dry_run=dry_run)
        for browser in self._browsers():
            plans.append(plan_of(browser.queue))
            done = together(
                done, self._carry_out(browser, plans[-1], rate, tell, dry_run=dry_run, in_flight=in_flight)
            )
        return done

    def _carry_out(
        self,
        browser: QueueBrowser,
        plan: RemovalPlan,
        rate: float | None,
        progress: Progress,
        *,
        dry_run: bool,
        in_flight: int | None,
    ) -> Redriven | Purged:
        if plan.redrive is not None:
            plan.redrive.origin = self._memories.origin
        if plan.selection.nothing:
            return plan.report(None, dry_run=dry_run)
        if not dry_run:
            self._memories.refresh()
            run = RemovalRun(
                self._reading,
                plan,
                browser.read,
                rate=rate,
                idle=self._idle,
                progress=progress,
                in_flight=in_flight,
            )
            return plan.report(run.carry_out())
        now = self._reading.clock.time()
        for delivery, letter in browser.look(Selection()):
            verdict = plan.judge(letter, delivery, now)
            if verdict == "go":
                plan.gone(delivery)
            else:
                plan.left[verdict] += 1
        return plan.report(browser.limit, dry_run=True)

    def _other(self, option: str, destination: str | None) -> str | None:
        """Return a destination for dead letters, which is not this queue itself. Raises ConfigurationError."""
        if destination is None:
            return None
        parsed = str(single(destination))
        if any(parsed == browser.queue for browser in (self._browser, *self._browsers())):
            raise ConfigurationError(
                f"{option}={destination} is the dead-letter queue itself, or one of them: name another queue",
                option=option,
            )
        return parsed
