"""Result of an importer: policies, dead-letter options, and a note for each setting that was left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap
    from redelivery.core.policy.policy_map import RedeliveryPolicyMap

__all__ = ["ClientSettings", "Imported", "Kind", "Note", "Notes", "Prefetch", "Value", "at_line"]

# Characters. The longest sentence of this library, which lists all allowed names, has some 900.
_LONGEST = 1200

Kind = Literal["activemq.xml", "broker.xml", "Broker-J JSON", "TOML"]


class Value(NamedTuple):
    """Text, and the line of the file where it stands."""

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
    properties: tuple[tuple[str, Value], ...] = ()
    """Other properties of the first factory with a `brokerURL`, as options without `jms.`."""
    prefetches: tuple[Prefetch, ...] = ()

    def __repr__(self) -> str:
        """Return how many there are."""
        return f"<{len(self.broker_urls)} URLs, {len(self.prefetches)} prefetch sizes>"


@dataclass(frozen=True, slots=True)
class Note:
    """Setting of a file that could not be carried over, or not unchanged."""

    file: str
    line: int
    what: str
    """Element, attribute or key; with its value if that says more."""
    why: str
    left_out: bool = False
    """True if the setting is wrong or its value is not known, and policies or dead letters can differ from the file's.

    `policy convert` then ends with exit code 3.
    """

    def __str__(self) -> str:
        """Return `file:line: what: why`."""
        return f"{self.file}:{self.line}: {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Imported:
    """Content of a file, as far as this library uses it."""

    file: str
    """Name of the file, as it was given."""
    kind: Kind
    policies: RedeliveryPolicyMap
    dead_letters: Mapping[str, str] = field(default_factory=dict[str, str])
    """Options of a connection URI that have the same effect on dead letters.

    One of them is `redelivery.deadLetterDestination`.
    """
    notes: tuple[Note, ...] = ()
    """Notes, in the order of lines."""
    clients: ClientSettings = field(default_factory=ClientSettings, repr=False)
    """URLs and prefetch of a client's file; for `policy convert`."""

    @property
    def dead_letter_map(self) -> DeadLetterMap | None:
        """Strategies of `dead_letters`, for `connect(dead_letters=…)`; None: the file has none.

        Options of a connection as a whole, such as `redelivery.fallbackToDeadLetter`, are in `dead_letters` only.
        """
        from redelivery.uri.parser import parse_uri  # noqa: PLC0415 - the only reader of these options
        from redelivery.uri.syntax import with_options  # noqa: PLC0415

        settings = parse_uri(with_options("memory://file", self.dead_letters))
        return settings.dead_letters if settings.has_dead_letters else None


class Notes:
    """Notes on one file."""

    def __init__(self, file: str) -> None:
        """Start without notes on `file`."""
        self.file = file
        self._notes: dict[Note, None] = {}  # in order, each once

    def add(self, line: int, what: str, why: str, *, left_out: bool = False) -> None:
        """Add a note on line `line`; the same note is added once. `left_out`: as in `Note`."""
        self._notes[Note(self.file, line, _short(what), _short(why), left_out)] = None

    def sorted(self) -> tuple[Note, ...]:
        """Return the notes in the order of lines."""
        return tuple(sorted(self._notes, key=lambda note: note.line))

    def error(self, line: int, why: object) -> ConfigurationError:
        """Return (not raise) the error that stops the import at line `line`."""
        return at_line(self.file, line, why)


def at_line(file: str, line: int, why: object) -> ConfigurationError:
    """Return (not raise) an error with its place in front; the option of an error `why` is kept."""
    option = why.option if isinstance(why, ConfigurationError) else None
    text = _short(str(why))
    return ConfigurationError(f"{file}:{line}: {text}" if line else f"{file}: {text}", option=option)


def _short(text: str) -> str:
    """Return a text of a file, shortened for an error or a note: a name in a file may have any length."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 2 :]}"
