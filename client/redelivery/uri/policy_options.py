"""Reader of policies in a connection URI: the reference's options, and ours.

The reference's are `jms.redeliveryPolicy.*` and `jms.redeliveryPolicyMap.<pattern>.*`. Ours are `redelivery.policy.*`
and `redelivery.policyMap.<pattern>.*`: a limit of time, and a list of delays. Both may describe one policy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core import option_values
from redelivery.core.policy import time_limit
from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import ConfigurationError, near_miss
from redelivery.uri.dead_letter_options import OUTCOME
from redelivery.uri.option_table import MAP_PREFIX, OPTIONS, OUR_MAP_PREFIX, OUR_POLICY, POLICY
from redelivery.uri.repeatable import name_repeats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.core.policy.redelivery_policy import Policy
    from redelivery.uri.options_reader import OptionsReader

__all__ = ["given_policies", "mapped_option"]

_QPID = "maxRedeliveries"
_DELAYS, _ELAPSED = "delays", "maximumElapsed"
_OURS = (_DELAYS, _ELAPSED)
# More than a list written by hand has, and fewer than fill the memory.
_MOST_DELAYS = 10_000


def mapped_option(prefix: str, option: str, *, quiet: bool) -> str:
    """Return the key of an option of one pattern: its full name without the pattern.

    Raises ConfigurationError if there is no such option.
    """
    name = option[:1].lower() + option[1:]
    if prefix != OUR_MAP_PREFIX:
        if name in _OURS:
            raise ConfigurationError(
                f"{MAP_PREFIX}<pattern>.{name} is not the Java client's: write {OUR_MAP_PREFIX}<pattern>.{name}",
                option=MAP_PREFIX[:-1],
            )
        if POLICY + name not in OPTIONS and not name_repeats(option, quiet=quiet):
            near = near_miss(name, [each.removeprefix(POLICY) for each in OPTIONS if each.startswith(POLICY)])
            raise ConfigurationError(
                f"{MAP_PREFIX}<pattern>.<option> has an unknown option (name not shown){near}",
                option=MAP_PREFIX[:-1],
            )
        return POLICY + option
    if option in _OURS:
        return OUR_POLICY + option
    if not name_repeats(option, quiet=quiet):
        why = " (name not shown)"
    elif POLICY + name in OPTIONS:
        why = f" {option}: write {MAP_PREFIX}<pattern>.{name}"
    else:
        allowed = "; allowed: " + ", ".join(_OURS)
        why = f" {option}{near_miss(option, _OURS) or allowed}"
    raise ConfigurationError(
        f"{OUR_MAP_PREFIX}<pattern>.<option> has an unknown option{why}", option=OUR_MAP_PREFIX[:-1]
    )


def given_policies(
    read: OptionsReader, patterns: Mapping[str, Mapping[str, str]], *, quiet: bool
) -> RedeliveryPolicyMap:
    """Return the map that a URI describes. `patterns`: for each, values by the names that `mapped_option` returns.

    Raises ConfigurationError for a value that cannot be honoured, and for options that contradict each other, or adds
    it to the mistakes of `read`.
    """
    default = _read(read, read.given, POLICY, OUR_POLICY)
    mapping: dict[str, Policy] = {}
    for pattern, options in patterns.items():
        shown = "<pattern>" if quiet else pattern
        policy = _read(read, options, f"{MAP_PREFIX}{shown}.", f"{OUR_MAP_PREFIX}{shown}.")
        if policy is not None:
            mapping[pattern] = policy
    return RedeliveryPolicyMap(mapping, default=default)


def _read(read: OptionsReader, options: Mapping[str, str], prefix: str, our_prefix: str) -> Policy | None:
    """Return one policy; None without any option, or where it was refused and that is a mistake of several."""
    try:
        return _policy(options, prefix, our_prefix)
    except ConfigurationError as error:
        alone = list[ConfigurationError]()
        for name, value in options.items():
            try:
                _policy({name: value}, prefix, our_prefix)
            except ConfigurationError as one:
                alone.append(one)
        # Options that are wrong together are reported where none is wrong alone.
        for mistake in alone or [error]:
            read.refuse(mistake)
        return None


def _policy(options: Mapping[str, str], prefix: str, our_prefix: str) -> Policy | None:
    """Return the policy of the default, or of a pattern; None without any option. The prefixes are for errors."""
    theirs: dict[str, object] = {
        name.removeprefix(POLICY): value
        for name, value in options.items()
        if name.startswith(POLICY) and name != OUTCOME
    }
    ours = {name: options[OUR_POLICY + name] for name in _OURS if OUR_POLICY + name in options}
    if not theirs and not ours:
        return None
    elapsed = None
    if _ELAPSED in ours:
        elapsed = time_limit.option_ms(ours[_ELAPSED], our_prefix + _ELAPSED)
    if _DELAYS not in ours:
        if prefix == POLICY:
            _rename_qpids(theirs)
        return RedeliveryPolicy.from_prefixed_options(theirs, prefix, elapsed)
    name = our_prefix + _DELAYS
    if theirs:
        raise ConfigurationError(
            f"{name} is a whole schedule, and its length is the maximum: remove {prefix}{next(iter(theirs))}",
            option=name,
        )
    from redelivery.core.policy.delay_list import DelayListPolicy  # noqa: PLC0415 - most programs need none

    return DelayListPolicy.from_ms(_delays(ours[_DELAYS], name), elapsed)


def _rename_qpids(options: dict[str, object]) -> None:
    """Accept Qpid's name for the maximum, which its client does not take in a policy map."""
    if _QPID not in options:
        return
    if "maximumRedeliveries" in options:
        raise ConfigurationError(
            f"{POLICY}maximumRedeliveries and {POLICY}{_QPID} are the same setting: give one of them",
            option=POLICY + _QPID,
        )
    options["maximumRedeliveries"] = option_values.option_whole(
        options.pop(_QPID), POLICY + _QPID, -1, option_values.MAX_INT
    )


def _delays(text: str, name: str) -> list[int]:
    """Return a list of milliseconds: whole numbers with commas and any blanks between them."""
    words = [word.strip() for word in str(text).split(",")]
    whole = all(word.isascii() and word.isdigit() and len(word) <= 19 for word in words)
    if not whole or any(int(word) > option_values.MAX_LONG for word in words):
        raise option_values.refuse(name, text, "milliseconds with a comma between them, as 1000,5000,30000")
    if len(words) > _MOST_DELAYS:
        raise ConfigurationError(f"{name} has {len(words)} delays; {_MOST_DELAYS} at most", option=name)
    return [int(word) for word in words]
