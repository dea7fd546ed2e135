"""What a ledger of attempts does: the interface that `SqliteLedger` implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redelivery.core.ledger_entry import Buried, Entry
    from redelivery.errors import LedgerError

__all__ = ["Behind", "Ledger"]


class Behind(Exception):
    """What is known here may be out of date: `Ledger.refresh` first."""


@runtime_checkable
class Ledger(Protocol):
    """A store of attempts, for all connections of a process: give each of them the same object.

    A key is 16 bytes. All methods may be called from any thread. Where it is not said otherwise they hold up the
    consumer that calls them, and the thread that reads its connection: they must not do I/O that can take long.
    Every one may raise LedgerError; then, and when `error` is set, nothing more is dispatched.
    """

    @property
    def error(self) -> LedgerError | None:
        """What keeps it from counting, or None."""
        ...

    def open(self, failed: Callable[[], None]) -> None:
        """Begin to count, once for each connection. May take long. `failed` is called when `error` comes to be set.

        What processes that have died had open is settled first (`redelivery.core.ledger.after_death`).
        """

    def close(self, failed: Callable[[], None]) -> None:
        """Write what is left; the end for one connection. May take long. Attempts that still run stay marked."""

    def look_up(self, key: bytes, *, fresh: bool = False) -> Entry | None:
        """Return what is known of a message. Raises Behind if `refresh` may change that, unless it is `fresh`."""
        ...

    def refresh(self, key: bytes) -> None:
        """Learn what other processes have written, and settle what a dead one had open. May take long."""

    def begin(self, key: bytes, count: int) -> int:
        """Mark an attempt, durably against the death of this process; return the mark. `count`: charged so far."""
        ...

    def end(self, mark: int | None, key: bytes, entry: Entry | None, *, failed: bool, keep: bool) -> None:
        """Clear a mark and write `entry`, or forget the message, or leave what is known of it (`keep`).

        The writing may come later, but the mark of one that `failed` must count as a failure until then.
        """

    def hang(self, mark: int) -> None:
        """Learn that an attempt will not end: it is charged when this process ends, whatever else is open then."""

    def bury(self, key: bytes, buried: Buried | None) -> None:
        """Forget a message whose dead letter is safe, and keep its cause for those who look at dead letters."""

    def buried(self, destination: str | None = None) -> Iterable[Buried]:
        """Return the causes that are kept, oldest first: of one qualified destination, or of all. May take long."""
        ...
