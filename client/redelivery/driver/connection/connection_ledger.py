"""A connection's ledger, and the exclusive runs of crash suspects in this process."""

from __future__ import annotations

import threading
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from redelivery.core.ledger_engine import SuspectIsolation
from redelivery.core.ledger_entry import fingerprint
from redelivery.core.message_history import RETURN
from redelivery.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from redelivery.core.commands import Bury, Clear, Mark
    from redelivery.core.delivery import Delivery
    from redelivery.core.ledger_entry import Entry
    from redelivery.ledger import Ledger

__all__ = ["ConnectionLedger"]

VERDICT = 5.0
"""Seconds for which the entry of a message stays after its dead letter was confirmed, because the acknowledgement of
the original may be lost with the process. Not longer: on RabbitMQ a redriven dead letter has the same identity."""


class _House:
    """Exclusive runs of one ledger in this process: their order, their lock, and the calls after each change."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.isolation = SuspectIsolation()
        self.told: list[Callable[[], None]] = []
        self.turns = 0  # number of changes so far


_HOUSES: WeakKeyDictionary[Ledger, _House] = WeakKeyDictionary()


class ConnectionLedger:
    """The ledger of one connection. Its methods may be called with a dispatcher's lock."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._house = _HOUSES.setdefault(ledger, _House())
        self._tell: Callable[[], None] = lambda: None
        # Times at which entries of dead-lettered messages are to be removed, by key.
        self._verdicts: dict[bytes, float] = {}

    @property
    def error(self) -> LedgerError | None:
        """Error that keeps the ledger from counting, or None."""
        return self.ledger.error

    @property
    def turns(self) -> int:
        """Number that changes when deliveries that wait for an exclusive run are to ask again."""
        return self._house.turns

    def open(self, tell: Callable[[], None]) -> None:
        """Open the ledger.

        `tell`: called when deliveries that wait for an exclusive run are to ask again; from any thread, with locks
        held.
        """
        self._tell = tell
        self.ledger.open(self._changed)
        with self._house.lock:
            self._house.told.append(tell)

    def close(self, *, settled: bool = True) -> None:
        """Close the ledger. `settled`: True if the broker has read all acknowledgements, so that none is lost."""
        try:
            if settled and self.error is None:
                self.forget(inf)
        finally:
            with self._house.lock:
                if self._tell in self._house.told:
                    self._house.told.remove(self._tell)
            self.ledger.close(self._changed)

    def _changed(self) -> None:
        """Make the deliveries that wait for an exclusive run ask again."""
        with self._house.lock:
            self._house.turns += 1
            told = list(self._house.told)
        for tell in told:
            tell()

    # Exclusive runs.

    def enter(self, now: float) -> bool:
        """Begin to look up a delivery; False: an exclusive run goes on, or is about to begin."""
        house = self._house
        with house.lock:
            return house.isolation.enter(now)

    def leave(self) -> None:
        """End a lookup that `enter` began, or the attempt after it."""
        house = self._house
        with house.lock:
            wake = house.isolation.leave()
        if wake:
            self._changed()

    def turn(self, who: Hashable, now: float) -> bool:
        """Begin an exclusive run, or queue for one; return True if it has begun."""
        with self._house.lock:
            self._house.isolation.claim(who, now)
            return self._house.isolation.turn(who)

    def end_turn(self, now: float) -> None:
        """End an exclusive run, or the attempt in it."""
        with self._house.lock:
            self._house.isolation.end_turn(now)
        self._changed()

    def withdraw(self, who: Hashable) -> None:
        """Leave the queue for exclusive runs."""
        with self._house.lock:
            withdrawn = self._house.isolation.withdraw(who)
        if withdrawn:
            self._changed()

    def until(self, now: float) -> float | None:
        """Return the seconds until the answer of `enter` may change without any call, or None."""
        with self._house.lock:
            return self._house.isolation.until(now)

    # Attempts.

    def look_up(self, delivery: Delivery, *, fresh: bool = False) -> Entry | None:
        """Return the entry of a message, or None. Raises Behind, LedgerError."""
        key = fingerprint(delivery)
        delivery.attempt = key, None
        return self.ledger.look_up(key, fresh=fresh)

    def mark(self, command: Mark) -> None:
        """Mark an attempt. Raises LedgerError."""
        delivery = command.delivery
        key, _ = delivery.attempt
        if self._verdicts:
            with self._house.lock:
                # Its dead letter was redriven: the message has a new life.
                self._verdicts.pop(key, None)
        delivery.attempt = key, self.ledger.begin(key, command.count)

    def clear(self, command: Clear) -> None:
        """Clear the mark of an attempt. Raises LedgerError."""
        delivery = command.delivery
        key, mark = delivery.attempt
        delivery.attempt = key, None
        known: Entry | None = None
        # Clear the mark even if the lookup fails: a mark that stays means a crash to the next process.
        with suppress(LedgerError):
            known = self.ledger.look_up(key, fresh=True) if command.late else None
        keep = command.keeps(known)
        self.ledger.end(mark, key, command.entry, failed=command.failed, keep=keep)

    def bury(self, command: Bury, now: float) -> None:
        """Remove the entry of a message whose dead letter is confirmed, at once or later. Raises LedgerError."""
        with self._house.lock:
            self._verdicts.pop(command.key, None)
            if command.early:
                self._verdicts[command.key] = now + VERDICT
        if not command.early:
            self.ledger.bury(command.key, command.buried)

    def forget(self, now: float) -> None:
        """Remove entries of messages whose originals were acknowledged long enough ago. Raises LedgerError."""
        with self._house.lock:
            due = [key for key, at in self._verdicts.items() if at <= now]
        for key in due:
            self.ledger.bury(key, None)
            with self._house.lock:
                self._verdicts.pop(key, None)

    def reconnected(self, now: float) -> None:
        """Keep the entries of all dead-lettered messages for longer.

        Acknowledgements may have been lost with the last connection. The broker then redelivers the messages soon after
        the reconnect, to this process or to another one.
        """
        with self._house.lock:
            self._verdicts = dict.fromkeys(self._verdicts, now + RETURN)

    def next_verdict(self) -> float | None:
        """Return when `forget` has an entry to remove, or None."""
        with self._house.lock:
            return min(self._verdicts.values(), default=None)

    def hang(self, delivery: Delivery) -> None:
        """Record that an attempt will not end: its handler hangs. Raises LedgerError."""
        mark = delivery.attempt[1]
        if mark is not None:
            self.ledger.hang(mark)
