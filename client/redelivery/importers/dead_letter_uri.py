"""Dead-letter settings of a broker as options of a connection URI: of the connection, and of patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.core.destination import Destination
from redelivery.core.policy.wildcards import overlap
from redelivery.errors import ConfigurationError
from redelivery.importers.imported import Value
from redelivery.uri.option_table import DEAD_LETTER_MAP_PREFIX, OPTIONS
from redelivery.uri.options_reader import of_a_pattern
from redelivery.uri.sorted_options import near_option
from redelivery.uri.syntax import shortest, with_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redelivery.importers.imported import Notes

__all__ = ["SOME", "Strategy", "carried", "mapped", "refusal"]

_PREFIX = "redelivery."
SOME = ("dropTemporaryQueues", "dropTemporaryTopics", "discard")
"""Options with which a strategy that discards drops some dead letters only."""


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

    pattern: str | None
    """Pattern of the map of a connection URI, such as `queue://orders.>`; None: all destinations."""
    line: int
    options: Mapping[str, Value]
    """Short names of `redelivery.` options. Each may be added to those before it."""


def mapped(strategies: Sequence[Strategy], notes: Notes) -> dict[str, str]:
    """Return the URI options of all strategies: the connection's own, and those of patterns.

    Of two strategies with the same pattern the last one counts. One that says what also serves without it is left out.
    """
    each: dict[str | None, Strategy] = {}
    for strategy in strategies:
        before = each.get(strategy.pattern)
        if before is not None and _plain(before) != _plain(strategy):
            what = f"dead letters of {strategy.pattern or 'all destinations'}"
            notes.add(
                strategy.line,
                what,
                f"given again, and differently, after line {before.line}; this one counts",
            )
        each[strategy.pattern] = strategy
    default = each.pop(None, None)
    found = {} if default is None else carried(default.options, notes)
    plain = {} if default is None else _plain(default)
    others = {pattern: one for pattern, one in each.items() if pattern is not None}
    for pattern, strategy in others.items():
        if _plain(strategy) != plain or any(
            _plain(other) != plain and _overlap(pattern, wide) for wide, other in others.items()
        ):
            # A default where a wider pattern has another strategy.
            options = strategy.options or {"deadLetterStrategy": Value("shared", strategy.line)}
            found |= carried(options, notes, pattern=pattern)
    return found


def _overlap(one: str, other: str) -> bool:
    return any(
        overlap(left, right)
        for left in Destination.parse(one).members
        for right in Destination.parse(other).members
    )


def _plain(strategy: Strategy) -> dict[str, str]:
    return {name: value.text for name, value in strategy.options.items()}


def carried(
    options: Mapping[str, Value],
    notes: Notes,
    base: Mapping[str, str] | None = None,
    *,
    pattern: str | None = None,
) -> dict[str, str]:
    """Return `base`, and the options that a connection URI supports; note the others, with the reason.

    Args:
        options: Values by short name.
        notes: Notes to add to.
        base: Options by full name that are there already. None: none.
        pattern: Pattern in a map that has these options; None: the connection.

    Raises:
        ConfigurationError: A value is refused although its option is supported; with its line.
    """
    kept = dict(base or {})
    group: dict[str, str] = {}
    strategy = _named("deadLetterStrategy", pattern)
    for short, value in options.items():
        name = _named(short, pattern)
        group[name] = value.text
        if name == strategy and any(each in options for each in SOME):
            # The strategy waits for what it drops: without that it would discard everything.
            continue
        known = _PREFIX + short in OPTIONS
        why = refusal({**kept, **group}) if known else f"there is no such option here{_near(short)}"
        if why is None:
            kept |= group
        elif group.get(strategy) == "discarding" and len(group) == 1:
            kept[_named("deadLetter", pattern)] = "discard"  # same, for all destinations
        elif known and refusal({name: value.text}) == why:
            raise notes.error(value.line, ConfigurationError(why, option=name))
        else:
            said = " ".join(f"{given}={text}" for given, text in group.items())
            notes.add(value.line, said, why, left_out=True)
        group = {}
    return kept


def _named(short: str, pattern: str | None) -> str:
    """Return the full name of an option: of the connection, or of a pattern; one that patterns lack is the former."""
    own = of_a_pattern(_PREFIX + short)
    return (
        _PREFIX + short
        if pattern is None or own is None
        else f"{DEAD_LETTER_MAP_PREFIX}{shortest(pattern)}.{own}"
    )


def _near(short: str) -> str:
    """Return a hint at the option of dead letters that `short` can be a misspelling of; empty: none is near."""
    near = near_option(_PREFIX + short)
    return f"; did you mean {near.removeprefix(_PREFIX)!r}?" if near is not None else ""
