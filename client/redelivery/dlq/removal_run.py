"""One run over a dead-letter queue that takes things away from it: a redrive or a purge."""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from redelivery.clock import pass_time
from redelivery.core.dead_lettering.origin import overruled
from redelivery.core.dead_lettering.redrive import REDRIVE_RUN, Redrive
from redelivery.dlq.results import Purged, Redriven
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import Delivery
    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery.dlq.dlq_connection import DeadLetterConnection
    from redelivery.dlq.dlq_consumer import DeadLetterConsumer
    from redelivery.dlq.selection import Selection

__all__ = ["RemovalPlan", "RemovalRun"]

# Copies in one transaction, at most.
BATCH = 64
BATCH_BYTES = 1024 * 1024  # of their bodies, about
BATCH_TIME = (
    # Seconds' worth of copies at most in one, where there is a rate: it is no rate by the second else.
    0.1
)
# At a queue that can be shown, while there is more that is meant.
LOOKS = 5
# Seconds without a dead letter after which a broker that hands out pages is asked for the next.
PAGE = 0.1
# Seconds that dead letters wait for others, while the transaction before them is on its way.
COMPANY = 0.02
Verdict = str


class RemovalPlan:
    """What is to become of each dead letter. Counts what it decides."""

    def __init__(self, queue: str, selection: Selection, redrive: Redrive | None, *, topics: bool) -> None:
        self.queue = queue
        self.selection = selection
        self.redrive = redrive
        self._topics = topics
        self.left: Counter[str] = Counter()
        self.destinations: Counter[str] = Counter()
        self.quarantined = 0
        self.overruled = 0

    def judge(self, letter: DeadLetter, delivery: Delivery, now: float) -> Verdict:
        """Return `go`, or why it stays."""
        if not self.selection.matches(letter, now):
            return "skipped"
        return "go" if self.redrive is None else self._judge_redrive(self.redrive, letter, delivery)

    def _judge_redrive(self, redrive: Redrive, letter: DeadLetter, delivery: Delivery) -> Verdict:
        if letter.headers.get(REDRIVE_RUN) == redrive.run:
            return "again"
        target = redrive.target(delivery)
        if target is None or target == self.queue:
            return "without_origin"
        if not letter.whole:
            return "partial"
        if target.startswith(("topic://", "temp-topic://")) and not self._topics:
            return "topics"
        return "go"

    def gone(self, delivery: Delivery) -> None:
        """Count one that goes."""
        redrive = self.redrive
        target = self.queue if redrive is None else redrive.target(delivery)
        self.destinations[target or ""] += 1
        if redrive is None or target is None:
            return
        if target == redrive.quarantine:
            self.quarantined += 1
        elif redrive.destination is None and overruled(delivery):
            self.overruled += 1

    def report(self, incomplete: str | None, *, dry_run: bool = False) -> Redriven | Purged:
        """Return the counts."""
        done, left = self.destinations.total(), self.left
        if self.redrive is None:
            return Purged(done, left["skipped"], incomplete, dry_run)
        return Redriven(
            redriven=done,
            destinations=dict(self.destinations.most_common()),
            quarantined=self.quarantined,
            skipped=left["skipped"],
            again=left["again"],
            without_origin=left["without_origin"],
            overruled=self.overruled,
            partial=left["partial"],
            topics=left["topics"],
            incomplete=incomplete,
            dry_run=dry_run,
        )


class RemovalRun:
    """A plan carried out: dead letters are taken one by one, and leave only when their copies are confirmed."""

    def __init__(
        self,
        reading: DeadLetterConnection,
        plan: RemovalPlan,
        read: Callable[[Delivery], DeadLetter],
        *,
        rate: float | None,
        idle: float,
        told: Callable[[int], None] | None,
        in_flight: int | None = None,
    ) -> None:
        self._reading = reading
        self._plan = plan
        self._read = read
        self._rate = rate
        self._idle = idle
        self._told = told
        self._sent = 0
        self._began = reading.clock.monotonic()
        able = reading.capabilities
        self._together = able.forward == "atomic"
        # One by one where a copy and its acceptance are two: what a kill may leave twice is what was sent and not
        # accepted yet. Where the broker drops a second copy that may be many.
        self._batch = BATCH if self._together else 1
        if rate is not None:
            self._batch = max(1, min(self._batch, int(rate * BATCH_TIME)))
        many = self._together or able.drops_second_copy
        self._below = in_flight or (max(self._batch, BATCH) + 1 if many else 1)
        # Classic hands out a page, and the next one when something happens to the queue. With a selector it goes
        # through all that it has paged in for each message that it takes away: 43,000 cost 15 ms (measured).
        self._paged = able.browse_limit is not None
        self._most = reading.first

    def carry_out(self) -> str | None:
        """Do it; return why more may be left that is meant, or None.

        Raises:
            RedeliveryError: the broker refused copies, or the connection was given up.
        """
        try:
            return self._carry_out()
        finally:
            # Also what was confirmed while it was being interrupted.
            self._tell()

    def _carry_out(self) -> str | None:
        able, plan = self._reading.capabilities, self._plan
        selector = plan.selection.selector() if able.selectors and not self._paged else None
        redrive = plan.redrive or Redrive("")
        shown = meant = 0
        for _ in range(LOOKS if able.browse else 1):
            taker = self._round(redrive, selector)
            if taker.full is not None:
                return f"{taker.full}, and no more may be: deal with these first"
            shown, meant = self._look(taker.held) if able.browse else (0, 0)
            if not meant:
                break
        limit = able.browse_limit
        if limit is not None and not plan.selection.everything and shown >= limit:
            return (
                f"{able.broker} shows the first {limit} dead letters only, so it is not certain that nothing is left "
                "that is meant; raise its maxBrowsePageSize for the dead-letter queue"
            )
        if meant:
            return f"{meant} dead letters that are meant are still there: they came meanwhile, or another has them"
        return None

    def _round(self, redrive: Redrive, selector: str | None) -> DeadLetterConsumer:
        """Take all that is there; a narrow window that is full of what stays is given back, and a wider one begun."""
        while True:
            self._plan.left.clear()
            with ExitStack() as stack:
                taker = self._opened(stack, redrive, selector)
                taker.confirmed = self._plan.gone
                self._take_all(taker)
            wider = taker.wider()
            if wider <= self._most:
                return taker
            self._most = wider

    def _look(self, held: int) -> tuple[int, int]:
        """Return how many are on the queue, and how many of them are meant: that nothing came does not tell it."""
        plan, now, shown, meant = self._plan, self._reading.clock.time(), 0, 0
        limit = self._reading.capabilities.browse_limit
        if limit is not None and held >= limit:
            # It would be shown what it was given; Classic takes seconds to show many.
            return held, 0
        for delivery in self._reading.shown(plan.queue):
            shown += 1
            if plan.judge(self._read(delivery), delivery, now) == "go":
                meant += 1
        return shown, meant

    def _opened(self, stack: ExitStack, redrive: Redrive, selector: str | None) -> DeadLetterConsumer:
        """Begin to consume; without the selector, which only saves work, where it is refused."""
        reading, queue = self._reading, self._plan.queue
        try:
            return stack.enter_context(reading.taker(queue, redrive, selector, held=self._most))
        except AdapterError:
            if selector is None:
                raise
            return stack.enter_context(reading.taker(queue, redrive, held=self._most))

    def _take_all(self, taker: DeadLetterConsumer) -> None:
        gathered: list[Delivery] = []
        plan = self._plan
        # Else the look that follows tells the end.
        answers = self._paged or not self._reading.capabilities.browse
        asked = not answers
        while taker.full is None:
            delivery = taker.take(self._patience(taker, gathered, asked=asked))
            if delivery is None:
                if gathered:
                    self._send(taker, gathered)
                elif taker.unconfirmed:
                    taker.wait_below(1)
                    self._tell()
                elif asked:
                    return
                else:
                    self._reading.ask(plan.queue)
                    asked = True
                continue
            asked = not answers
            verdict = plan.judge(self._read(delivery), delivery, self._reading.clock.time())
            if verdict != "go":
                plan.left[verdict] += 1
                taker.keep(delivery)
            elif plan.redrive is None:
                if taker.drop(delivery):
                    plan.gone(delivery)
                self._tell()
            else:
                gathered.append(delivery)
                if self._enough(gathered):
                    self._send(taker, gathered)
        if gathered:
            self._send(taker, gathered)
        taker.wait_below(1)
        self._tell()

    def _patience(self, taker: DeadLetterConsumer, gathered: Sequence[Delivery], *, asked: bool) -> float:
        """Return how long to wait for the next one: for a full transaction only while another is on its way."""
        if not gathered:
            return min(PAGE, self._idle) if self._paged and not asked else self._idle
        return COMPANY if taker.unconfirmed else 0.0

    def _enough(self, gathered: Sequence[Delivery]) -> bool:
        return len(gathered) >= self._batch or sum(len(one.body) for one in gathered) >= BATCH_BYTES

    def _send(self, taker: DeadLetterConsumer, gathered: list[Delivery]) -> None:
        """Send what is gathered, when so much is confirmed that more may be on its way.

        While it is, those that follow are looked at.
        """
        clock = self._reading.clock
        if self._rate is not None:
            pass_time(clock, self._began + self._sent / self._rate - clock.monotonic())
        taker.wait_below(self._below)
        # Another thread may be about to write acceptances of confirmed copies. They must precede the next copy.
        self._reading.flush()
        self._sent += len(taker.send_on(gathered, together=self._together))
        gathered.clear()
        self._tell()

    def _tell(self) -> None:
        """Tell how many have gone: of a redrive, whose copies are confirmed."""
        if self._told is not None:
            self._told(self._plan.destinations.total())


def check_in_flight(given: int | None, able: Capabilities) -> None:
    """Raise ConfigurationError over a number of copies in flight that makes no sense, or means nothing here."""
    if given is None:
        return
    if isinstance(given, bool) or given < 1:
        raise ConfigurationError(f"in_flight must be 1 or more, not {given!r}", option="in_flight")
    if able.forward == "atomic":
        raise ConfigurationError(
            f"in_flight means nothing on {able.broker}: there a copy and the acceptance of its dead letter are one "
            "transaction, so a kill leaves nothing twice",
            option="in_flight",
        )


def new_run() -> str:
    """Return a name for a run."""
    return uuid.uuid4().hex[:16]
