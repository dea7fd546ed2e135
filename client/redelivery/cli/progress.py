"""Progress of long work on stderr: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import redelivery
from redelivery.cli.exit_codes import PARTLY, Failure
from redelivery.cli.formatting import console, duration, note

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from redelivery.dlq.dead_letter import DeadLetter

__all__ = ["ProgressSteps", "counted", "progress", "stopping"]

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
