"""One run over a dead-letter queue that removes messages: a redrive or a purge."""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from redelivery.clock import pass_time
from redelivery.core.dead_lettering.dead_letter_headers import overruled
from redelivery.core.dead_lettering.redrive import REDRIVE_RUN, Redrive
from redelivery.dlq.dead_letter import Purged, Redriven
from redelivery.dlq.dead_letter_places import Reached
from redelivery.dlq.second_letters import SecondLetters
from redelivery.errors import AdapterError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redelivery.core.capabilities import Capabilities
    from redelivery.core.delivery import Delivery
    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery.dlq.dlq_connection import DeadLetterConnection, DeadLetterConsumer
    from redelivery.dlq.selection import Selection

__all__ = ["RemovalPlan", "RemovalRun"]

# Copies in one transaction, at most.
BATCH = 64
# Bytes of their bodies, about.
BATCH_BYTES = 1024 * 1024
# Seconds' worth of copies in one at most, where there is a rate: with more the rate would not hold for each second.
BATCH_TIME = 0.1
# Rounds at a queue that can be shown, while dead letters that match are left.
LOOKS = 5
# Seconds without a dead letter after which a broker that hands out pages is asked for the next.
PAGE = 0.1
# Seconds that dead letters wait for others, while the transaction before them is unconfirmed.
COMPANY = 0.02
Verdict = str


class RemovalPlan:
    """Decides for each dead letter whether it goes, and counts its decisions."""

    def __init__(
        self,
        queue: str,
        selection: Selection,
        redrive: Redrive | None,
        *,
        topics: bool,
        reach: Callable[[str], Reached] = Reached,
        second: SecondLetters | None = None,
    ) -> None:
        """`reach`: asks where messages for an origin are sent; called for each letter. `second`: of all queues."""
        self.queue = queue
        self.selection = selection
        self.redrive = redrive
        self._topics = topics
        self._reach = reach
        self._second = second or SecondLetters(())
        # Origins, and why the broker would drop what is sent there.
        self._dropping: dict[str, str] = {}
        self.left: Counter[str] = Counter()
        self.destinations: Counter[str] = Counter()
        self.quarantined = 0
        self.overruled = 0
        # Letters removed whose message another queue's letter has brought back.
        self.doubles = 0

    def judge(self, letter: DeadLetter, delivery: Delivery, now: float) -> Verdict:
        """Return `go`, or why it stays; `doubles`: its message has been sent back, and it goes without a copy."""
        if not self.selection.matches(letter, now):
            return "skipped"
        return "go" if self.redrive is None else self._judge_redrive(self.redrive, letter, delivery)

    def _judge_redrive(self, redrive: Redrive, letter: DeadLetter, delivery: Delivery) -> Verdict:
        if letter.headers.get(REDRIVE_RUN) == redrive.run:
            return "again"
        target = redrive.target(delivery)
        if target is None or target in (self.queue, letter.queue):
            return "without_origin"
        if not letter.whole:
            return "partial"
        if target.startswith(("topic://", "temp-topic://")) and not self._topics:
            return "topics"
        if self._drops(redrive, target):
            return "dropped"
        return self._second.judge(delivery, self.queue)

    def _drops(self, redrive: Redrive, target: str) -> bool:
        """Return True if the broker would drop what is sent to an origin; places that were named are checked before."""
        if target in (redrive.destination, redrive.quarantine, *redrive.reached.values()):
            return False
        sent, why = self._reach(target)
        if why:
            self._dropping[target] = why
        elif sent != target:
            redrive.reached[target] = sent
        return bool(why)

    def gone(self, delivery: Delivery) -> None:
        """Count one that goes."""
        redrive = self.redrive
        target = self.queue if redrive is None else redrive.target(delivery)
        self.destinations[target or ""] += 1
        if redrive is None or target is None:
            return
        self._second.gone(delivery)
        if target == redrive.quarantine:
            self.quarantined += 1
        elif redrive.destination is None and overruled(delivery):
            self.overruled += 1

    def removed(self, delivery: Delivery) -> None:
        """Count a second letter that was removed."""
        self.doubles += 1
        self._second.removed(delivery, self.queue)

    def report(self, incomplete: str | None, *, dry_run: bool = False) -> Redriven | Purged:
        """Return the counts."""
        done, left = self.destinations.total(), self.left
        if stay := left["dropped"]:
            told = "; ".join(f"{origin}: {why}" for origin, why in self._dropping.items())
            incomplete = "; ".join(filter(None, (incomplete, f"{stay} dead letters stay: {told}")))
        if stay := left["second"]:
            told = f"{stay} stay in {self.queue}: other queues of its address have them, too"
            incomplete = "; ".join(filter(None, (incomplete, told)))
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
            doubles=self.doubles + left["doubles"],
            partial=left["partial"],
            topics=left["topics"],
            incomplete=incomplete,
            dry_run=dry_run,
        )


class RemovalRun:
    """Carries out a plan: takes dead letters one by one; each leaves only when its copy is confirmed."""

    def __init__(
        self,
        reading: DeadLetterConnection,
        plan: RemovalPlan,
        read: Callable[[Delivery], DeadLetter],
        *,
        rate: float | None,
        idle: float,
        progress: Callable[[int], None] | None,
        in_flight: int | None = None,
    ) -> None:
        self._reading = reading
        self._plan = plan
        self._read = read
        self._rate = rate
        self._idle = idle
        self._progress = progress
        self._sent = 0
        self._began = reading.clock.monotonic()
        able = reading.capabilities
        self._together = able.forward == "atomic"
        # One by one where a copy and its acceptance are two operations: a kill leaves a message twice whose copy was
        # sent and that was not accepted yet. Where the broker drops a second copy they can be many.
        self._batch = BATCH if self._together else 1
        if rate is not None:
            self._batch = max(1, min(self._batch, int(rate * BATCH_TIME)))
        many = self._together or able.drops_second_copy
        self._below = in_flight or (max(self._batch, BATCH) + 1 if many else 1)
        # Classic sends a page, and the next one when something happens to the queue. With a selector it goes through
        # all that it has paged in for each message that is removed: 43,000 cost 15 ms (measured).
        self._paged = able.browse_limit is not None
        self._most = reading.first

    def carry_out(self) -> str | None:
        """Carry out the plan; return why more dead letters that match may be left, or None.

        Raises:
            RedeliveryError: The broker refused copies, or reconnecting was given up.
        """
        try:
            return self._carry_out()
        finally:
            # Also copies that were confirmed during an interruption.
            self._tell()

    def _carry_out(self) -> str | None:
        able, plan = self._reading.capabilities, self._plan
        filtered = able.selectors and not self._paged
        selector = plan.selection.selector() if filtered else None
        redrive = plan.redrive or Redrive("")
        shown = meant = 0
        staying = None
        for _ in range(LOOKS if able.browse else 1):
            taker = self._round(redrive, selector)
            if taker.full is not None:
                return f"{taker.full}, which is the limit: redrive or purge these first"
            staying = self._counted(taker)
            shown, meant = self._look(taker.held) if able.browse else (0, 0)
            if not meant:
                break
        limit = able.browse_limit
        if limit is not None and not plan.selection.everything and shown >= limit:
            return (
                f"{able.broker} shows the first {limit} dead letters only: more that match may be left; raise its "
                "maxBrowsePageSize for the dead-letter queue"
            )
        if staying is not None:
            return staying
        if meant:
            return f"{meant} dead letters that match are still there: they arrived meanwhile, or are another consumer's"
        return None

    def _counted(self, taker: DeadLetterConsumer) -> str | None:
        """Return how the broker drops what stays after a run without filters, which was not refused; or None."""
        if taker.release_limit is None or not taker.held or not self._plan.selection.everything:
            return None
        broker = self._reading.capabilities.broker
        return (
            f"{taker.held} dead letters stay, and each run counts against the limit of the queue: {broker} drops them "
            f"after {taker.release_limit} runs; name a destination (--to)"
        )

    def _round(self, redrive: Redrive, selector: str | None) -> DeadLetterConsumer:
        """Take all dead letters. If a window is full of those that stay, release them and begin with a wider one."""
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
        """Return the number on the queue, and the number that match: silence does not prove that none is left."""
        plan, now, shown, meant = self._plan, self._reading.clock.time(), 0, 0
        limit = self._reading.capabilities.browse_limit
        if limit is not None and held >= limit:
            # The broker would show what it has sent already; Classic takes seconds to show many.
            return held, 0
        for delivery in self._reading.shown(plan.queue):
            shown += 1
            if plan.judge(self._read(delivery), delivery, now) in ("go", "doubles"):
                meant += 1
        return shown, meant

    def _opened(self, stack: ExitStack, redrive: Redrive, selector: str | None) -> DeadLetterConsumer:
        """Start to consume; without the selector, which only saves work, if the broker refuses it."""
        reading, queue = self._reading, self._plan.queue
        spares = not self._plan.selection.everything
        try:
            return stack.enter_context(
                reading.taker(queue, redrive, selector, held=self._most, spares=spares)
            )
        except AdapterError:
            if selector is None:
                raise
            return stack.enter_context(reading.taker(queue, redrive, held=self._most, spares=spares))

    def _take_all(self, taker: DeadLetterConsumer) -> None:
        gathered: list[Delivery] = []
        plan = self._plan
        # Otherwise the look that follows finds the end.
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
                self._without_copy(taker, delivery, verdict)
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

    def _without_copy(self, taker: DeadLetterConsumer, delivery: Delivery, verdict: Verdict) -> None:
        if verdict == "doubles":
            if taker.drop(delivery):
                self._plan.removed(delivery)
        else:
            self._plan.left[verdict] += 1
            taker.keep(delivery)

    def _patience(self, taker: DeadLetterConsumer, gathered: Sequence[Delivery], *, asked: bool) -> float:
        """Return how long to wait for the next one: for a full transaction only while another is unconfirmed."""
        if not gathered:
            return min(PAGE, self._idle) if self._paged and not asked else self._idle
        return COMPANY if taker.unconfirmed else 0.0

    def _enough(self, gathered: Sequence[Delivery]) -> bool:
        return len(gathered) >= self._batch or sum(len(one.body) for one in gathered) >= BATCH_BYTES

    def _send(self, taker: DeadLetterConsumer, gathered: list[Delivery]) -> None:
        """Send the gathered dead letters, once few enough copies are unconfirmed.

        While these are unconfirmed, the following dead letters are read.
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
        """Report how many are removed; of a redrive, those whose copies are confirmed."""
        if self._progress is not None:
            self._progress(self._plan.destinations.total())


def check_in_flight(given: int | None, able: Capabilities) -> None:
    """Raise ConfigurationError for a number of copies in flight that makes no sense, or has no effect here."""
    if given is None:
        return
    if isinstance(given, bool) or given < 1:
        raise ConfigurationError(f"in_flight must be 1 or more, not {given!r}", option="in_flight")
    if able.forward == "atomic":
        raise ConfigurationError(
            f"in_flight has no effect on {able.broker}: a copy and the acceptance of its dead letter are one "
            "transaction, and a kill leaves nothing twice; leave it out",
            option="in_flight",
        )


def new_run() -> str:
    """Return a name for a run."""
    return uuid.uuid4().hex[:16]
