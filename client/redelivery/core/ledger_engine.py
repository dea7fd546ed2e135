"""The engine with a ledger: each dispatch waits for what is known, each attempt is marked and cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.engine import Engine
from redelivery.core.events import Known, Result, Wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.commands import Command
    from redelivery.core.events import Event

__all__ = ["CountedEngine"]


class CountedEngine(Engine):
    """Decides as `Engine` does, by the ledger's counts."""

    _ledger = True

    def feed(self, event: Event, now: float) -> Sequence[Command]:
        """Take one event, as `Engine.feed` does; a result is told to the ledger first."""
        if event.__class__ is Wanted:
            return Engine.feed(self, event, now)
        if isinstance(event, Known):  # what credit follows is granted with the next event
            return self._known(event.delivery, event.entry, now)
        if not isinstance(event, Result) or event.delivery.state != "running":
            return Engine.feed(self, event, now)
        record = event.delivery.record
        before = 0 if record is None else record.count
        return self._counted(event, Engine.feed(self, event, now), before)
