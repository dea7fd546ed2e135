"""What an importer returns: policies, dead-letter options, and a note for each thing that was left behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.policy.policy_map import RedeliveryPolicyMap

__all__ = ["ClientSettings", "Imported", "Kind", "Note", "Notes", "Prefetch", "Value", "at_line"]

# Characters: the longest sentence with every allowed name in it has some 900.
_LONGEST = 1200

Kind = Literal["activemq.xml", "broker.xml", "Broker-J JSON", "TOML"]


class Value(NamedTuple):
    """A text, and the line of the file where it stands."""

    text: str
    line: int


class Prefetch(NamedTuple):
    """A `consumer.prefetchSize` of one destination."""

    destination: str
    messages: int
    line: int


class ClientSettings(NamedTuple):
    """Settings of clients in one file that are no policies. Not shown: a URL may hold a password."""

    broker_urls: tuple[Value, ...] = ()
    """Each `brokerURL`, with its line, in the order of the file."""
    prefetches: tuple[Prefetch, ...] = ()

    def __repr__(self) -> str:
        """Return how many there are."""
        return f"<{len(self.broker_urls)} URLs, {len(self.prefetches)} prefetch sizes>"


@dataclass(frozen=True, slots=True)
class Note:
    """Something in a file that could not be carried over, or not as it stands there."""

    file: str
    line: int
    what: str
    """The element, attribute or key; with its value where that says more."""
    why: str

    def __str__(self) -> str:
        """Return `file:line: what: why`."""
        return f"{self.file}:{self.line}: {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Imported:
    """A file's content as far as this library has a use for it."""

    file: str
    """Its name, as it was given."""
    kind: Kind
    policies: RedeliveryPolicyMap
    dead_letters: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options of a connection URI (`redelivery.deadLetterDestination`) that say the same of dead letters."""
    notes: tuple[Note, ...] = ()
    """In the order of lines."""
    clients: ClientSettings = field(default_factory=ClientSettings, repr=False)
    """URLs and prefetch of a client's file; for `policy convert`."""


class Notes:
    """Collects the notes on one file."""

    def __init__(self, file: str) -> None:
        """Start without notes on `file`."""
        self.file = file
        self._notes: dict[Note, None] = {}  # in order, each once

    def add(self, line: int, what: str, why: str) -> None:
        """Add a note on line `line`; the same one is added once."""
        self._notes[Note(self.file, line, _short(what), _short(why))] = None

    def sorted(self) -> tuple[Note, ...]:
        """Return them in the order of lines."""
        return tuple(sorted(self._notes, key=lambda note: note.line))

    def error(self, line: int, why: object) -> ConfigurationError:
        """Return (not raise) the error that stops the import at line `line`."""
        return at_line(self.file, line, why)


def at_line(file: str, line: int, why: object) -> ConfigurationError:
    """Return (not raise) an error with its place in front of it; the option of an error `why` is kept."""
    option = why.option if isinstance(why, ConfigurationError) else None
    text = _short(str(why))
    return ConfigurationError(f"{file}:{line}: {text}" if line else f"{file}: {text}", option=option)


def _short(text: str) -> str:
    """Return text of a file as it may stand in an error or a note: a name there may have any length."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"
