"""Filters of dead letters, and the JMS selector that lets a broker evaluate a part of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypedDict

from redelivery.core.destination import Destination
from redelivery.core.option_values import seconds
from redelivery.dlq.dead_letter import UNKNOWN
from redelivery.driver.port import known
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from redelivery.dlq.dead_letter import DeadLetter

__all__ = ["EVERYTHING", "Filters", "Selection"]

_GLOB = frozenset("*?[")


class Filters(TypedDict, total=False):
    """Keyword arguments that select dead letters. All that are given must match; None: not given.

    Of several values one must match; an empty sequence matches no dead letter.
    """

    cause: str | Iterable[str] | None
    """Type of an exception, a whole cause, or a pattern with `*`."""
    destination: str | Iterable[str] | None
    """Origin: a queue by default, `*` for any part."""
    id: str | Iterable[str] | None
    """Message id, on the dead-letter queue or before, or the one that `send` returned."""
    older_than: float | timedelta | None
    """Seconds, or a timedelta, since its death, at least."""
    younger_than: float | timedelta | None
    """Seconds, or a timedelta, since its death, at most."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters, checked. Ages are in seconds."""

    causes: tuple[str, ...] | None = None
    destinations: tuple[str, ...] | None = None
    ids: frozenset[str] | None = None
    older_than: float | None = None
    younger_than: float | None = None

    @classmethod
    def of(cls, filters: Filters) -> Selection:
        """Read keyword arguments.

        Raises:
            ConfigurationError: A value makes no sense.
            TypeError: There is no such filter.
        """
        known(filters, Filters)
        older, younger = _age(filters, "older_than"), _age(filters, "younger_than")
        if older is not None and younger is not None and older >= younger:
            raise ConfigurationError(
                f"older_than={older:g} and younger_than={younger:g} leave no dead letter", option="older_than"
            )
        destinations, ids = _texts(filters, "destination"), _texts(filters, "id")
        return cls(
            causes=_texts(filters, "cause"),
            destinations=None if destinations is None else tuple(_address(text) for text in destinations),
            ids=None if ids is None else frozenset(ids),
            older_than=older,
            younger_than=younger,
        )

    @property
    def origins(self) -> tuple[str, ...]:
        """Original destinations that a dead letter must have one of, if none is a pattern; otherwise empty."""
        given = self.destinations or ()
        return () if _only_here(given) else given

    @property
    def everything(self) -> bool:
        """True if every dead letter matches."""
        return self == EVERYTHING

    @property
    def nothing(self) -> bool:
        """True if no dead letter can match."""
        return any(values is not None and not values for values in (self.causes, self.destinations, self.ids))

    def matches(self, letter: DeadLetter, now: float) -> bool:
        """True if a dead letter matches. `now`: seconds since the Unix epoch."""
        if self.nothing:
            return False
        if self.ids and not any(known in self.ids for known in _ids(letter)):
            return False
        if self.destinations and not _any(self.destinations, letter.original_destination or UNKNOWN):
            return False
        if self.causes and not (_any(self.causes, letter.cause) or letter.cause_kind in self.causes):
            return False
        return self._of_age(letter.died_at, now)

    def _of_age(self, died_at: datetime | None, now: float) -> bool:
        if self.older_than is None and self.younger_than is None:
            return True
        if died_at is None:
            return False
        age = (datetime.fromtimestamp(now, UTC) - died_at).total_seconds()
        return (self.older_than is None or age >= self.older_than) and (
            self.younger_than is None or age <= self.younger_than
        )

    def selector(self) -> str | None:
        """Return a JMS selector that passes all dead letters that match, and not all of the others; or None.

        Messages without the property always pass: the broker dead-lettered them, and a ledger may have their cause.
        """
        parts: list[str] = []
        if self.causes and not _only_here(self.causes):
            parts.append(_either("redeliveryCause", self.causes, kinds=True))
        if self.destinations and not _only_here(self.destinations):
            # Messages that Artemis dead-lettered itself pass: its record of the origin counts, not their property.
            passes = _either("redeliveryOriginalDestination", self.destinations)
            parts.append(f"{passes} OR _AMQ_ORIG_MESSAGE_ID IS NOT NULL")
        return " AND ".join(f"({part})" for part in parts) or None


EVERYTHING = Selection()


def _ids(letter: DeadLetter) -> Iterator[str]:
    """Yield the ids of a dead letter: on the dead-letter queue, before, and the one that `send` returned."""
    for each in (letter.message_id, letter.original_id, letter.headers.get("redeliveryId")):
        if isinstance(each, str):
            yield each


def _only_here(values: Iterable[str]) -> bool:
    """True if a broker cannot evaluate one of them: a pattern, or `unknown`, which senseless properties count as."""
    return any(value == UNKNOWN or _GLOB & set(value) for value in values)


def _either(name: str, values: Iterable[str], *, kinds: bool = False) -> str:
    found = [f"{name} IS NULL"]
    for value in values:
        quoted = value.replace("'", "''")
        found.append(f"{name} = '{quoted}'")
        if kinds and "_" not in value and "%" not in value:
            found.append(f"{name} LIKE '{quoted}:%'")
        # A wildcard of LIKE: more passes than matches, and `matches` decides.
        elif kinds:
            found.append(f"{name} LIKE '{quoted.partition('_')[0].partition('%')[0]}%'")
    return " OR ".join(found)


def _any(patterns: Iterable[str], text: str) -> bool:
    return any(text == pattern or fnmatchcase(text, pattern) for pattern in patterns)


def _texts(filters: Mapping[str, object], name: str) -> tuple[str, ...] | None:
    given = filters.get(name)
    if given is None:
        return None
    if isinstance(given, type):
        raise ConfigurationError(f"{name} is text: write {name}={given.__name__!r}", option=name)
    values: tuple[object, ...] = (given,) if isinstance(given, str) else tuple(given)  # type: ignore[arg-type]
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError(f"{name} must be text, not {value!r}", option=name)
    return tuple(str(value) for value in values)


def _age(filters: Filters, name: str) -> float | None:
    given = filters.get(name)
    return None if given is None else seconds(given, name)


def _address(text: str) -> str:
    return text if text == UNKNOWN or text.startswith("*") else str(Destination.parse(text))
