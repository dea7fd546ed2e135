"""`redelivery demo`: redelivery and dead-lettering in a few seconds, without a broker."""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import click

import redelivery
from redelivery.cli.common_options import milliseconds, number, output_option, verbose_option
from redelivery.cli.exit_codes import FAILED, OK, Failure
from redelivery.cli.formatting import console, duration, print_table, report_line, speaks, to_json
from redelivery.clock import SystemClock
from redelivery.events import Finished
from redelivery.testing import MemoryBroker
from redelivery.uri.syntax import with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from rich.text import Text

    from redelivery import Message, Report
    from redelivery.clock import Clock
    from redelivery.events import Event
    from redelivery_memory import HeldMessage

__all__ = ["Demo", "Outcome", "TableView"]


# ---- Demo ------------------------------------------------------------------------------------------------


def _delay(value: object) -> int:
    return number(1, 60_000)(milliseconds(1)(value))


@click.command(
    short_help="See redelivery at work in a few seconds, without a broker.",
    epilog="""\b
Examples:
  redelivery demo
  redelivery demo --delay 1000
  redelivery demo --output jsonl | jq -c 'select(.type == "attempt")'""",
)
@click.option(
    "--delay", type=_delay, default="400ms", show_default=True, metavar="DURATION",
    help="Delay before the first redelivery, 60 s at most; it doubles each time. A bare number: milliseconds.",
)  # fmt: skip
@output_option
@verbose_option
@click.pass_context
def demo(ctx: click.Context, delay: int, output: str) -> int:
    """Show redelivery at work on an embedded broker: three messages, one of which is poison.

    In real time: a message that succeeds, one that fails twice and succeeds when it is redelivered, and one that
    fails until it is dead-lettered. Exit code 0 only if all of it happened as promised: the deliveries counted,
    no delay cut short, the dead letter in its queue.
    """
    if not ctx.meta["verbosity"]:
        # The timeline says what the warnings would.
        logging.getLogger("redelivery").setLevel(logging.ERROR)
    show = Demo(delay)
    view = TableView(show) if output == "table" else JsonView(lines=output == "jsonl")
    outcome: Outcome | None = None
    with view.live():
        for event in show.run(view.tick):
            if isinstance(event, Outcome):
                outcome = event
            else:
                view.attempt(event)
    assert outcome is not None, "the last thing that `run` yields"
    view.outcome(outcome)
    if not outcome.ok:
        broken = "; ".join(check.promise for check in outcome.checks if not check.kept)
        raise Failure(f"this did not happen as promised: {broken}", FAILED)
    return OK


# ---- Demo run --------------------------------------------------------------------------------------------
# Run of `redelivery demo`, and its checks. `demo_view` shows it.

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


# ---- Demo view -------------------------------------------------------------------------------------------
# Output of `redelivery demo`: a growing timeline, the parked messages below it, and a summary at the end.

HEAD = f"{'TIME':>7} {'MESSAGE':<7}  {'DELIVERY':<8} {'ASKED':>7} {'WAITED':>9}  {'RESULT':<22} NEXT"
BAR = 12  # characters
_STYLES = {"accepted": "green", "failed": "yellow", "poisoned": "red"}


class JsonView:
    """One JSON object at the end, or with `lines` one for each event as it happens."""

    def __init__(self, *, lines: bool) -> None:
        self._lines = lines

    def live(self) -> AbstractContextManager[object]:
        """Show nothing but data."""
        return nullcontext()

    def tick(self) -> None:
        """Do nothing: no output moves."""

    def attempt(self, attempt: DemoAttempt) -> None:
        """Write an attempt."""
        self._line("attempt", asdict(attempt))

    def outcome(self, outcome: Outcome) -> None:
        """Write the rest, or everything."""
        if not self._lines:
            click.echo(to_json(outcome.fields(), indent=2))
            return
        for letter in outcome.letters():
            self._line("dead_letter", letter)
        for check in outcome.checks:
            self._line("check", asdict(check))
        self._line("report", asdict(outcome.report))

    def _line(self, kind: str, fields: dict[str, Any]) -> None:
        if self._lines:
            click.echo(to_json({"type": kind, **fields}))
            sys.stdout.flush()


class TableView:
    """Output for people."""

    def __init__(self, demo: Demo, *, bars: bool = True) -> None:
        """`bars`: on a terminal, show each message that waits as a bar that grows."""
        self._demo = demo
        self._bars = bars
        self._console = console()
        full = speaks(sys.stdout, "✓✗→█░")
        self._good, self._bad, self._to = ("✓", "✗", "→") if full else ("+", "x", "->")
        self._full, self._empty = ("█", "░") if full else ("#", ".")
        self._live: Any = None

    def live(self) -> AbstractContextManager[object]:
        """Write what will happen; on a terminal show the parked messages."""
        delays = ", ".join(duration(delay) for delay in self._demo.delays_ms)
        self._line("An embedded broker, one queue, three messages.")
        self._line(f"Policy: redeliver after {delays}; a failure after that is poison.")
        self._line("Here order-1 works; order-2 fails twice, then works; order-3 always fails.\n")
        self._line(HEAD, "bold")
        if not self._bars or not self._console.is_terminal:
            return nullcontext()
        from rich.live import Live  # noqa: PLC0415

        live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stderr=False)
        self._live = live
        return live

    def tick(self) -> None:
        """Redraw the bars of the parked messages."""
        if self._live is not None:
            self._live.update(self._waiting(), refresh=True)

    def attempt(self, attempt: DemoAttempt) -> None:
        """Add a line to the timeline."""
        from rich.text import Text  # noqa: PLC0415

        asked = "" if attempt.asked_ms is None else f"{attempt.asked_ms} ms"
        waited = "" if attempt.waited_ms is None else f"{attempt.waited_ms:.1f} ms"
        mark = self._good if attempt.result == "accepted" else self._bad
        line = Text(f"{attempt.at:>5.3f} s {attempt.message:<7}  ")
        line.append(f"{f'{attempt.delivery} of {len(self._demo.delays_ms) + 1}':<8} {asked:>7} {waited:>9}  ")
        line.append(f"{mark} {attempt.cause or attempt.result:<20} ", _STYLES[attempt.result])
        match attempt.result:
            case "failed":
                line.append(f"in {attempt.next_ms} ms")
            case "poisoned":
                line.append(f"{self._to} DLQ", "red")
            case _:
                line.append("done")
        self._console.print(line, soft_wrap=True)
        self.tick()

    def outcome(self, outcome: Outcome) -> None:
        """Add the report, the dead-letter queue, the checks, and the next commands."""
        self._line(f"\nReport: {report_line(outcome.report)}\n")
        self._line("Dead-letter queue (queue://DLQ)", "bold")
        print_table(
            [
                (letter.text, letter.original_destination or "", str(letter.count), letter.cause or "")
                for letter in outcome.dead_letters
            ],
            ["message", "came from", "failures", "cause"],
            right=["failures"],
        )
        self._line("")
        for check in outcome.checks:
            mark, style = (self._good, "green") if check.kept else (self._bad, "bold red")
            self._line(f"{mark} {check.promise}", style if not check.kept else "", mark_style=style)
        self._line("\nNext: see this policy's delays, then try it on your own broker:")
        self._line(f"  redelivery policy explain '{outcome.uri}' --destination orders")
        self._line("  redelivery consume stomp://localhost:61613 orders --exec 'cat'")

    def _line(self, text: str, style: str = "", *, mark_style: str = "") -> None:
        from rich.text import Text  # noqa: PLC0415

        line = Text(text, style)
        if mark_style:
            line.stylize(mark_style, 0, 1)
        self._console.print(line, soft_wrap=True)

    def _waiting(self) -> Text:
        from rich.text import Text  # noqa: PLC0415

        line = Text(no_wrap=True, overflow="ellipsis")
        for name, left, share in self._demo.waiting():
            done = int(share * BAR)
            line.append(f"  {name} ", "dim")
            line.append(self._full * done, "yellow").append(self._empty * (BAR - done), "dim")
            line.append(f" {left:3.1f} s ", "dim")
        return line
