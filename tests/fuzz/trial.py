"""Trial of one input in this process: its exception, its time, and the growth of memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import resource
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.fuzz.target import Target

__all__ = ["Finding", "Kind", "Trial", "forget_peak", "held_mb", "try_input"]

Kind = Literal["exception", "slow", "memory", "crash", "hang"]
_HERE = str(Path(__file__).parent)


class Finding(NamedTuple):
    """A fault that one input shows."""

    kind: Kind
    what: str
    """The fault in one sentence."""
    place: str
    """Place of the fault; findings of the same kind and place are one fault."""
    data: bytes

    @property
    def fault(self) -> tuple[str, str]:
        """Kind and place, which all findings of one fault share."""
        return self.kind, self.place


class Trial(NamedTuple):
    """Result of one input."""

    finding: Finding | None
    seconds: float
    """Seconds of processor time."""
    grown_mb: float
    """MiB by which the peak memory of the trial was above the memory before it."""
    peak_mb: float


class _HangError(BaseException):
    """Raised in an input that takes far too long."""


@functools.cache
def _proc(process: int, name: str) -> int:
    """Open a file of this process in /proc, once: opening it for each trial would take as long as a trial."""
    return os.open(f"/proc/{process}/{name}", os.O_WRONLY if name == "clear_refs" else os.O_RDONLY)


def _peak_mb() -> float:
    """Return the peak memory of this process since `_reset_peak`, in MiB; since its start if the system has no /proc.

    Not `ru_maxrss` where there is another way: nothing resets it, and a process that a large one has started begins
    with that one's peak.
    """
    try:
        status = os.pread(_proc(os.getpid(), "status"), 4096, 0)
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)
    return int(status.partition(b"VmHWM:")[2].split(maxsplit=1)[0]) / 2**10


def _reset_peak() -> None:
    """Set the peak memory to the current memory, if the system can."""
    with contextlib.suppress(OSError):
        os.pwrite(_proc(os.getpid(), "clear_refs"), b"5", 0)


def held_mb() -> float:
    """Return the current memory of this process, in MiB; its peak if the system does not report the current one."""
    try:
        statm = os.pread(_proc(os.getpid(), "statm"), 4096, 0)
    except OSError:
        return _peak_mb()
    return int(statm.split()[1]) * resource.getpagesize() / 2**20


@contextlib.contextmanager
def _interrupted(seconds: float) -> Generator[None]:
    """Raise `_HangError` in the block after `seconds` of processor time. Python can do so in its main thread only.

    A machine that stands still does not end an input then. SIGALRM is left to the time limit of a whole test, which
    also ends an input that waits for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hang(*_: object) -> None:
        raise _HangError

    before = signal.signal(signal.SIGPROF, hang)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def try_input(target: Target, data: bytes) -> Trial:
    """Try an input. If it seems too slow or too large, try it again: the machine may have been the cause."""
    trial = _once(target, data)
    if trial.finding is not None or (trial.seconds <= target.seconds and trial.grown_mb <= target.memory_mb):
        return trial
    forget_peak()
    again = _once(target, data)._replace(peak_mb=trial.peak_mb)
    forget_peak()
    if again.finding is not None:
        return again
    if min(trial.seconds, again.seconds) > target.seconds:
        what = f"{again.seconds:.1f} s of processor time, more than {target.seconds:g} s"
        return again._replace(finding=Finding("slow", what, "", data))
    if again.grown_mb > target.memory_mb:
        what = f"{again.grown_mb:.0f} MiB, more than {target.memory_mb} MiB"
        return again._replace(finding=Finding("memory", what, "", data))
    return again


def _once(target: Target, data: bytes) -> Trial:
    finding: Finding | None = None
    # The peak of earlier inputs, and of other tests of this process, would hide the growth.
    _reset_peak()
    before, start = held_mb(), time.process_time()
    try:
        with _interrupted(target.patience):
            target.check(data)
    except _HangError as error:
        finding = Finding(
            "hang", f"not done after {target.patience:g} s of processor time", _place(error), data
        )
    except Exception as error:  # noqa: BLE001 - any is a fault
        finding = Finding("exception", _shown(error), f"{type(error).__name__} {_place(error)}", data)
    seconds, after = time.process_time() - start, _peak_mb()
    return Trial(finding, seconds, after - before, after)


def _shown(error: Exception) -> str:
    return f"{type(error).__name__} at {_place(error)}: {str(error)[:300]!r}"


def _place(error: BaseException) -> str:
    """Return the innermost line outside of the standard library; for a hang, one of the outermost lines."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if not frame.filename.startswith((sys.base_prefix, "<"))]
    if isinstance(error, _HangError | RecursionError):
        inside = [frame for frame in inside if Path(frame.filename).parent != Path(_HERE)][:2]
    last = (inside or frames)[-1]
    return f"{Path(last.filename).name}:{last.lineno} {last.name}"


def forget_peak() -> None:
    """Give freed memory back to the system, and set the peak memory to the current memory, if the system can.

    Memory that the allocator keeps would serve the next input, whose growth would not be seen. What Python keeps for
    small objects stays.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    _reset_peak()
