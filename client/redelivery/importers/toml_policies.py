"""Policies in TOML: read, and written."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, cast

from redelivery.core import option_values
from redelivery.core.destination import Destination
from redelivery.core.policy import redelivery_policy
from redelivery.core.policy.artemis_policy import ArtemisRedeliveryPolicy
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import DelayListPolicy, RedeliveryPolicy
from redelivery.core.policy.wildcards import AddressMatch, ArtemisWildcards, check_wildcards
from redelivery.errors import ConfigurationError, near_miss
from redelivery.importers.dead_letter_uri import refusal
from redelivery.importers.imported import at_line
from redelivery.uri.option_table import DEAD_LETTER_MAP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.policy.redelivery_policy import Policy

__all__ = ["ELAPSED", "read_toml", "to_toml"]


# ---- Toml writer -----------------------------------------------------------------------------------------
# Writer of policies in TOML; `from_toml` reads the same map back.

WILDCARDS = {"delimiter": "delimiter", "singleWord": "single_word", "anyWords": "any_words"}
"""Keys of the inline table of Artemis' wildcards, and the fields that they set."""
ELAPSED = "maximumElapsed"
MAP = "map"
"""Key of the tables of patterns among the dead-letter options."""
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?(?:e[+-]?[0-9]{1,3})?")
_ALWAYS = ("maximumRedeliveries", "max-delivery-attempts")


def to_toml(policies: RedeliveryPolicyMap, dead_letters: Mapping[str, str] | None = None) -> str:
    """Return a map, and dead-letter options of a URI, as a TOML document.

    Of each policy, the maximum and the options that differ from their default are written. Durations are
    milliseconds.

    Args:
        policies: The map.
        dead_letters: Options by full name. None: none.

    Raises:
        ConfigurationError: A policy is made of code (`from_tenacity`, or a class of the application).
    """
    lines: list[str] = []
    if policies.wildcards is not None:
        lines += [f"wildcards = {_wildcards(policies.wildcards)}", ""]
    lines += ["[default]", *_options(policies.default, "the default policy")]
    for pattern, policy in dict(policies.entries).items():
        lines += ["", f"[policies.{_quoted(pattern)}]", *_options(policy, f"the policy for {pattern}")]
    if dead_letters:
        lines += _dead_letters(dead_letters)
    return "\n".join(lines) + "\n"


def _dead_letters(options: Mapping[str, str]) -> list[str]:
    """Return the table of a connection's own options, and one for each pattern."""
    tables: dict[str, list[str]] = {}
    for name, text in options.items():
        table, own = "[deadLetters]", name.removeprefix("redelivery.")
        if name.startswith(DEAD_LETTER_MAP_PREFIX):
            pattern, _, own = name.removeprefix(DEAD_LETTER_MAP_PREFIX).rpartition(".")
            table = f"[deadLetters.{MAP}.{_quoted(pattern)}]"
        tables.setdefault(table, []).append(f"{own} = {_value(text)}")
    # A table without a pattern ends where the first one with a pattern begins.
    return [line for table in sorted(tables, key=len) for line in ("", table, *tables[table])]


def _wildcards(wildcards: ArtemisWildcards) -> str:
    if wildcards == ArtemisWildcards():
        return '"artemis"'
    pairs = [f"{key} = {_quoted(getattr(wildcards, name))}" for key, name in WILDCARDS.items()]
    return "{" + ", ".join(pairs) + "}"


def _options(policy: Policy, name: str) -> list[str]:
    if isinstance(policy, DelayListPolicy):
        limit = policy.to_options().get(ELAPSED)
        return [f"delays = {list(policy.delays)}", *([] if limit is None else [f"{ELAPSED} = {limit}"])]
    if not isinstance(policy, RedeliveryPolicy | ArtemisRedeliveryPolicy):
        raise ConfigurationError(f"{name} is made of code, and cannot be written: {policy!r}")
    options, defaults = policy.to_options(), type(policy)().to_options()
    return [
        f"{key} = {_value(text)}"
        for key, text in options.items()
        if key in _ALWAYS or defaults.get(key) != text
    ]


def _value(text: str) -> str:
    """Return an option's text as TOML. Numbers and booleans are not quoted."""
    if text in ("true", "false"):
        return text
    if not _NUMBER.fullmatch(text):
        return _quoted(text)
    # Only numbers that are read back with the same text: 00 and 1.50 are quoted.
    same = str(int(text)) if text.removeprefix("-").isdigit() else repr(float(text))
    return text if same == text else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# ---- Toml reader -----------------------------------------------------------------------------------------
# Reader of policies in TOML.
#
# Errors name the line. Python's parser does not report the lines of keys: they are looked up in the text.

# Before Python 3.14, tomllib gives line and column in the text of its error only.
_PLACE = re.compile(r"(.*) \((?:at line (\d+), column (\d+)|at end of document)\)", re.DOTALL)
# tomllib's time grows with the square of the number of words in a dotted key: 30,000 words take half a second.
_MOST_DOTS = 1000
_STRING = re.compile(r"""\"[^"]*\"|'[^']*'""")
_LONG_NUMBER = re.compile(r"[0-9_]{1000}")
_KEYS = ("wildcards", "default", "policies", "deadLetters")


def read_toml(text: str, file: str) -> tuple[RedeliveryPolicyMap, dict[str, str]]:
    """Return a document's policies and dead-letter options. Raises ConfigurationError, with the line."""
    for number, row in enumerate(text.split("\n"), 1):
        if row.count(".") > _MOST_DOTS and _STRING.sub("", row).partition("#")[0].count(".") > _MOST_DOTS:
            raise at_line(file, number, f"a key has more than {_MOST_DOTS} dots")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.fullmatch(str(error))
        why, line, column = found.groups() if found else (str(error), None, None)
        place = f"{line}:{column}" if line else str(len(text.splitlines()))
        raise ConfigurationError(f"{file}:{place}: the TOML is not well-formed: {why}") from None
    except RecursionError:
        raise ConfigurationError(f"{file}: the TOML is too deep") from None
    # Python does not read numbers of more than 4,300 digits, and tomllib does not catch that error.
    except ValueError:
        place_of = (number for number, row in enumerate(text.split("\n"), 1) if _LONG_NUMBER.search(row))
        raise at_line(file, next(place_of, 0), "the TOML has too long a number") from None
    return _TomlReader(text, file).read(document)


class _TomlReader:
    """Reader of one document."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._text = text
        self._lines: dict[tuple[str, ...], int] | None = None

    def read(self, document: dict[str, Any]) -> tuple[RedeliveryPolicyMap, dict[str, str]]:
        for key in document:
            if key not in _KEYS:
                hint = near_miss(key, _KEYS) or f"; allowed: {', '.join(_KEYS)}"
                raise self._error((key,), f"unknown key {key}{hint}")
        wildcards = self._wildcards(document.get("wildcards", "activemq"))
        default = self._policy(document["default"], ("default",)) if "default" in document else None
        policies = {
            self._pattern(pattern, wildcards): self._policy(options, ("policies", pattern))
            for pattern, options in self._table(document.get("policies", {}), ("policies",)).items()
        }
        dead_letters = self._dead_letters(document.get("deadLetters", {}))
        if wildcards is None:
            return RedeliveryPolicyMap(policies, default=default), dead_letters
        return RedeliveryPolicyMap.from_artemis_settings(policies, default, wildcards), dead_letters

    def _error(self, place: tuple[str, ...], why: object) -> ConfigurationError:
        if self._lines is None:
            self._lines = _lines(self._text)
        while place and place not in self._lines:
            place = place[:-1]
        return at_line(self._file, self._lines.get(place, 0), why)

    def _table(self, value: object, place: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._error(place, f"{'.'.join(place)} must be a table")
        return cast("dict[str, Any]", value)

    def _wildcards(self, value: object) -> ArtemisWildcards | None:
        if value in ("activemq", "artemis"):
            return ArtemisWildcards() if value == "artemis" else None
        place, shown = ("wildcards",), option_values.shown(value)
        given = cast("dict[str, object]", value) if isinstance(value, dict) else {"": value}
        if not given.keys() <= WILDCARDS.keys():
            allowed = f"activemq, artemis, or a table of {', '.join(WILDCARDS)}"
            raise self._error(place, f"wildcards must be {allowed}, not {shown}")
        wildcards = ArtemisWildcards(**{WILDCARDS[key]: _as_text(text) for key, text in given.items()})
        try:
            wildcards.check()
        except ConfigurationError as error:
            raise self._error(place, error) from None
        return wildcards

    def _pattern(self, pattern: str, wildcards: ArtemisWildcards | None) -> str:
        try:
            if wildcards is None:
                check_wildcards(Destination.parse(pattern))
            else:
                AddressMatch(pattern, wildcards=wildcards)
        except ConfigurationError as error:
            raise self._error(("policies", pattern), error) from None
        return pattern

    def _policy(self, value: object, place: tuple[str, ...]) -> Policy:
        options = self._table(value, place)
        try:
            if "delays" in options:
                return _delays(options)
            if any("-" in name for name in options):
                return ArtemisRedeliveryPolicy.from_options(options)
            return RedeliveryPolicy.from_options(options)
        except ConfigurationError as error:
            raise self._error((*place, (error.option or "").partition("[")[0]), error) from None

    def _dead_letters(self, value: object) -> dict[str, str]:
        table = dict(self._table(value, ("deadLetters",)))
        patterns = self._table(table.pop(MAP, {}), ("deadLetters", MAP))
        named: list[tuple[tuple[str, ...], str, object]] = [
            (("deadLetters", name), f"redelivery.{name}", given) for name, given in table.items()
        ]
        for pattern, options in patterns.items():
            place = ("deadLetters", MAP, pattern)
            named += [
                ((*place, name), f"{DEAD_LETTER_MAP_PREFIX}{pattern}.{name}", given)
                for name, given in self._table(options, place).items()
            ]
        for key, _, given in named:
            if not isinstance(given, str | int | float):
                shown = option_values.shown(given)
                raise self._error(
                    key, f"{'.'.join(key)} must be a text, a number, true or false, not {shown}"
                )
        found = {option: _as_text(given) for _, option, given in named}
        why = refusal(found)
        if why is not None:
            # The line of the option that is refused alone; else of the one whose absence lets the others stand.
            alone = [key for key, option, _ in named if refusal({option: found[option]}) == why]
            without = ((key, {n: v for n, v in found.items() if n != option}) for key, option, _ in named)
            places = [*alone, *(key for key, fewer in without if refusal(fewer) != why), ("deadLetters",)]
            raise self._error(places[0], ConfigurationError(why))
        return found


def _as_text(given: object) -> str:
    """Return a TOML value in the form of a URI option."""
    if isinstance(given, bool):
        return str(given).lower()
    return given if isinstance(given, str) else option_values.shown(given)


def _delays(options: dict[str, Any]) -> DelayListPolicy:
    others = [name for name in options if name not in ("delays", ELAPSED)]
    delays = options["delays"]
    if others:
        raise ConfigurationError(
            f"delays cannot be combined with {others[0]}; remove one of them", option=others[0]
        )
    if not isinstance(delays, list):
        raise ConfigurationError("delays must be a list of milliseconds", option="delays")
    limit = redelivery_policy.option_ms(options[ELAPSED], ELAPSED) if ELAPSED in options else None
    return DelayListPolicy.from_ms(cast("list[int]", delays), limit)


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each table and key of a document that is written on a line of its own."""
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        header = stripped.startswith("[")
        key = stripped if header else f"{stripped.partition('=')[0]} = 0"
        if not stripped or stripped.startswith("#"):
            continue
        try:
            path = _path(tomllib.loads(key))
        except (ValueError, RecursionError):
            # A line within a value of several lines.
            continue
        table = path if header else table
        found.setdefault(path if header else (*table, *path), number)
    return found


def _path(document: dict[str, Any]) -> tuple[str, ...]:
    path: list[str] = []
    while len(document) == 1:
        name, value = next(iter(document.items()))
        path.append(name)
        document = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return tuple(path)
