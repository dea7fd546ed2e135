"""One run over an export that sends its dead letters again, as new messages."""

from __future__ import annotations

import os
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from redelivery.clock import pass_time
from redelivery.core.dead_lettering.dead_letter_headers import never_copied, readable_origin
from redelivery.core.dead_lettering.redrive import sent_back
from redelivery.dlq.dead_letter import LineProblem, Resent
from redelivery.dlq.export import LineError, SentLines, exported, lines_of
from redelivery.driver.port import checked_headers, outgoing
from redelivery.errors import AdapterError, ConfigurationError, RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.outgoing import Outgoing
    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery.dlq.dlq_connection import DeadLetterConnection
    from redelivery.dlq.export import ExportedLine
    from redelivery.dlq.selection import Selection
    from redelivery.driver.port import PendingSend

__all__ = ["ResendPlan", "ResendRun", "resend"]

# Problems that a report names; all are counted.
NAMED = 100
# Refusals in a row after which the run ends: the others would be refused, too.
REFUSALS = 10
ID = "redeliveryId"


@dataclass(frozen=True, slots=True)
class ResendPlan:
    """Which lines are sent, and where.

    `destination`: for all of them; None: the origin of each. `run`: name of the run. `topics`, `native`: also lines
    whose origin is a topic, or an address of the broker's own. `rate`: messages a second. `in_flight`: messages that
    may be unconfirmed at once.
    """

    selection: Selection
    destination: str | None
    run: str
    topics: bool
    native: bool
    rate: float | None
    in_flight: int

    def __post_init__(self) -> None:
        """Check the number in flight. Raises ConfigurationError."""
        if isinstance(self.in_flight, bool) or self.in_flight < 1:
            raise ConfigurationError(
                f"in_flight must be 1 or more, not {self.in_flight!r}", option="in_flight"
            )

    def target(self, letter: DeadLetter) -> str:
        """Return the destination of a dead letter, by the rules of a redrive. Raises LineError."""
        target = self.destination or readable_origin(letter.original_destination)
        if target is None or target == letter.queue:
            raise LineError(
                "its origin is not known, or is no single queue or topic; name a destination (--to)"
            )
        kind = target.partition("://")[0]
        if kind == "native" and not (self.native or self.destination):
            raise LineError(f"its origin {target} cannot be checked; --native sends it nevertheless")
        if kind == "topic" and not self.topics:
            raise LineError(f"it came from {target}, whose subscribers would all get it; --yes sends it")
        return target


def resend(
    connection: DeadLetterConnection,
    file: IO[bytes] | str | os.PathLike[str],
    plan: ResendPlan,
    progress: Callable[[int], None] | None,
    *,
    dry_run: bool,
) -> Resent:
    """Carry out a plan with an export: a binary file, or the name of one, whose progress is then kept beside it.

    Raises:
        OSError: The file cannot be read, or its progress cannot be written; and as `ResendRun.carry_out`.
    """
    named = file if isinstance(file, str | os.PathLike) else None
    with ExitStack() as stack:
        source = stack.enter_context(Path(named).open("rb")) if named is not None else cast("IO[bytes]", file)
        sent = stack.enter_context(SentLines(named, reads_only=dry_run))
        return ResendRun(connection, plan, sent, progress, dry_run=dry_run).carry_out(source)


class ResendRun:
    """Carries out a plan: line by line, and a line counts as sent only when the broker has confirmed its message."""

    def __init__(
        self,
        connection: DeadLetterConnection,
        plan: ResendPlan,
        sent: SentLines,
        progress: Callable[[int], None] | None,
        *,
        dry_run: bool,
    ) -> None:
        self._connection = connection
        self._plan = plan
        self._sent = sent
        self._progress = progress
        self._dry_run = dry_run
        self._pending: deque[tuple[ExportedLine, PendingSend]] = deque()
        self._destinations: Counter[str] = Counter()
        self._reach = cache(connection.reached)
        self._problems: list[LineProblem] = []
        self._bad = self._before = self._skipped = self._begun = self._refused = 0
        self._began = connection.clock.monotonic()

    def carry_out(self, file: IO[bytes]) -> Resent:
        """Send the lines of a file.

        Raises:
            AdapterError: The broker refused ten lines in a row.
            TransportError: The connection was lost, and reconnecting was given up.
        """
        try:
            for line in lines_of(file):
                self._look_at(line)
            self._wait_below(1)
        finally:
            # Also what was confirmed during an interruption.
            for line, pending in self._pending:
                if pending.future.done() and pending.error is None:
                    self._gone(line, pending.message.destination)
        report = self._report()
        if report.complete and not report.skipped:
            self._sent.finish()
        return report

    def _look_at(self, line: ExportedLine) -> None:
        """Send one line, or count why it is not sent."""
        try:
            letter = exported(line)
            if not self._plan.selection.matches(letter, self._connection.clock.time()):
                self._skipped += 1
                return
            message = self._message(letter)
        except (LineError, ConfigurationError) as error:
            self._problem(line, str(error))
            return
        if self._sent.take(line, message.destination):
            self._before += 1
        elif self._dry_run:
            self._destinations[message.destination] += 1
        else:
            self._send(line, message)

    def _message(self, letter: DeadLetter) -> Outgoing:
        """Return the message of a dead letter: what a redrive would send. Raises LineError, ConfigurationError."""
        target = self._plan.target(letter)
        if not letter.whole or letter.body_kind == "partial":
            raise LineError("its body was not whole when it was exported; export it over AMQP")
        if letter.lossy:
            raise LineError(
                f"the line does not have {letter.lossy}: redrive the dead letter, or correct the line and remove "
                "its field lossy"
            )
        target = self._reached(target)
        told = {
            name: value
            for name, value in sent_back(letter.headers, letter.original_id, self._plan.run).items()
            if value is not None and not never_copied(name)
        }
        kind = letter.message_type
        # Checked as a property is.
        checked = checked_headers({} if kind is None else {"type": kind})
        identity, message = outgoing(
            target,
            letter.body,
            {
                "headers": told,
                "content_type": letter.content_type,
                "correlation_id": letter.correlation_id,
                "reply_to": letter.reply_to,
                "priority": letter.priority,
                "group": letter.group,
            },
            self._connection.clock,
        )
        # The id of its first sending stays, as in a redrive.
        own = told.get(ID)
        return replace(
            message,
            headers={**message.headers, ID: own if isinstance(own, str) and own else identity},
            # An empty one that was exported as whole was sent empty.
            body_kind="text" if letter.body_kind in ("text", "unknown") else "bytes",
            message_type=None if kind is None else str(checked["type"]),
        )

    def _reached(self, target: str) -> str:
        """Return where messages for a destination are sent. Raises LineError if the broker would drop them there."""
        if self._plan.destination is not None:
            # Checked before the first line.
            return target
        sent, why = self._reach(target)
        if why:
            raise LineError(f"{target}: {why}")
        return sent

    def _send(self, line: ExportedLine, message: Outgoing) -> None:
        clock, rate = self._connection.clock, self._plan.rate
        if rate is not None:
            pass_time(clock, self._began + self._begun / rate - clock.monotonic())
        self._begun += 1
        self._pending.append((line, self._connection.send(message)))
        self._wait_below(self._plan.in_flight)

    def _wait_below(self, unconfirmed: int) -> None:
        """Write down what is confirmed, and wait until fewer messages are unconfirmed."""
        while self._pending and (len(self._pending) >= unconfirmed or self._pending[0][1].future.done()):
            line, pending = self._pending[0]
            try:
                pending.wait()
            except AdapterError as error:
                self._pending.popleft()
                self._problem(line, str(error))
                self._refused += 1
                if self._refused >= REFUSALS:
                    raise AdapterError(
                        f"{self._refused} lines in a row were refused, the last: {error}"
                    ) from error
            except RedeliveryError:
                self._pending.popleft()
                raise
            else:
                self._pending.popleft()
                self._refused = 0
                self._gone(line, pending.message.destination)

    def _gone(self, line: ExportedLine, destination: str) -> None:
        self._sent.add(line, destination)
        self._destinations[destination] += 1
        if self._progress is not None:
            self._progress(self._destinations.total())

    def _problem(self, line: ExportedLine, text: str) -> None:
        self._bad += 1
        if len(self._problems) < NAMED:
            self._problems.append(LineProblem(line.number, text))

    def _report(self) -> Resent:
        return Resent(
            resent=self._destinations.total(),
            destinations=dict(self._destinations.most_common()),
            before=self._before,
            skipped=self._skipped,
            refused=self._bad,
            problems=tuple(self._problems),
            dry_run=self._dry_run,
        )
