"""Dead-letter settings of a broker as options of a connection URI, which has one set for a connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError
from redelivery.uri.joining import with_options
from redelivery.uri.option_table import OPTIONS
from redelivery.uri.sorted_options import near_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.importers.imported import Notes, Value

__all__ = ["Strategy", "carried", "one_for_all", "refusal"]

_PREFIX = "redelivery."
_STRATEGY = "redelivery.deadLetterStrategy"


def refusal(options: Mapping[str, str]) -> str | None:
    """Return why a connection URI cannot have these options together; None: it can."""
    from redelivery.uri.parser import parse_uri  # noqa: PLC0415 - it decides which options are supported

    try:
        parse_uri(with_options("memory://x", options))
    except ConfigurationError as error:
        return error.errors[0]
    return None


@dataclass(frozen=True, slots=True)
class Strategy:
    """Dead-letter settings of a broker for the destinations of one pattern."""

    pattern: str
    """Pattern as the file has it; for notes."""
    everything: bool
    """True if the pattern covers all destinations."""
    line: int
    options: Mapping[str, Value]
    """Short names of `redelivery.` options. Each may be added to those before it."""


def one_for_all(strategies: Sequence[Strategy], notes: Notes) -> dict[str, str]:
    """Return the URI options of the strategy for all destinations; note strategies that differ from it.

    If no pattern covers all destinations, nothing is carried over: a connection has one strategy, and the
    strategy of a few destinations is wrong for the others.
    """
    chosen = next((strategy for strategy in strategies if strategy.everything), None)
    wanted = _plain(chosen) if chosen is not None else {}
    for strategy in strategies:
        options = _plain(strategy)
        if strategy is not chosen and options != wanted:
            said = " ".join(f"{_PREFIX}{name}={value}" for name, value in options.items()) or "the default"
            notes.add(
                strategy.line,
                f"dead letters of {strategy.pattern}",
                f"a connection has one strategy for all its destinations; this one is {said}",
            )
    return carried(chosen.options, notes) if chosen is not None else {}


def _plain(strategy: Strategy) -> dict[str, str]:
    return {name: value.text for name, value in strategy.options.items()}


def carried(
    options: Mapping[str, Value], notes: Notes, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return `base`, and the options that a connection URI supports; note the others, with the reason.

    Args:
        options: Values by short name.
        notes: Notes to add to.
        base: Options by full name that are there already. None: none.

    Raises:
        ConfigurationError: A value is refused although its option is supported; with its line.
    """
    kept = dict(base or {})
    group: dict[str, str] = {}
    for short, value in options.items():
        name = _PREFIX + short
        group[name] = value.text
        if name == _STRATEGY and "discard" in options:
            # The strategy waits for its patterns: without them it would discard everything.
            continue
        known = all(given in OPTIONS for given in group)
        why = refusal({**kept, **group}) if known else f"there is no such option here{_near(short)}"
        if why is None:
            kept |= group
        elif group.get(_STRATEGY) == "discarding" and len(group) == 1:
            kept["redelivery.deadLetter"] = "discard"  # same, for all destinations
        elif known and refusal({name: value.text}) == why:
            raise notes.error(value.line, ConfigurationError(why, option=name))
        else:
            said = " ".join(f"{given}={text}" for given, text in group.items())
            notes.add(value.line, said, why, left_out=True)
        group = {}
    return kept


def _near(short: str) -> str:
    """Return a hint at the option of dead letters that `short` can be a misspelling of; empty: none is near."""
    near = near_option(_PREFIX + short)
    return f"; did you mean {near.removeprefix(_PREFIX)!r}?" if near is not None else ""
