"""Run of `redelivery demo`, and its checks. `demo_view` shows it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import redelivery
from redelivery.clock import SystemClock
from redelivery.events import Finished
from redelivery.testing import MemoryBroker
from redelivery.uri.joining import with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redelivery import Message, Report
    from redelivery.clock import Clock
    from redelivery.events import Event
    from redelivery_memory import HeldMessage

__all__ = ["Check", "Demo", "DemoAttempt", "Outcome"]

QUEUE = "orders"
REDELIVERIES = 3
# Seconds beyond the schedule, for a very busy machine.
PATIENCE = 10.0
# Seconds between looks at the clock while nothing happens.
LOOK = 0.05


class _Flaky:
    """Handler in place of a user's: it succeeds, succeeds at the third attempt, or never."""

    failures: dict[str, tuple[int, Exception]] = {  # noqa: RUF012 - a table, never changed
        "order-1": (0, ValueError()),
        "order-2": (2, TimeoutError("busy")),
        "order-3": (REDELIVERIES + 1, ValueError("no item")),
    }

    def __call__(self, message: Message) -> None:
        fails, error = self.failures[message.text]
        if message.delivery_count <= fails:
            raise error


@dataclass(frozen=True, slots=True)
class DemoAttempt:
    """One delivery of one message. `at`: seconds since the start; the others are milliseconds."""

    at: float
    message: str
    delivery: int
    result: str
    """`accepted`, `failed` or `poisoned`."""
    cause: str | None = None
    asked_ms: int | None = None
    """Delay before this delivery by the policy; None: the first delivery."""
    waited_ms: float | None = None
    """Measured delay, from the end of the last attempt to the start of this one."""
    next_ms: int | None = None
    """Delay before the next delivery, by the policy."""


@dataclass(frozen=True, slots=True)
class Check:
    """Promise of the demo, and whether it was kept."""

    promise: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the demo."""

    uri: str
    attempts: tuple[DemoAttempt, ...]
    report: Report
    dead_letters: tuple[HeldMessage, ...]
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """True if every promise was kept."""
        return all(check.kept for check in self.checks)

    def letters(self) -> list[dict[str, Any]]:
        """Return the dead letters for JSON."""
        return [
            {
                "message": letter.text,
                "message_id": letter.message_id,
                "original_destination": letter.original_destination,
                "failures": letter.count,
                "cause": letter.cause,
            }
            for letter in self.dead_letters
        ]

    def fields(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "uri": self.uri,
            "attempts": [asdict(attempt) for attempt in self.attempts],
            "report": asdict(self.report),
            "dead_letters": self.letters(),
            "checks": [asdict(check) for check in self.checks],
            "ok": self.ok,
        }


class Demo:
    """Three messages on an embedded broker, under one policy with exponential back-off."""

    def __init__(self, first_delay_ms: int, clock: Clock | None = None) -> None:
        """`first_delay_ms`: the delay before the first redelivery, which doubles each time.

        `clock`: another clock than the system's, which `tick` of `run` has to move.
        """
        prefix = "jms.redeliveryPolicy."
        options = {
            "maximumRedeliveries": REDELIVERIES,
            "initialRedeliveryDelay": first_delay_ms,
            "useExponentialBackOff": "true",
            "backOffMultiplier": 2,
        }
        self.uri = with_options(
            "memory://demo", {f"{prefix}{name}": str(value) for name, value in options.items()}
        )
        self.delays_ms = redelivery.parse_uri(self.uri).policies.policy_for(QUEUE).delays_ms(REDELIVERIES)
        self.attempts: list[DemoAttempt] = []
        self._clock = clock or SystemClock()
        self._events: SimpleQueue[DemoAttempt] = SimpleQueue()
        self._names: dict[str | None, str] = {}
        self._work = _Flaky()
        self._started = 0.0
        self._begun: dict[str | None, tuple[float, int]] = {}
        self._failed: dict[str | None, tuple[float, int]] = {}

    def run(self, tick: Callable[[], None]) -> Iterator[DemoAttempt | Outcome]:
        """Run it: yield the attempts as they happen, then the outcome.

        `tick` is called while nothing happens.
        """
        clock = self._clock
        with (
            MemoryBroker("demo", clock=clock) as broker,
            redelivery.connect(self.uri, observers=[self._observe], clock=clock) as connection,
        ):
            for name in _Flaky.failures:
                self._names[connection.send(QUEUE, name)] = name
            connection.listen(QUEUE, self._handle)
            self._started = clock.monotonic()
            connection.start()
            deadline = self._started + sum(self.delays_ms) / 1000 + PATIENCE
            ended = 0
            while ended < len(self._names) and clock.monotonic() < deadline:
                try:
                    attempt = self._events.get(timeout=LOOK)
                except Empty:
                    tick()
                    continue
                self.attempts.append(attempt)
                if attempt.result != "failed":
                    ended += 1
                yield attempt
            report = connection.drain(5.0)
            yield self._outcome(report, broker)

    def waiting(self) -> list[tuple[str, float, float]]:
        """Return (name, seconds left, share of the delay that is over) of each parked message."""
        now, last = self._clock.monotonic(), {attempt.message: attempt for attempt in self.attempts}
        found: list[tuple[str, float, float]] = []
        for identity, (failed_at, delay_ms) in list(self._failed.items()):
            name = self._names[identity]
            if name in last and last[name].result == "failed" and delay_ms > 0:
                share = min(1.0, (now - failed_at) * 1000 / delay_ms)
                found.append((name, delay_ms / 1000 * (1 - share), share))
        return found

    def _handle(self, message: Message) -> None:
        self._begun[message.message_id] = self._clock.monotonic(), message.delivery_count
        self._work(message)

    def _observe(self, event: Event) -> None:
        """Record the outcome of an attempt."""
        if not isinstance(event, Finished):
            return
        match event.outcome:
            case "redelivered":
                delay = round((event.delay or 0.0) * 1000)
                self._note(event.message_id, "failed", event.cause, delay)
                # The engine's time of the failure: the redelivery must not be earlier than the delay after it.
                record = event.delivery.record
                assert record is not None and record.last_failure is not None, "it has failed"  # noqa: PT018
                self._failed[event.message_id] = record.last_failure, delay
            case "accepted":
                self._note(event.message_id, "accepted")
            case "poisoned":
                self._note(event.message_id, "poisoned", event.cause)
            case _:
                pass

    def _note(
        self, identity: str | None, result: str, cause: str | None = None, next_ms: int | None = None
    ) -> None:
        begun, delivery = self._begun[identity]
        before = self._failed.get(identity)
        attempt = DemoAttempt(
            at=begun - self._started,
            message=self._names[identity],
            delivery=delivery,
            result=result,
            cause=cause,
            asked_ms=None if before is None else before[1],
            waited_ms=None if before is None else (begun - before[0]) * 1000,
            next_ms=next_ms,
        )
        self._events.put(attempt)

    def _outcome(self, report: Report, broker: MemoryBroker) -> Outcome:
        letters = tuple(broker.dead_letters())
        checks = (
            *(self._check_deliveries(name, fails) for name, (fails, _) in _Flaky.failures.items()),
            Check("each redelivery came after the delay asked for, none early", self._none_early()),
            Check(
                f"the report says so: accepted 2, redelivered {REDELIVERIES + 2}, poisoned 1",
                (report.accepted, report.redelivered, report.poisoned) == (2, REDELIVERIES + 2, 1),
            ),
            Check(
                "order-3 alone is in the dead-letter queue, with its cause and count",
                [(x.text, x.count, x.original_destination) for x in letters]
                == [("order-3", REDELIVERIES + 1, f"queue://{QUEUE}")]
                and letters[0].cause == "ValueError: no item",
            ),
            Check(f"nothing is left in {QUEUE}", broker.depth(QUEUE) == 0),
        )
        return Outcome(self.uri, tuple(self.attempts), report, letters, checks)

    def _check_deliveries(self, name: str, fails: int) -> Check:
        promised = min(fails, REDELIVERIES) + 1
        poisoned = fails > REDELIVERIES
        mine = [attempt for attempt in self.attempts if attempt.message == name]
        kept = [attempt.delivery for attempt in mine] == list(range(1, promised + 1)) and (
            mine[-1].result == ("poisoned" if poisoned else "accepted")
        )
        times = "once" if promised == 1 else f"{promised} times"
        return Check(
            f"{name} was delivered {times}, and {'poisoned' if poisoned else 'accepted'} the last time", kept
        )

    def _none_early(self) -> bool:
        return all(self._in_time(attempt) for attempt in self.attempts)

    def _in_time(self, attempt: DemoAttempt) -> bool:
        if attempt.asked_ms is None or attempt.waited_ms is None:
            return attempt.delivery == 1
        asked_for = self.delays_ms[attempt.delivery - 2]
        # A microsecond of tolerance: the clock's floats are rounded.
        return attempt.asked_ms == asked_for and attempt.waited_ms >= asked_for - 0.001
