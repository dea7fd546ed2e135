"""Commands for the adapter that wait to be written: settlements for company, the others not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.commands import Accept, Forward, ForwardAll

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.commands import AdapterCommand
    from redelivery.core.delivery import Delivery

__all__ = ["LINGER", "SettlementBatch", "joined"]

# Settlements per write at most: more brings no rate, and latency.
BATCH = 64
# Seconds that a settlement may wait for company.
LINGER = 0.001


class SettlementBatch:
    """What one dispatcher has to write. All methods are called with the dispatcher's lock."""

    __slots__ = ("_accepts", "_commands", "_oldest", "batch")

    def __init__(self) -> None:
        # Whether settlements are collected; the adapter's capability.
        self.batch = True
        self._accepts: list[Delivery] = []
        # When the first of them was collected.
        self._oldest = 0.0
        self._commands: list[AdapterCommand] = []

    @property
    def collected(self) -> int:
        """How many settlements wait for company."""
        return len(self._accepts)

    @property
    def collecting(self) -> bool:
        """Whether settlements wait for company."""
        return bool(self._accepts)

    def collect(self, deliveries: Sequence[Delivery], now: float) -> bool:
        """Add settlements; return whether they are the first that wait."""
        first = not self._accepts
        self._accepts += deliveries
        if first:
            self._oldest = now
        return first

    def put(self, command: AdapterCommand) -> None:
        """Add a command that waits for nobody."""
        self._commands.append(command)

    def urgent(self) -> Sequence[AdapterCommand]:
        """Take everything if something does not wait; else nothing."""
        return self.all() if self._commands or not self.batch else ()

    def due(self, now: float) -> Sequence[AdapterCommand]:
        """Take what must be written now: settlements too, when they are many or the first has waited."""
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
    """Return the commands with all that is forwarded in one transaction."""
    forwards = [command for command in commands if isinstance(command, Forward)]
    if len(forwards) < 2:
        return commands
    return [*(command for command in commands if not isinstance(command, Forward)), ForwardAll(forwards)]
