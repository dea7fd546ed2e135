"""Writer of policies in TOML; `from_toml` reads the same map back."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from redelivery.core.policy.artemis_policy import ArtemisRedeliveryPolicy
from redelivery.core.policy.artemis_wildcards import ArtemisWildcards
from redelivery.core.policy.delay_list import DelayListPolicy
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import ConfigurationError
from redelivery.uri.option_table import DEAD_LETTER_MAP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.policy.policy_map import RedeliveryPolicyMap
    from redelivery.core.policy.redelivery_policy import Policy

__all__ = ["ELAPSED", "MAP", "WILDCARDS", "to_toml"]

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
