"""Campaigns in child processes: if C code crashes, the child ends, and its current input is the finding."""

from __future__ import annotations

import faulthandler
import gc
import mmap
import os
import pickle
import re
import resource
import select
import signal
import struct
import tempfile
import time
from typing import TYPE_CHECKING, Any, cast

from tests.fuzz.campaign import Outcome
from tests.fuzz.trial import Finding, Kind, try_input

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fuzz.campaign import Campaign
    from tests.fuzz.target import Target

__all__ = ["run_in_child", "try_in_child"]

# Number of the campaign, number of the input, and how many inputs the child has begun.
_AT = struct.Struct("<QQQ")
_LENGTH = struct.Struct("<I")
_LINE = re.compile(r'File ".*?([^/"]+)", line (\d+) in (\w+)')


class _Child:
    """A forked process that does some work and sends objects to its parent."""

    def __init__(self, work: Callable[[Callable[[Any], None]], None]) -> None:
        self._trace = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it is closed at the end
        self._read, write = os.pipe()
        # Memory of the parent's objects stays shared while the child's garbage collector does not touch them.
        thaws = not gc.get_freeze_count()
        if thaws:
            gc.freeze()
        self.pid = os.fork()
        if self.pid:
            os.close(write)
            if thaws:
                gc.unfreeze()
            return
        status = 1
        try:
            os.close(self._read)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            faulthandler.enable(self._trace)
            work(lambda item: _write(write, item))
            status = 0
        finally:
            os._exit(status)

    def watch(self, stuck: Callable[[], bool]) -> tuple[list[Any], str]:
        """Wait for the end; return the objects that the child sent, and the signal that ended it, or an empty text.

        If something else ends the wait, such as the time limit of a test, the child is killed.
        """
        try:
            sent, hung = self._read_all(stuck)
        except BaseException:
            os.kill(self.pid, signal.SIGKILL)
            self._trace.close()
            raise
        finally:
            os.close(self._read)
            _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        died = "hang" if hung else signal.Signals(-code).name if code < 0 else f"exit {code}" if code else ""
        return _loaded(sent), died

    def _read_all(self, stuck: Callable[[], bool]) -> tuple[bytes, bool]:
        """Read what the child sends until its end; return it, and whether the child was ended because it was stuck."""
        sent = b""
        hung = False
        while True:
            if select.select([self._read], [], [], 0.5)[0]:
                more = os.read(self._read, 1 << 16)
                if not more:
                    return sent, hung
                sent += more
            elif not hung and stuck():
                hung = True
                os.kill(self.pid, signal.SIGABRT)

    def place(self) -> str:
        """Return the innermost Python line of the crash."""
        with self._trace as trace:
            trace.seek(0)
            found = _LINE.search(trace.read())
        return f"{found[1]}:{found[2]} {found[3]}" if found else ""


def _write(pipe: int, item: object) -> None:
    data = pickle.dumps(item)
    data = _LENGTH.pack(len(data)) + data
    while data:
        data = data[os.write(pipe, data) :]


def _loaded(sent: bytes) -> list[Any]:
    """Return the objects that were sent, without the last if the child ended while sending it."""
    items: list[Any] = []
    place = 0
    while place + _LENGTH.size <= len(sent):
        (length,) = _LENGTH.unpack_from(sent, place)
        place += _LENGTH.size
        if place + length <= len(sent):
            items.append(pickle.loads(sent[place : place + length]))
        place += length
    return items


def _died(of: str, place: str, data: bytes) -> Finding:
    kind: Kind = "hang" if of == "hang" else "crash"
    return Finding(kind, f"the child ended by {of} at {place or 'an unknown place'}", f"{of} {place}", data)


def run_in_child(
    campaigns: Sequence[Campaign], progress: Callable[[Campaign, int], None] | None = None
) -> list[Outcome]:
    """Run campaigns one after the other in one child; after a crash, go on in a new child."""
    outcomes = [Outcome() for _ in campaigns]
    at = mmap.mmap(-1, _AT.size)
    index, first, start = 0, campaigns[0].first if campaigns else 0, time.monotonic()
    while index < len(campaigns):
        child = _Child(lambda send, i=index, n=first: _work(campaigns, i, n, at, send))  # type: ignore[misc]
        sent, died = child.watch(_stuck(campaigns, at, progress))
        place = child.place()
        for number, item in cast("list[tuple[int, Finding | Outcome]]", sent):
            _collect(outcomes[number], item)
        if not died:
            break
        index, number, begun = _AT.unpack(at)
        outcome = outcomes[index]
        outcome.inputs += number - begun + 1
        outcome.add(_died(died, place, campaigns[index].inputs.number(number)))
        first = number + 1
        over = time.monotonic() - start > campaigns[index].seconds
        if first >= campaigns[index].last or outcome.enough or over:
            outcome.seconds = outcome.seconds or time.monotonic() - start
            index += 1
            first = campaigns[index].first if index < len(campaigns) else 0
    return outcomes


def _work(
    campaigns: Sequence[Campaign], index: int, first: int, at: mmap.mmap, send: Callable[[object], None]
) -> None:
    for number in range(index, len(campaigns)):
        campaign = campaigns[number]
        campaign.first = begun = first if number == index else campaign.first
        send((number, campaign.run(
            lambda n, i=number, b=begun: _AT.pack_into(at, 0, i, n, b),  # type: ignore[misc]
            lambda finding, i=number: send((i, finding)),  # type: ignore[misc]
        )))  # fmt: skip


def _collect(outcome: Outcome, item: Finding | Outcome) -> None:
    if isinstance(item, Finding):
        outcome.add(item)
        return
    outcome.inputs += item.inputs
    outcome.seconds += item.seconds
    outcome.peak_mb = max(outcome.peak_mb, item.peak_mb)
    if item.slowest > outcome.slowest:
        outcome.slowest, outcome.slowest_input = item.slowest, item.slowest_input


def _stuck(
    campaigns: Sequence[Campaign], at: mmap.mmap, progress: Callable[[Campaign, int], None] | None
) -> Callable[[], bool]:
    """Return a check that is True if the child is at one input far too long: in C, where Python cannot interrupt it."""
    seen, since = at[:], time.monotonic()

    def stuck() -> bool:
        nonlocal seen, since
        index, number, _ = cast("tuple[int, int, int]", _AT.unpack(at))
        campaign = campaigns[index]
        if progress is not None:
            progress(campaign, number)
        if at[:] != seen:
            seen, since = at[:], time.monotonic()
        # Three times the limit: an input may be tried twice.
        return time.monotonic() - since > 3 * campaign.target.patience

    return stuck


def try_in_child(target: Target, data: bytes) -> Finding | None:
    """Try one input in a new child."""
    start = time.monotonic()
    child = _Child(lambda send: send(try_input(target, data).finding))
    sent, died = child.watch(lambda: time.monotonic() - start > 3 * target.patience)
    place = child.place()
    return _died(died, place, data) if died else sent[0]
