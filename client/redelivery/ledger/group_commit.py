"""Group commit: one thread writes all entries that were put during its last write."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

from redelivery.log import logger

if TYPE_CHECKING:
    from redelivery.core.ledger_entry import Buried, Entry
    from redelivery.errors import LedgerError

__all__ = ["CommittedFiles", "GroupCommit"]

# Seconds that the first entry of a batch waits for others.
COMPANY = 0.002
# Seconds between two prunings, while anything is written, and between two pieces of one: others take the lock then.
PRUNE, PAUSE = 300.0, 0.02


class CommittedFiles(Protocol):
    """Interface of the files that the thread writes to; `SqliteLedger` implements it."""

    limit: int

    def write(self, entries: dict[bytes, Entry | None], buried: list[Buried]) -> None:
        """Write in one transaction."""

    def prune(self) -> tuple[int, bool]:
        """Remove a piece of what is old; return the number of counts removed too early, and if there may be more."""
        ...

    def written(self, marks: list[int]) -> None:
        """Clear the marks of entries that have been written."""

    def fail(self, error: BaseException) -> LedgerError:
        """Stop counting."""
        ...


class GroupCommit:
    """Entries to be written, and the thread that writes them. The thread ends when it is stopped."""

    def __init__(self, ledger: CommittedFiles) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._entries: dict[bytes, Entry | None] = {}
        self._in_hand: dict[bytes, Entry | None] = {}
        self._marks: list[int] = []
        self._buried: list[Buried] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        # A process that lives for a short time prunes too.
        self._pruned = float("-inf")
        self._lost = 0

    def put(self, key: bytes, entry: Entry | None, mark: int | None, buried: Buried | None = None) -> None:
        """Queue an entry; clear its mark after it is written."""
        with self._lock:
            self._entries[key] = entry
            if mark is not None:
                self._marks.append(mark)
            if buried is not None:
                self._buried.append(buried)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="redelivery-ledger", daemon=True)
                self._thread.start()
            else:
                self._turn.notify()

    def writes(self, key: bytes) -> bool:
        """True if an entry of this message is not written yet."""
        return key in self._entries or key in self._in_hand

    def begin(self) -> None:
        """Keep the thread waiting for entries, once it has started."""
        with self._lock:
            self._stopping = False

    def stop(self) -> None:
        """Write all entries.

        Entries that come later, from a handler that still runs, are written at once.
        """
        with self._lock:
            thread, self._stopping = self._thread, True
            self._turn.notify()
        if thread is not None:
            thread.join()

    def clear(self) -> None:
        """Drop the entries of a failed write.

        Their marks are in a file that is closed; they count when that file is settled.
        """
        with self._lock:
            self._entries, self._in_hand, self._marks, self._buried = {}, {}, [], []

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._entries and not self._stopping:
                    self._turn.wait()
                if not self._entries:
                    self._thread = None
                    return
                if not self._stopping:
                    self._turn.wait(COMPANY)
                entries, self._entries = self._entries, {}
                marks, self._marks = self._marks, []
                buried, self._buried = self._buried, []
                self._in_hand = entries
            try:
                self._ledger.write(entries, buried)
                self._in_hand = {}
                self._ledger.written(marks)
                self._prune()
            except Exception as error:  # noqa: BLE001 - reported to all consumers
                # The marks of failed attempts stay: they are charged when this process ends.
                self._ledger.fail(error)
                with self._lock:
                    self._thread = None
                return

    def _prune(self) -> None:
        """Prune if it is time: a piece at least, and more until there is something to write."""
        if time.monotonic() - self._pruned <= PRUNE:
            return
        more = True
        while more:
            lost, more = self._ledger.prune()
            self._lost += lost
            with self._lock:
                if more and not self._entries and not self._stopping:
                    self._turn.wait(PAUSE)
                if self._entries or self._stopping:
                    break
        if more:
            return
        self._pruned = time.monotonic()
        lost, self._lost = self._lost, 0
        if lost:
            logger.warning(
                "%s is full (%d messages): removed the counts of the %d oldest; they start at 0 if redelivered",
                self._ledger, self._ledger.limit, lost,
            )  # fmt: skip
