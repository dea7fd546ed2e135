"""Output of `redelivery demo`: a growing timeline, the parked messages below it, and a summary at the end."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from redelivery.cli.formatting import console, duration, print_table, speaks, to_json
from redelivery.cli.printer import report_line

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.text import Text

    from redelivery.cli.demo_run import Demo, DemoAttempt, Outcome

__all__ = ["JsonView", "TableView"]

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
