"""A process with a ledger, and a message that several processes may get: parts of the state machine of deaths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.core.model import Arrival, Letter

from redelivery.core.ledger_engine import SuspectIsolation
from redelivery.core.ledger_entry import AttemptMark, Entry

if TYPE_CHECKING:
    from redelivery.core.ledger_engine import LedgerEngine


@dataclass(eq=False)
class Mail(Letter):
    """A message of a kind: it kills its process, always fails, or is good."""

    kind: str = "good"
    starts: int = 0
    operator: int = 0  # kills by others while it ran alone
    crashes: int = 0  # deaths while it ran alone
    company: int = 0  # deaths while others ran, too


@dataclass(eq=False)
class Process:
    """One process: its engine, its marks, and its exclusive runs."""

    engine: LedgerEngine
    isolation: SuspectIsolation = field(default_factory=SuspectIsolation)
    marks: dict[Arrival, AttemptMark] = field(default_factory=dict[Arrival, AttemptMark])
    unwritten: dict[bytes, Entry | None] = field(default_factory=dict[bytes, Entry | None])
    failed: list[AttemptMark] = field(default_factory=list[AttemptMark])  # marks of what is unwritten
    held: list[Arrival] = field(default_factory=list[Arrival])
    in_doubt: dict[Arrival, bytes | None] = field(default_factory=dict[Arrival, bytes | None])
    """Copied, and perhaps not acknowledged; with the key of the ledger entry to remove then."""
    alone: Arrival | None = None
    dead: bool = False
    seen_dead: float = 0.0  # when its lock can be taken

    def open(self) -> list[AttemptMark]:
        """Return the attempts in its file."""
        return [*self.marks.values(), *self.failed]
