"""Counts of messages that wait in the log: the library's ledger, stored in the log's state."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redelivery.core.ledger_entry import Buried, Entry
    from redelivery.errors import LedgerError

__all__ = ["WalLedger"]


class WalLedger:
    """A `redelivery.ledger.Ledger` whose entries are written with the log's state when a batch is settled.

    An attempt needs no mark: the running batch is the one that the log has published and not settled.
    """

    def __init__(self, entries: dict[bytes, Entry] | None = None) -> None:
        self.entries: dict[bytes, Entry] = {} if entries is None else entries

    @property
    def error(self) -> LedgerError | None:
        """None: counting cannot fail. If the state cannot be written, the query ends."""
        return None

    def open(self, failed: Callable[[], None]) -> None:
        """Do nothing."""

    def close(self, failed: Callable[[], None]) -> None:
        """Do nothing."""

    def look_up(self, key: bytes, *, fresh: bool = False) -> Entry | None:
        """Return the entry of a message."""
        del fresh
        return self.entries.get(key)

    def refresh(self, key: bytes) -> None:
        """Do nothing: no other process writes."""

    def begin(self, key: bytes, count: int) -> int:
        """Mark nothing, see the class."""
        del key
        return count

    def end(self, mark: int | None, key: bytes, entry: Entry | None, *, failed: bool, keep: bool) -> None:
        """Write `entry`; or remove the message's entry (None), or keep it unchanged (`keep`)."""
        del mark, failed
        if keep:
            return
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry

    def hang(self, mark: int) -> None:
        """Do nothing: no handler runs here."""

    def bury(self, key: bytes, buried: Buried | None) -> None:
        """Remove the entry of a message whose dead letter is confirmed."""
        del buried
        self.entries.pop(key, None)

    def buried(self, destination: str | None = None) -> Iterable[Buried]:
        """Return nothing: causes are in the dead letters."""
        del destination
        return ()
