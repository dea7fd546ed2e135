"""Output helpers: tables, JSON, durations; safe on any terminal, plain in a pipe.

A message can contain terminal escapes: its texts are written through `clean` or JSON's escapes only.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

import redelivery
from redelivery.cli.exit_codes import PARTLY, Failure
from redelivery.core.credit import MOST_CREDIT, first_credit
from redelivery.core.shown_values import printable as clean

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from rich.console import Console

    from redelivery.core.destination import Destination
    from redelivery.core.report import Report
    from redelivery.dlq.dead_letter import DeadLetter
    from redelivery.message import Message
    from redelivery.settings import Settings

__all__ = [
    "Printer",
    "ProgressSteps",
    "clean",
    "console",
    "counted",
    "credit_words",
    "duration",
    "note",
    "print_table",
    "progress",
    "report_line",
    "sparkline",
    "speaks",
    "stopping",
    "to_json",
]


# ---- Formatting ------------------------------------------------------------------------------------------

_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# Columns without a terminal: in a pipe each row is one line.
_WIDE = 10_000
# Columns: the least width of a column that may wrap, if its texts are longer.
_FOLDED = 20
_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-=+*%#"


def to_json(value: object, *, indent: int | None = None) -> str:
    """Return JSON without characters that control a terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def note(text: str) -> None:
    """Write one line to stderr."""
    click.echo(clean(text), err=True)


def speaks(stream: TextIO, characters: str) -> bool:
    """True if the stream's encoding has all the characters."""
    try:
        characters.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def console(*, err: bool = False, wide: bool = False) -> Console:
    """Return a console on stdout or stderr that shows text as it is, without markup. `wide`: as in a pipe."""
    from rich.console import Console  # noqa: PLC0415 - 60 ms that JSON does not need

    stream = sys.stderr if err else sys.stdout
    width = None if (stream.isatty() or "COLUMNS" in os.environ) and not wide else _WIDE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def _least_width(rows: Sequence[Sequence[str]], headers: Sequence[str], fold: Sequence[str]) -> int:
    """Return the width of a table in which a column of `fold` is as narrow as can be read."""
    from rich.cells import cell_len  # noqa: PLC0415

    columns = zip(headers, *rows, strict=True)
    widths = [max(map(cell_len, column)) for column in columns]
    least = (min(each, _FOLDED) if name in fold else each for name, each in zip(headers, widths, strict=True))
    return sum(least) + 2 * (len(headers) - 1)


def print_table(
    rows: Iterable[Sequence[str]],
    headers: Sequence[str],
    *,
    right: Sequence[str] = (),
    fold: Sequence[str] = (),
) -> None:
    """Print a table without lines. `right`: headers of columns with numbers; `fold`: of those that may wrap.

    On a terminal that is too narrow each row is one line, which the terminal wraps: a cut id could not be copied.
    """
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(
            header,
            justify="right" if header in right else "left",
            no_wrap=header not in fold,
            overflow="fold" if header in fold else "ellipsis",
        )
    cleaned = [[clean(cell) for cell in row] for row in rows]
    for row in cleaned:
        table.add_row(*row)
    out = console()
    if _least_width(cleaned, headers, fold) > out.width:
        out = console(wide=True)
    with out.capture() as captured:
        out.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), color=out.is_terminal)


def duration(ms: float) -> str:
    """Return a duration for people: `400 ms`, `1.6 s`, `2 min 5 s`, `1 d 3 h`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds, parts = ms / 1000, list[str]()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count:.0f} {unit}")
    if seconds >= 0.0005:
        parts.append(f"{seconds:.3f}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts)


def sparkline(values: Sequence[float]) -> str:
    """Return one bar for each value, as high as its share of the greatest."""
    bars = _BARS if speaks(sys.stdout, _BARS) else _PLAIN_BARS
    top = max(values, default=0)
    if top <= 0:
        return bars[0] * len(values)
    return "".join(bars[min(len(bars) - 1, int(value / top * len(bars)))] for value in values)


def body_fields(body: bytes) -> dict[str, Any]:
    """Return a body for JSON: `body` where it is text, else `body_base64`."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        import base64  # noqa: PLC0415

        return {"body_base64": base64.b64encode(body).decode()}


# ---- Printer ---------------------------------------------------------------------------------------------
# Printer of messages on stdout: a growing table, or JSON.

# Characters of a body where there is no terminal.
PREVIEW = 60
COLUMNS = f"{'TIME':<12}  {'DELIVERY':>8}  {'MESSAGE':<36}  BODY"


def message_fields(message: Message) -> dict[str, Any]:
    """Return a message for JSON, without fields that it does not have."""
    fields: dict[str, Any] = {
        "message_id": message.message_id,
        "destination": message.destination,
        "delivery_count": message.delivery_count,
        "redelivered": message.redelivered,
        "timestamp": message.timestamp.isoformat() if message.timestamp else None,
        "expiration": message.expiration.isoformat() if message.expiration else None,
        "content_type": message.content_type,
        "correlation_id": message.correlation_id,
        "reply_to": message.reply_to,
        "group": message.group,
        "priority": message.priority,
        "persistent": message.persistent,
        "headers": dict(message.headers),
    }
    return {k: v for k, v in fields.items() if v is not None} | body_fields(message.body)


def report_line(report: Report) -> str:
    """Return the report as text: counts that are not 0, and always `accepted`."""
    counts = asdict(report)
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count or name == "accepted")


class Printer:
    """A handler that writes each message, flushed before it is accepted."""

    def __init__(self, output: str, enough: Callable[[], None]) -> None:
        """`enough` is called when the reader of stdout has gone."""
        self._output = output
        self._enough = enough
        self._written = 0
        self.closed = False

    def __call__(self, message: Message) -> None:
        """Write a message; release it if it cannot be written."""
        try:
            click.echo(self._text(message))
            sys.stdout.flush()
        except BrokenPipeError:
            self.closed = True
            message.release()
            self._enough()
            return
        self._written += 1

    def _text(self, message: Message) -> str:
        if self._output == "table":
            row = self._row(message)
            return row if self._written else f"{COLUMNS}\n{row}"
        line = to_json(message_fields(message))
        if self._output == "jsonl":
            return line
        return ('{"messages": [\n' if not self._written else ",\n") + line

    @staticmethod
    def _row(message: Message) -> str:
        import shutil  # noqa: PLC0415

        at = f"{message.timestamp.astimezone():%H:%M:%S.%f}"[:-3] if message.timestamp else "-"
        head = f"{at:<12}  {message.delivery_count:>8}  {clean(message.message_id or '-'):<36}  "
        room = PREVIEW
        if sys.stdout.isatty():
            room = max(10, shutil.get_terminal_size().columns - len(head))
        text = clean(message.body[: room * 4].decode("utf-8", "replace"))
        return head + (text if len(text) <= room else text[: room - 1] + "…")

    def finish(self, report: Report) -> None:
        """End the JSON, or write the report to stderr."""
        if self._output == "json" and not self.closed:
            start = '{"messages": [' if not self._written else ""
            click.echo(f'{start}\n], "report": {to_json(asdict(report))}}}')
        else:
            note(f"report: {report_line(report)}")


# ---- Progress --------------------------------------------------------------------------------------------
# Progress of long work on stderr: a bar on a terminal, elsewhere a line now and then.

# Seconds between two lines where there is no terminal.
EVERY = 10.0


class ProgressSteps:
    """Progress of one run. Call it with the number so far."""

    def __init__(self, verb: str, *, live: bool) -> None:
        self.verb = verb
        self.live = live
        """True if stderr is a terminal."""
        self.done = 0
        self._total: int | None = None
        self._show: Callable[[int, int | None], None] | None = None
        self._said = time.monotonic()

    def __call__(self, done: int) -> None:
        """Report the number so far."""
        self.done = done
        if self._show is not None:
            self._show(done, self._total)
        elif not self.live and (now := time.monotonic()) - self._said >= EVERY:
            self._said = now
            of = "" if self._total is None else f" of {self._total}"
            note(f"{done}{of} {self.verb} ...")

    def expect(self, total: int) -> None:
        """Set the total."""
        self._total = total
        if self._show is not None:
            self._show(self.done, total)

    @contextmanager
    def shown(self) -> Generator[None]:
        """Show a bar meanwhile, if stderr is a terminal."""
        if not self.live:
            yield
            return
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
        with Progress(*columns, console=console(err=True), redirect_stdout=False, transient=True) as bar:
            task, began = bar.add_task(self.verb, total=None), time.monotonic()

            def show(done: int, total: int | None) -> None:
                took = time.monotonic() - began
                text = f"{done} {self.verb}" if total is None else f"{done} of {total} {self.verb}"
                if took >= 1 and done:
                    text += f", {done / took:,.0f}/s"
                    if total is not None:
                        text += f", {duration(max(0, total - done) / done * took // 1 * 1000)} left"
                bar.update(task, description=text, completed=cast("float", done), total=total)

            self._show = show
            try:
                yield
            finally:
                self._show = None


def progress(verb: str) -> ProgressSteps:
    """Return a progress that is not shown yet."""
    return ProgressSteps(verb, live=sys.stderr.isatty())


class _EndedBySignal(KeyboardInterrupt):
    """SIGTERM arrived: it ends the run as Ctrl-C does."""


@contextmanager
def _terminated() -> Generator[None]:
    """Raise the first SIGTERM in the main thread; a second one has its usual effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)

    def end(number: int, frame: object) -> None:
        del number, frame
        signal.signal(signal.SIGTERM, before)
        raise _EndedBySignal

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def stopping(verb: str, *, whole: str | None = None) -> Generator[ProgressSteps]:
    """Yield a progress. If a signal or an error ends the run after some were done, the failure says how many.

    `whole`: File that is written whole or not: after an interruption nothing is done.
    """
    steps = progress(verb)
    try:
        with _terminated():
            yield steps
    except (redelivery.ConfigurationError, BrokenPipeError):
        raise
    except KeyboardInterrupt as error:
        why = "terminated" if isinstance(error, _EndedBySignal) else "interrupted"
        raise _broken_off(steps, why, whole) from None
    except (redelivery.RedeliveryError, OSError) as error:
        if not steps.done:
            raise
        raise _broken_off(steps, str(error), whole) from error


def _broken_off(steps: ProgressSteps, why: str, whole: str | None) -> Failure:
    if whole is not None:
        return Failure(f"{whole} was not written, after {steps.done} dead letters: {why}")
    if not steps.done:
        return Failure(f"nothing {steps.verb}: {why}")
    return Failure(f"{steps.done} {steps.verb}, then: {why}", PARTLY)


def counted(letters: Iterable[DeadLetter], steps: ProgressSteps) -> Iterator[DeadLetter]:
    """Yield dead letters, and report how many there were."""
    for count, letter in enumerate(letters, 1):
        steps(count)
        yield letter


# ---- Credit words ----------------------------------------------------------------------------------------
# Credit of a consumer, in words.


def credit_words(settings: Settings, destination: Destination | None) -> str:
    """Return the credit of a plain consumer of a destination; None: of a queue."""
    if destination is not None and destination.is_topic:
        return f"{settings.topic_credit:,}"
    if settings.credit is not None:
        return f"{settings.credit:,}"
    if destination is not None and destination.kind != "queue":
        return f"{MOST_CREDIT:,}"
    return f"auto, begins with {first_credit(1)} (one worker), at most {MOST_CREDIT:,}"
