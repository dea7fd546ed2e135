"""Interface of a ledger of attempts; `SqliteLedger` implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redelivery.core.ledger_entry import Buried, Entry
    from redelivery.errors import LedgerError

__all__ = ["Behind", "Ledger"]


class Behind(Exception):
    """Entries read here may be out of date: call `Ledger.refresh` first."""


@runtime_checkable
class Ledger(Protocol):
    """Store of attempts, for all connections of a process. Give the same object to each of them.

    A key is 16 bytes. All methods may be called from any thread. Unless a method says that it may take long,
    it blocks the consumer that calls it, and the thread that reads its connection: it must not do I/O that
    can take long. Each method may raise LedgerError. After that, and while `error` is set, no message is
    dispatched.
    """

    @property
    def error(self) -> LedgerError | None:
        """Reason why it cannot count, or None."""
        ...

    def open(self, failed: Callable[[], None]) -> None:
        """Start counting, once for each connection. May take long.

        The open attempts of processes that have died are settled first
        (`redelivery.core.ledger.after_death`).

        Args:
            failed: Function that is called when `error` is set.
        """

    def close(self, failed: Callable[[], None]) -> None:
        """Write all entries; the end for one connection. May take long.

        Attempts that still run stay marked.

        Args:
            failed: Function that was given to `open`.
        """

    def look_up(self, key: bytes, *, fresh: bool = False) -> Entry | None:
        """Return the entry of a message, or None.

        Args:
            key: Key of the message.
            fresh: True: the caller has just called `refresh`.

        Raises:
            Behind: `refresh` may change the entry, and `fresh` is False.
        """
        ...

    def refresh(self, key: bytes) -> None:
        """Read the entries of other processes, and settle open attempts of a dead one. May take long."""

    def begin(self, key: bytes, count: int) -> int:
        """Mark an attempt. The mark survives the death of this process.

        Args:
            key: Key of the message.
            count: Redeliveries charged so far.

        Returns:
            The mark, for `end` and `hang`.
        """
        ...

    def end(self, mark: int | None, key: bytes, entry: Entry | None, *, failed: bool, keep: bool) -> None:
        """Clear a mark, and write the entry of its message.

        The entry may be written later. Until then the mark of a failed attempt must count as a failure.

        Args:
            mark: Mark of the attempt; None: it has none.
            key: Key of the message.
            entry: New entry; None: forget the message.
            failed: True if the attempt failed.
            keep: True: leave the entry of the message as it is.
        """

    def hang(self, mark: int) -> None:
        """Record that an attempt will not end.

        It is charged when this process ends, even if other attempts are open then.
        """

    def bury(self, key: bytes, buried: Buried | None) -> None:
        """Forget a message whose dead letter is confirmed, and keep its cause for readers of dead letters."""

    def buried(self, destination: str | None = None) -> Iterable[Buried]:
        """Return the causes that are kept, oldest first. May take long.

        Args:
            destination: Qualified destination; None: all.
        """
        ...
