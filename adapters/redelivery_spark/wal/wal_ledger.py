"""The counts of messages that wait in the log: the library's ledger, over the state that is published with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redelivery.core.ledger_entry import Buried, Entry
    from redelivery.errors import LedgerError

__all__ = ["WalLedger"]


class WalLedger:
    """A `redelivery.ledger.Ledger` whose entries are written with the log's state, by who settles a batch.

    An attempt needs no mark: what runs is the batch that the log has published and not settled.
    """

    def __init__(self, entries: dict[bytes, Entry] | None = None) -> None:
        self.entries: dict[bytes, Entry] = {} if entries is None else entries

    @property
    def error(self) -> LedgerError | None:
        """Nothing keeps it from counting: where it cannot be written, the query ends."""
        return None

    def open(self, failed: Callable[[], None]) -> None:
        """Begin to count."""

    def close(self, failed: Callable[[], None]) -> None:
        """End."""

    def look_up(self, key: bytes, *, fresh: bool = False) -> Entry | None:
        """Return what is known of a message."""
        del fresh
        return self.entries.get(key)

    def refresh(self, key: bytes) -> None:
        """Nobody else writes."""

    def begin(self, key: bytes, count: int) -> int:
        """Mark nothing, as above."""
        del key
        return count

    def end(self, mark: int | None, key: bytes, entry: Entry | None, *, failed: bool, keep: bool) -> None:
        """Write `entry`, or forget the message, or leave what is known of it (`keep`)."""
        del mark, failed
        if keep:
            return
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry

    def hang(self, mark: int) -> None:
        """No handler runs here."""

    def bury(self, key: bytes, buried: Buried | None) -> None:
        """Forget a message whose dead letter is safe."""
        del buried
        self.entries.pop(key, None)

    def buried(self, destination: str | None = None) -> Iterable[Buried]:
        """Return nothing: causes go with the copies."""
        del destination
        return ()
