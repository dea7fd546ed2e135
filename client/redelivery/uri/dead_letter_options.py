"""Reader of a connection URI's options for poison and expired messages; contradictions are refused.

The connection's own strategy is `redelivery.deadLetter…` and its neighbours; that of a pattern is
`redelivery.deadLetterMap.<pattern>.<option>`. Both are read by the same rules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from redelivery.core import option_values
from redelivery.core.dead_lettering.dead_letter_map import DeadLetterMap
from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterStrategy, problems
from redelivery.errors import ConfigurationError, near_miss
from redelivery.uri.option_table import DEAD_LETTER_MAP_PREFIX, OPTIONS, STRATEGY_NAMES
from redelivery.uri.repeatable import name_repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterRoute
    from redelivery.settings import BrokerName
    from redelivery.uri.options_reader import OptionsReader

__all__ = [
    "DEAD_LETTER_OPTIONS",
    "OUTCOME",
    "SCHEDULER",
    "STRATEGY_OPTIONS",
    "DeadLetterFields",
    "check_subscribers",
    "dead_letters",
    "mapped_strategy_option",
    "of_a_pattern",
]

OUTCOME = "jms.redeliveryPolicy.outcome"
_OUTCOMES = ("ACCEPTED", "REJECTED", "RELEASED", "MODIFIED_FAILED", "MODIFIED_FAILED_UNDELIVERABLE")
SCHEDULER = "redelivery.scheduler"
STRATEGY_OPTIONS = {short: re.sub("([A-Z])", r"_\1", short).lower() for short in STRATEGY_NAMES}
"""Options of a pattern in a map, and the fields of `DeadLetterStrategy` that they set."""
DEAD_LETTER_OPTIONS = frozenset({
    *STRATEGY_NAMES.values(), "redelivery.emptyBody", "redelivery.fallbackToDeadLetter", "redelivery.reportInterval",
    "redelivery.sendToDlqIfMaxRetriesExceeded",
})  # fmt: skip
"""Options of a connection about dead letters, but those of a map."""
_OF_FIELDS = {field: short for short, field in STRATEGY_OPTIONS.items()}


class DeadLetterFields(TypedDict):
    """Fields of `Settings` for dead letters."""

    dead_letters: DeadLetterMap
    has_dead_letters: bool
    report_interval: int
    send_exhausted: bool
    fallback: bool
    empty_body: Literal["stop", "forward"]
    broker: BrokerName


def mapped_strategy_option(option: str, *, quiet: bool) -> str:
    """Return the key of an option of one pattern: the name of the connection's own option.

    Raises ConfigurationError if there is no such option.
    """
    if option in STRATEGY_OPTIONS:
        return STRATEGY_NAMES[option]
    prefix = f"{DEAD_LETTER_MAP_PREFIX}<pattern>."
    if (own := of_a_pattern(f"redelivery.{option}")) is not None:
        why = f" {option}: write {prefix}{own}"
    elif not name_repeats(option, quiet=quiet):
        why = " (name not shown)"
    else:
        allowed = "; allowed: " + ", ".join(STRATEGY_OPTIONS)
        why = f" {option}{near_miss(option, tuple(STRATEGY_OPTIONS)) or allowed}"
    raise ConfigurationError(
        f"{prefix}<option> has an unknown option{why}", option=DEAD_LETTER_MAP_PREFIX[:-1]
    )


def of_a_pattern(name: str) -> str | None:
    """Return the option of a pattern for what an option of a connection is, by its full name; None: there is none."""
    return next((short for short, own in STRATEGY_NAMES.items() if own == name), None)


def dead_letters(
    read: OptionsReader,
    patterns: Mapping[str, Mapping[str, str]],
    places: DeadLetterMap | None = None,
    *,
    quiet: bool,
) -> DeadLetterFields:
    """Return the settings for poison and expired messages.

    `patterns`: for each, values by the names that `mapped_strategy_option` returns. `places`: strategies that are given
    beside the options.
    """
    default = _strategy(read, _with_outcome(read), lambda short: STRATEGY_NAMES[short])
    mapping: dict[str, DeadLetterStrategy] = {}
    for pattern, options in patterns.items():
        prefix = f"{DEAD_LETTER_MAP_PREFIX}{'<pattern>' if quiet else pattern}."
        found = _strategy(read, options, lambda short, prefix=prefix: f"{prefix}{short}")  # type: ignore[misc]
        if found is not None:
            mapping[pattern] = found
    made = DeadLetterMap(mapping, default)
    read.part(lambda one: _check_connection(one, made))
    read.part(lambda one: _check_effects(one, made if places is None else places, named=places is None))
    return {
        "dead_letters": made,
        "has_dead_letters": bool(patterns) or default is not None,
        "report_interval": read.whole("redelivery.reportInterval", 1000),
        "send_exhausted": read.flag("redelivery.sendToDlqIfMaxRetriesExceeded", True),  # noqa: FBT003
        "fallback": read.flag("redelivery.fallbackToDeadLetter", True),  # noqa: FBT003
        "broker": cast("BrokerName", read.choice("redelivery.broker", "auto")),
        "empty_body": cast("Literal['stop', 'forward']", read.choice("redelivery.emptyBody", "stop")),
    }


def _strategy(
    read: OptionsReader, options: Mapping[str, str], named: Callable[[str], str]
) -> DeadLetterStrategy | None:
    """Return one strategy; None without any option, or where it was refused and that is a mistake of several.

    `options`: values by the names of the connection's own options. `named`: name of a short option, for errors.
    """
    given: dict[str, Any] = {}
    right = True
    for short, name in STRATEGY_NAMES.items():
        if name in options:
            try:
                given[STRATEGY_OPTIONS[short]] = _value(options[name], OPTIONS[name].kind, name, named(short))
            except ConfigurationError as error:
                right = False
                read.refuse(error)
    wrong = list(problems(given, lambda field: named(_OF_FIELDS[field]), right=right))
    for each in wrong:
        read.refuse(each)
    plain: dict[str, Any] = {
        field: str(value) if isinstance(value, str) else value for field, value in given.items()
    }
    return DeadLetterStrategy(**plain) if given and right and not wrong else None


def _value(value: str, kind: str, name: str, shown: str) -> object:
    """Return the value of an option; texts are checked with the strategy. Raises ConfigurationError."""
    match kind:
        case "boolean":
            return option_values.option_flag(value, shown)
        case "milliseconds":
            return option_values.option_ms(value, shown) / 1000
        case "choice":
            return option_values.option_choice(value, shown, OPTIONS[name].choices)
        case "destination":
            return value
        case _:
            affix = name.endswith(("Prefix", "Suffix"))
            # An empty prefix is not the broker's own: `orders.DLQ` has a suffix only.
            if not value.strip() and not (affix and not value):
                raise ConfigurationError(f"{shown} must not be empty", option=shown)
            return value


def _with_outcome(read: OptionsReader) -> Mapping[str, str]:
    """Return the options, with Qpid JMS's name for the route as ours."""
    name = STRATEGY_NAMES["deadLetter"]
    outcome = read.part(_outcome, lambda: None)
    if outcome is None:
        return read.given
    if name in read.given:
        read.refuse(
            ConfigurationError(f"{OUTCOME} and {name} are the same setting: give one of them", option=OUTCOME)
        )
        return read.given
    return {**read.given, name: outcome}


def _check_connection(read: OptionsReader, made: DeadLetterMap) -> None:
    """Refuse options of the whole connection that contradict its strategies, or have no effect with them."""
    if read.choice(SCHEDULER, "client") == "broker" and any(each.dead_letter == "ack" for each in made):
        raise ConfigurationError(
            f"{SCHEDULER}=broker contradicts redelivery.deadLetter=ack: the broker's own poison acknowledgement "
            "would leave a dead letter with the properties of the last delayed copy; use auto or forward",
            option=SCHEDULER,
        )
    if "jms.clientID" not in read.given:
        check_subscribers(made, STRATEGY_NAMES["destinationPerDurableSubscriber"])


def _check_effects(read: OptionsReader, made: DeadLetterMap, *, named: bool) -> None:
    """Refuse options of a connection that have no effect with its strategies. `named`: options have made these."""
    strategy = STRATEGY_NAMES["strategy"] if named else "strategy"
    if "redelivery.reportInterval" in read.given and not any(each.strategy == "discarding" for each in made):
        raise ConfigurationError(
            f"redelivery.reportInterval needs {strategy}=discarding, and it is {made.default.strategy}",
            option="redelivery.reportInterval",
        )
    if all(each.keeps_nothing for each in made):
        for name in ("redelivery.sendToDlqIfMaxRetriesExceeded", "redelivery.fallbackToDeadLetter"):
            if name in read.given:
                one, route = made.default, STRATEGY_NAMES["deadLetter"] if named else "dead_letter"
                why = f"{route}=discard" if one.dead_letter == "discard" else f"{strategy}={one.strategy}"
                raise ConfigurationError(
                    f"{name} has no effect: {why} keeps no dead letter; remove it", option=name
                )


def check_subscribers(strategies: DeadLetterMap, name: str) -> None:
    """Refuse a dead-letter destination for each durable subscription without a client id. `name`: of its option."""
    if any(each.destination_per_durable_subscriber for each in strategies):
        raise ConfigurationError(f"{name} needs jms.clientID, as durable subscriptions do", option=name)


def _outcome(read: OptionsReader) -> DeadLetterRoute | None:
    """Return the route that stands for Qpid JMS's outcome: a name in any case, or a number from 1."""
    value = read.given.get(OUTCOME)
    if value is None:
        return None
    word = value.upper()
    if word in ("1", "2", "3", "4", "5"):
        word = _OUTCOMES[int(word) - 1]
    if word == "ACCEPTED":
        return "discard"
    if word == "REJECTED":
        return "ack"
    if word == "MODIFIED_FAILED_UNDELIVERABLE":
        raise ConfigurationError(
            f"{OUTCOME}={word} is not supported yet; supported: ACCEPTED, REJECTED", option=OUTCOME
        )
    if word in _OUTCOMES:
        raise ConfigurationError(
            f"{OUTCOME}={word} releases a poison message for ever; allowed: ACCEPTED, REJECTED",
            option=OUTCOME,
        )
    raise option_values.refuse(OUTCOME, value, "one of ACCEPTED, REJECTED")
