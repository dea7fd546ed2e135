"""A connection's ledger, and who may begin beside whom in this process."""

from __future__ import annotations

import threading
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from redelivery.core.ledger_entry import fingerprint
from redelivery.core.message_history import RETURN
from redelivery.core.suspect_isolation import SuspectIsolation
from redelivery.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from redelivery.core.commands import Bury, Clear, Mark
    from redelivery.core.delivery import Delivery
    from redelivery.core.ledger_entry import Entry
    from redelivery.ledger import Ledger

__all__ = ["ConnectionLedger"]

VERDICT = 5.0
"""Seconds for which the verdict on a message stays after its copy was confirmed: what acknowledges the original may be
lost with the process. Not longer: on RabbitMQ a dead letter that a person puts back has the same identity."""


class _House:
    """The turns of one ledger's suspects in this process, their lock, and who is called when another may go on."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.isolation = SuspectIsolation()
        self.told: list[Callable[[], None]] = []
        self.turns = 0  # how often somebody was told


_HOUSES: WeakKeyDictionary[Ledger, _House] = WeakKeyDictionary()


class ConnectionLedger:
    """The ledger as one connection uses it. Its methods may be called with a dispatcher's lock."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._house = _HOUSES.setdefault(ledger, _House())
        self._tell: Callable[[], None] = lambda: None
        # When each is to be forgotten.
        self._verdicts: dict[bytes, float] = {}

    @property
    def error(self) -> LedgerError | None:
        """What keeps the ledger from counting, or None."""
        return self.ledger.error

    @property
    def turns(self) -> int:
        """Changes whenever those that wait for a turn are to look again."""
        return self._house.turns

    def open(self, tell: Callable[[], None]) -> None:
        """Begin. `tell`: called when those that wait are to look again; from any thread, with locks held."""
        self._tell = tell
        self.ledger.open(self._changed)
        with self._house.lock:
            self._house.told.append(tell)

    def close(self, *, settled: bool = True) -> None:
        """End. `settled`: the broker has read all that was written, so that no acknowledgement is lost."""
        try:
            if settled and self.error is None:
                self.forget(inf)
        finally:
            with self._house.lock:
                if self._tell in self._house.told:
                    self._house.told.remove(self._tell)
            self.ledger.close(self._changed)

    def _changed(self) -> None:
        """Have those that wait look again."""
        with self._house.lock:
            self._house.turns += 1
            told = list(self._house.told)
        for tell in told:
            tell()

    # Beside whom.

    def enter(self, now: float) -> bool:
        """Begin to look for a delivery, unless somebody is alone or is about to be."""
        house = self._house
        with house.lock:
            return house.isolation.enter(now)

    def leave(self) -> None:
        """End that, or the attempt that it led to."""
        house = self._house
        with house.lock:
            wake = house.isolation.leave()
        if wake:
            self._changed()

    def turn(self, who: Hashable, now: float) -> bool:
        """Begin a turn alone, or ask for one."""
        with self._house.lock:
            self._house.isolation.claim(who, now)
            return self._house.isolation.turn(who)

    def end_turn(self, now: float) -> None:
        """End a turn, or the attempt that it led to."""
        with self._house.lock:
            self._house.isolation.end_turn(now)
        self._changed()

    def withdraw(self, who: Hashable) -> None:
        """Claim no turn any more."""
        with self._house.lock:
            withdrawn = self._house.isolation.withdraw(who)
        if withdrawn:
            self._changed()

    def until(self, now: float) -> float | None:
        """Return the seconds until `enter` may answer otherwise by itself, or None."""
        with self._house.lock:
            return self._house.isolation.until(now)

    # Attempts.

    def look_up(self, delivery: Delivery, *, fresh: bool = False) -> Entry | None:
        """Return what is known of a message. Raises Behind, LedgerError."""
        key = fingerprint(delivery)
        delivery.attempt = key, None
        return self.ledger.look_up(key, fresh=fresh)

    def mark(self, command: Mark) -> None:
        """Mark an attempt. Raises LedgerError."""
        delivery = command.delivery
        key, _ = delivery.attempt
        if self._verdicts:
            with self._house.lock:
                # Somebody has put its dead letter back.
                self._verdicts.pop(key, None)
        delivery.attempt = key, self.ledger.begin(key, command.count)

    def clear(self, command: Clear) -> None:
        """Clear it. Raises LedgerError."""
        delivery = command.delivery
        key, mark = delivery.attempt
        delivery.attempt = key, None
        known: Entry | None = None
        # The mark is to be cleared even so: left, it is a crash to the next process.
        with suppress(LedgerError):
            known = self.ledger.look_up(key, fresh=True) if command.late else None
        keep = command.keeps(known)
        self.ledger.end(mark, key, command.entry, failed=command.failed, keep=keep)

    def bury(self, command: Bury, now: float) -> None:
        """Forget a message whose dead letter is safe, at once or after a while. Raises LedgerError."""
        with self._house.lock:
            self._verdicts.pop(command.key, None)
            if command.early:
                self._verdicts[command.key] = now + VERDICT
        if not command.early:
            self.ledger.bury(command.key, command.buried)

    def forget(self, now: float) -> None:
        """Forget messages whose originals have been acknowledged for long enough. Raises LedgerError."""
        with self._house.lock:
            due = [key for key, at in self._verdicts.items() if at <= now]
        for key in due:
            self.ledger.bury(key, None)
            with self._house.lock:
                self._verdicts.pop(key, None)

    def reconnected(self, now: float) -> None:
        """Keep all verdicts for longer: acknowledgements may be lost with the connection before.

        The broker redelivers their messages soon after a connection began, to this process or to another one.
        """
        with self._house.lock:
            self._verdicts = dict.fromkeys(self._verdicts, now + RETURN)

    def next_verdict(self) -> float | None:
        """When `forget` has something to do."""
        with self._house.lock:
            return min(self._verdicts.values(), default=None)

    def hang(self, delivery: Delivery) -> None:
        """Learn that an attempt will not end. Raises LedgerError."""
        mark = delivery.attempt[1]
        if mark is not None:
            self.ledger.hang(mark)
