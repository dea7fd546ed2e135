"""Batch of commands for the adapter: acknowledgements (64, or 1 ms) are collected, other commands are due at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.commands import Accept, Forward, ForwardAll

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery

__all__ = ["LINGER", "SettlementBatch", "joined"]

# Settlements per write at most: more do not raise the rate, and add latency.
BATCH = 64
# Seconds that a settlement may wait for others to be written with it.
LINGER = 0.001


class SettlementBatch:
    """Unwritten commands of one dispatcher. All methods are called with the dispatcher's lock."""

    __slots__ = ("_accepts", "_commands", "_oldest", "batch")

    def __init__(self) -> None:
        # True if settlements are collected: a capability of the adapter.
        self.batch = True
        self._accepts: list[Delivery] = []
        # Time at which the first of them was collected.
        self._oldest = 0.0
        self._commands: list[AdapterCommand] = []

    @property
    def collected(self) -> int:
        """Number of collected settlements."""
        return len(self._accepts)

    @property
    def collecting(self) -> bool:
        """True if there are collected settlements."""
        return bool(self._accepts)

    def collect(self, deliveries: Sequence[Delivery], now: float) -> bool:
        """Add settlements; return True if there were none before."""
        first = not self._accepts
        self._accepts += deliveries
        if first:
            self._oldest = now
        return first

    def put(self, command: AdapterCommand) -> None:
        """Add a command that is due at once."""
        self._commands.append(command)

    def urgent(self) -> Sequence[AdapterCommand]:
        """Take everything if a command is due at once; else nothing."""
        return self.all() if self._commands or not self.batch else ()

    def due(self, now: float) -> Sequence[AdapterCommand]:
        """Take everything if a command is due at once, settlements are many, or the first is old; else nothing."""
        if self._commands or not self.batch or len(self._accepts) >= BATCH:
            return self.all()
        return self.aged(now)

    def aged(self, now: float) -> Sequence[AdapterCommand]:
        """Take everything if the first settlement has waited long enough; else nothing."""
        return self.all() if self._accepts and now - self._oldest >= LINGER else ()

    def all(self) -> Sequence[AdapterCommand]:
        """Take everything."""
        commands = self._commands
        if commands:
            self._commands = []
        if self._accepts:
            accepts, self._accepts = self._accepts, []
            return [Accept(accepts), *commands]
        return commands


def joined(commands: Sequence[AdapterCommand]) -> Sequence[AdapterCommand]:
    """Return the commands, with all dead-letter copies joined into one transaction."""
    forwards = [command for command in commands if isinstance(command, Forward)]
    if len(forwards) < 2:
        return commands
    return [*(command for command in commands if not isinstance(command, Forward)), ForwardAll(forwards)]
