"""The tools of a dead-letter queue: `redelivery.dead_letters`."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import IO, TYPE_CHECKING, Self, Unpack, cast

from redelivery.core.dead_lettering.dead_letter_strategy import dead_letter_place
from redelivery.core.dead_lettering.redrive import Redrive
from redelivery.core.destination import Destination
from redelivery.core.option_values import seconds
from redelivery.core.policy.wildcards import is_pattern
from redelivery.dlq import export
from redelivery.dlq.dead_letter import (
    CauseGroup,
    CountedLetters,
    LedgerCauses,
    Purged,
    Redriven,
    Resent,
    contents_of,
    summarise,
    together,
)
from redelivery.dlq.dead_letter_places import DeadLetterPlaces
from redelivery.dlq.dlq_connection import IDLE, DeadLetterConnection, QueueBrowser
from redelivery.dlq.removal_run import RemovalPlan, RemovalRun, check_in_flight, new_run
from redelivery.dlq.resend_run import ResendPlan, resend
from redelivery.dlq.second_letters import SecondLetters
from redelivery.dlq.selection import EVERYTHING, Filters, Selection
from redelivery.driver.port import single
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from types import TracebackType

    from redelivery.clock import Clock
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap
    from redelivery.core.delivery import Delivery
    from redelivery.dlq.dead_letter import CauseOf, DeadLetter
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
    despite_limit: bool = False,
    dead_letters: DeadLetterMap | None = None,
) -> DeadLetterQueue:
    """Return the tools of a dead-letter queue. No I/O happens before `with`.

    Args:
        uri: Connection URI, as for `redelivery.connect`.
        queue: Dead-letter queue, or a pattern (`DLQ.>`): all queues whose names match, each by its own name. None: all
            places where the dead letters of this URI go: those of its map, and its default or the broker's own.
        take: True: read by receiving and releasing, where the broker cannot show a queue without taking from it.
        idle: Seconds without a message after which a queue that is taken from counts as empty. Default 2.
        ledger: Ledger of the consumer, as for `redelivery.connect`, or its URL; None: the URI's `redelivery.ledger`.
            It has cause and origin of the messages that the broker dead-lettered itself. It is only read: it must
            exist, and can be in use.
        cause_of: Called before the ledger is asked, as `cause_of(destination, message_id)`; None: no such call.
        clock: A `redelivery.testing.ManualClock` in tests; None: the system's clock.
        despite_limit: True: also look with `take`, redrive and purge with filters, where the broker drops a message
            after a number of looks, or may do so: quorum queues of RabbitMQ 4.0 to 4.2, by default after 20.
        dead_letters: The map that the consumers give to `redelivery.connect`; None: that of the URI.

    Returns:
        The tools: a context manager that connects.

    Raises:
        ConfigurationError: An option of the URI, or an argument, cannot be honoured.
    """
    return DeadLetterQueue(
        uri,
        queue,
        take=take,
        idle=idle,
        ledger=ledger,
        cause_of=cause_of,
        clock=clock,
        despite_limit=despite_limit,
        dead_letters=dead_letters,
    )


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
        despite_limit: bool = False,
        dead_letters: DeadLetterMap | None = None,
    ) -> None:
        self._reading = DeadLetterConnection(
            uri,
            ledger=cast("Ledger | None", ledger),
            clock=clock,
            despite_limit=despite_limit,
            dead_letters=dead_letters,
        )
        self._idle = seconds(idle, "idle")
        if not self._idle:
            raise ConfigurationError("idle must be more than 0 seconds", option="idle")
        self._memories = LedgerCauses(self._reading.ledger, cause_of)
        self._given = None if queue is None else str(single(queue))
        self._take = take
        # Of the last look: several where the settings name several places, or a pattern stands for several queues.
        self._places = DeadLetterPlaces() if self._given is None else DeadLetterPlaces((self._given,))
        self._looked: Sequence[QueueBrowser] = ()
        self._refused: list[str] = []

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
        """Dead-letter queue, qualified; several places with commas between them: those of the last call, or all.

        Only inside of `with`, if none was given. Raises ConfigurationError as `places` does.
        """
        return ", ".join(self._places.queues or self.places())

    def places(self, **filters: Unpack[Filters]) -> tuple[str, ...]:
        """Return the dead-letter queues that a call with these filters looks at: the given one, or the settings' own.

        Args:
            cause, destination, id, older_than, younger_than: Filters; see `redelivery.dlq.selection.Filters`. Of
                origins without a wildcard only the places are returned.

        Returns:
            Their names, qualified; a pattern as it is.

        Raises:
            ConfigurationError: None was given, and the settings name none that can be looked at: each destination has
                its own, and the broker does not list its queues.
        """
        return self._found(Selection.of(filters)).queues

    @property
    def browses(self) -> bool:
        """True if the broker shows messages without giving them. Only inside of `with`."""
        return self._reading.capabilities.browse and not self._take

    @property
    def node(self) -> str | None:
        """Address of the node that was looked at, if the URI names several and each may keep dead letters of its own.

        A name with several addresses is several. None: the broker has one place for all nodes, or the URI names one,
        which may be a node of a cluster nevertheless. Only inside of `with`.
        """
        return self._reading.one_of_several

    @property
    def limit(self) -> str | None:
        """Reason why the last look may not have shown everything; None: it has."""
        limits = [browser.limit for browser in self._looked if browser.limit is not None]
        passed = ", ".join(self._reading.passed_over)
        more = (f"{passed}: of a subscriber, not looked at; name the queue",) if passed else ()
        return "; ".join(dict.fromkeys((*limits, *self._refused, *self._places.unknown, *more))) or None

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
            ConfigurationError: The broker cannot show a queue without taking from it, and `take` was not given; or it
                drops messages after a number of looks, and `despite_limit` was not given; or a filter makes no sense.
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

        After a kill, call it again: what was redriven is gone; at most one message (or `in_flight`) arrives twice.

        Args:
            to: Destination for all of them; None: the origin of each.
            rate: Messages a second at most; None: no limit.
            in_flight: Copies unconfirmed at once, where a copy and its acceptance are two operations: a kill can leave
                so many twice. None: 1, or 65 where the broker drops a second copy.
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
            ConfigurationError: An argument makes no sense; or as `list`.
            AdapterError: The broker refuses the queue, or a destination; the dead letter stays on the queue.
            LedgerError: The ledger cannot be read.
            TransportError: The connection was lost, and reconnecting was given up.
        """
        selection = Selection.of(filters)
        self._check_redrive(rate, maximum_redrives, in_flight)
        found = self._found(selection)
        redrive = self._routing(to, quarantine, maximum_redrives, found, native=native)
        # Each origin is asked for once, for all places.
        topics, reach = topics or to is not None, cache(self._reading.reached)
        plan = partial(RemovalPlan, selection=selection, redrive=redrive, topics=topics, reach=reach)
        done = self._done(plan, found, rate, progress, dry_run=dry_run, in_flight=in_flight)
        return cast("Redriven", done)

    def resend(
        self,
        file: IO[bytes] | str | os.PathLike[str],
        *,
        to: str | None = None,
        rate: float | None = None,
        in_flight: int = 1,
        topics: bool = False,
        native: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
        **filters: Unpack[Filters],
    ) -> Resent:
        """Send the dead letters of an export again, as new messages. The dead-letter queue is not touched.

        Each message is what a redrive would send: the same body, properties and id, without its death. A named file has
        a file of progress beside it (`….sent`) until all lines are sent: a run after an interruption goes on.

        Args:
            file: Name of an export in JSON Lines, or a binary file, for which no progress is kept.
            to: Destination for all of them; None: the origin of each.
            rate: Messages a second at most; None: no limit.
            in_flight: Messages that may be unconfirmed at once. A kill can leave so many twice. Default 1.
            topics: True: also send what came from a topic; each of its subscribers gets it.
            native: True: also send to an address of the broker's own (`native://…`), which cannot be checked.
            dry_run: True: send nothing, and report what would be sent.
            progress: Called with the number of messages sent so far; None: no calls.
            cause, destination, id, older_than, younger_than: Filters; see `redelivery.dlq.selection.Filters`.

        Returns:
            Counts of what went where, and the number and reason of each line that cannot be sent.

        Raises:
            ConfigurationError: An argument makes no sense.
            OSError: The file cannot be read, or its progress cannot be written, before the first message is sent.
            AdapterError: The broker refused ten lines in a row.
            TransportError: The connection was lost, and reconnecting was given up.
        """
        plan = ResendPlan(
            Selection.of(filters),
            None if to is None else self._keeping("to", to),
            new_run(),
            topics=topics or to is not None,
            native=native,
            rate=_checked_rate(rate),
            in_flight=in_flight,
        )
        return resend(self._reading, file, plan, progress, dry_run=dry_run)

    def _keeping(self, option: str, destination: str) -> str:
        """Return one destination where no message is known to be dropped. Raises ConfigurationError."""
        place = str(dead_letter_place(destination, option))
        sent, why = self._reading.reached(place)
        if sent != place:
            why = f"this queue belongs to another address: name {sent}"
        if why:
            raise ConfigurationError(f"{option}={destination}: {why}", option=option)
        return place

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
        found = self._found(selection)
        self._refuse_patterns("purge", found)
        plan = partial(RemovalPlan, selection=selection, redrive=None, topics=True)
        return cast("Purged", self._done(plan, found, None, progress, dry_run=dry_run))

    def _check_redrive(self, rate: float | None, maximum_redrives: int, in_flight: int | None) -> None:
        """Refuse numbers that make no sense, before the broker is asked. Raises ConfigurationError."""
        _checked_rate(rate)
        if isinstance(maximum_redrives, bool) or maximum_redrives < 1:
            what = f"maximum_redrives must be 1 or more, not {maximum_redrives!r}"
            raise ConfigurationError(what, option="maximum_redrives")
        check_in_flight(in_flight, self._reading.capabilities)

    def _routing(
        self,
        to: str | None,
        quarantine: str | None,
        maximum_redrives: int,
        found: DeadLetterPlaces,
        *,
        native: bool,
    ) -> Redrive:
        """Return where dead letters go. Raises ConfigurationError."""
        if to is not None:
            self._refuse_patterns("redrive to one destination", found)
        places = self._other("to", to, found), self._other("quarantine", quarantine, found)
        return Redrive(new_run(), *places, maximum_redrives, native=native)

    def _found(self, selection: Selection = EVERYTHING) -> DeadLetterPlaces:
        """Return the places of the dead letters that can match; the broker is asked. Raises ConfigurationError."""
        if self._given is None:
            self._places = self._reading.places(selection.origins)
        return self._places

    def _removable(self, found: DeadLetterPlaces, selection: Selection) -> DeadLetterPlaces:
        """Return the places whose dead letters may be removed.

        The broker's own queues have others' dead letters, too: from these only letters of named origins or ids are
        removed.
        """
        if not (selection.origins or selection.ids):
            self._places = found = found.unshared()
        return found

    def _refuse_patterns(self, what: str, found: DeadLetterPlaces) -> None:
        """Refuse to take all messages of queues that only the settings name by a pattern: others may be among them.

        Raises ConfigurationError.
        """
        wide = [name for name in found.queues if is_pattern(Destination.parse(name))]
        if self._given is None and wide:
            raise ConfigurationError(
                f"{what}: the dead letters of this URI go to {', '.join(wide)}, and other queues may have such names; "
                "name the queue, or that pattern, if all its messages are dead letters",
                option="queue",
            )

    def _browsers(self, places: DeadLetterPlaces) -> Sequence[QueueBrowser]:
        """Return a browser for each queue that the places mean now. Raises as `DeadLetterConnection.queues`."""
        self._refused = []
        self._reading.passed_over.clear()
        self._looked = [
            QueueBrowser(self._reading, queue, self._memories, take=self._take, idle=self._idle)
            for queue in self._reading.queues_of(places)
        ]
        return self._looked

    def _look(self, selection: Selection, *, take: bool = False) -> Iterator[tuple[Delivery, DeadLetter]]:
        browsers = self._browsers(self._found(selection))
        second = SecondLetters(each.queue for each in browsers)
        for browser in browsers:
            with self._absent(browser):
                for delivery, letter in browser.look(selection, take=take):
                    if not second.has(delivery, browser.queue):
                        yield delivery, letter

    @contextmanager
    def _absent(self, browser: QueueBrowser) -> Generator[None]:
        """Note a refusal of one of several places, which may not be there yet. Of the only one, or of all, raise it."""
        try:
            yield
        except AdapterError as error:
            self._note(browser, error)

    def _note(self, browser: QueueBrowser, error: AdapterError) -> None:
        """Note the refusal of a place; raise it if all are refused."""
        self._refused.append(f"{browser.queue}: {error}")
        if len(self._refused) >= len(self._looked):
            raise error

    def _done(
        self,
        plan_of: partial[RemovalPlan],
        found: DeadLetterPlaces,
        rate: float | None,
        progress: Progress | None,
        *,
        dry_run: bool,
        in_flight: int | None = None,
    ) -> Redriven | Purged:
        """Carry out the plan of each queue, one queue after the other; return the sums."""
        plans: list[RemovalPlan] = []

        def tell(_: int) -> None:
            if progress is not None:
                progress(sum(each.destinations.total() for each in plans))

        done = plan_of("").report(None, dry_run=dry_run)
        browsers = self._browsers(self._removable(found, plan_of("").selection))
        second = SecondLetters(each.queue for each in browsers)
        for browser in browsers:
            plans.append(plan_of(browser.queue, second=second))
            try:
                part = self._carry_out(browser, plans[-1], rate, tell, dry_run=dry_run, in_flight=in_flight)
            except AdapterError as error:
                self._note(browser, error)
                # A later one may have been refused: what was moved before counts.
                part = plans[-1].report(None, dry_run=dry_run)
            done = together(done, part)
        # Queues of subscribers need not have dead letters: `limit` names them.
        more = "; ".join((*self._refused, *self._places.unknown))
        return together(done, replace(plan_of("").report(None, dry_run=dry_run), incomplete=more or None))

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
        for delivery, letter in browser.look(EVERYTHING):
            verdict = plan.judge(letter, delivery, now)
            if verdict == "go":
                plan.gone(delivery)
            else:
                plan.left[verdict] += 1
        return plan.report(browser.limit, dry_run=True)

    def _other(self, option: str, destination: str | None, found: DeadLetterPlaces) -> str | None:
        """Return a destination for dead letters, which is not this queue itself. Raises ConfigurationError."""
        if destination is None:
            return None
        parsed = str(dead_letter_place(destination, option))
        if any(parsed == browser.queue for browser in self._browsers(found)):
            raise ConfigurationError(
                f"{option}={destination} is the dead-letter queue itself, or one of them: name another queue",
                option=option,
            )
        return self._keeping(option, parsed)


def _checked_rate(rate: float | None) -> float | None:
    """Return a rate. Raises ConfigurationError if it is no positive number."""
    if rate is not None and not seconds(rate, "rate"):
        raise ConfigurationError("rate must be more than 0 messages a second", option="rate")
    return rate
