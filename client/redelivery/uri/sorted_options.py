"""Options of a connection URI, sorted: those that have a meaning, those of patterns, the Java client's own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from redelivery.core.destination import Destination
from redelivery.core.policy.wildcards import check_wildcards
from redelivery.errors import ConfigurationError, near_miss
from redelivery.uri.java_options import (
    ARTEMIS_NAMES,
    COUNTERPARTS,
    DESTINATION_OPTIONS,
    QPID_NAMES,
    is_java_only,
    is_qpid_only,
)
from redelivery.uri.option_table import (
    DEAD_LETTER_MAP_PREFIX,
    OPTIONS,
    OUR_POLICY,
    POLICY,
    map_prefix_of,
)
from redelivery.uri.options_reader import OUTCOME, mapped_option, mapped_strategy_option
from redelivery.uri.schemes import JAVA_PORTS, SCHEMES
from redelivery.uri.syntax import (
    java_name_repeats,
    may_stand_for,
    name_repeats,
    shown_value,
    value_to_show,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.uri.options_reader import Mistakes
    from redelivery.uri.syntax import UriParts

__all__ = ["SortedOptions", "canonical", "family_of", "java_only", "near_option", "sorted_out"]

_FAMILIES = {"stomp+ssl": "stomp", "amqps": "amqp"} | dict.fromkeys(JAVA_PORTS, "java")


class SortedOptions(NamedTuple):
    """Options of a URI, by what they are about."""

    given: dict[str, str]
    """Those that have a meaning here, by canonical name."""
    patterns: dict[str, dict[str, str]]
    """Policy options by pattern."""
    places: dict[str, dict[str, str]]
    """Options of dead-letter strategies by pattern."""
    inapplicable: dict[str, str]
    """The Java client's own, of a URI of the Java client."""


def family_of(parts: UriParts) -> str:
    """Return which client the addresses are for: `java`, `stomp`, `amqp`, or another scheme."""
    scheme = next(
        (one.scheme for one in parts.addresses if one.scheme in JAVA_PORTS), parts.addresses[0].scheme
    )
    return _FAMILIES.get(scheme, scheme)


def sorted_out(parts: UriParts, mistakes: Mistakes) -> SortedOptions:
    """Return the options that have a meaning, the policy options by pattern, and the Java client's own."""
    java = family_of(parts) == "java"
    found = SortedOptions({}, {}, {}, {})
    for name, value in _member_options(parts, mistakes, java=java):
        found.inapplicable[name] = value
    for written, value in parts.options:
        name = canonical(written)
        prefix = map_prefix_of(name)
        if prefix is not None:
            mistakes.attempt(partial(_take_mapped, parts, found, prefix, written, value))
        elif name in OPTIONS and not (java and _is_qpid(name)):
            mistakes.attempt(partial(_take, parts, found, name, value))
        elif is_java_only(name, failover=parts.failover) or (not java and is_qpid_only(name)):
            if java:
                found.inapplicable[written] = shown_value(written, value, quiet=parts.quiet)
            else:
                mistakes.add(java_only(written, parts), "java", rewritable=True)
        elif name in OPTIONS:
            mistakes.add(ConfigurationError(f"{name} is an option of Qpid JMS only; remove it", option=name))
        else:
            mistakes.add(
                ConfigurationError(
                    f"unknown option {_named(written, parts)}{_hint(written)}",
                    option=written if name_repeats(written, quiet=parts.quiet) else None,
                )
            )
    return found


def _take_mapped(parts: UriParts, found: SortedOptions, prefix: str, written: str, value: str) -> None:
    """Keep an option of a pattern: of its policy, or of its dead-letter strategy. Raises ConfigurationError."""
    pattern, dot, option = written[len(prefix) :].rpartition(".")
    if not dot or not pattern.strip():
        raise ConfigurationError(
            f"{prefix}<pattern>.<option> needs a pattern and an option", option=prefix[:-1]
        )
    places = prefix == DEAD_LETTER_MAP_PREFIX
    key = (
        mapped_strategy_option(option, quiet=parts.quiet)
        if places
        else mapped_option(prefix, option, quiet=parts.quiet)
    )
    java = family_of(parts) == "java"
    kept = found.places if places else found.patterns
    values = kept.setdefault(_pattern(pattern, prefix, java=java, quiet=parts.quiet), {})
    if key in values:
        raise ConfigurationError(f"{prefix}<pattern>.{option} is given twice, in two spellings")
    values[key] = value_to_show(canonical(written), value, quiet=parts.quiet)


def _take(parts: UriParts, found: SortedOptions, name: str, value: str) -> None:
    """Keep an option. Raises ConfigurationError where it is misplaced or given twice."""
    _check_place(parts, name, java=family_of(parts) == "java")
    if name in found.given:
        raise ConfigurationError(f"{name} is given twice, in two spellings", option=name)
    found.given[name] = value_to_show(name, value, quiet=parts.quiet)


def java_only(name: str, parts: UriParts) -> ConfigurationError:
    if name in QPID_NAMES:
        return ConfigurationError(f"{name} is Qpid JMS's name: write {QPID_NAMES[name]}", option=name)
    if name in ARTEMIS_NAMES:
        return ConfigurationError(
            f"{name} is a name of Artemis' client: write {ARTEMIS_NAMES[name]}", option=name
        )
    cure = f"write {COUNTERPARTS[name]}" if name in COUNTERPARTS else "remove it"
    return ConfigurationError(
        f"{_named(name, parts)} is an option of the Java client only; {cure}",
        option=name if java_name_repeats(name) else None,
    )


def _member_options(parts: UriParts, mistakes: Mistakes, *, java: bool) -> Iterator[tuple[str, str]]:
    """Go through the options inside failover:(...): transport options of the Java client at most."""
    for address in parts.addresses:
        for name, value in address.options:
            if java and is_java_only(name, failover=False) and not name.startswith("jms."):
                yield name, shown_value(name, value, quiet=parts.quiet)
                continue
            mistakes.add(
                ConfigurationError(
                    f"{_named(name, parts)} is misplaced: options go behind the ) of failover:(...)",
                    option=name if name_repeats(name, quiet=parts.quiet) else None,
                ),
                rewritable=True,
            )


def canonical(name: str) -> str:
    """Return the name, in `jms.` options with the last word's first letter lowered, as the reference does."""
    head, dot, last = name.rpartition(".")
    return head + dot + last[:1].lower() + last[1:] if name.startswith("jms.") else name


def _is_qpid(name: str) -> bool:
    """True if only Qpid JMS knows the option: a Classic URI (`tcp://`) with it would not connect in Java."""
    return name.startswith("failover.") or name in (OUTCOME, "jms.redeliveryPolicy.maxRedeliveries")


def _check_place(parts: UriParts, name: str, *, java: bool) -> None:
    option = OPTIONS[name]
    if option.scope == "failover" and not parts.failover:
        raise ConfigurationError(
            f"{name} is misplaced: it belongs to a failover:(...)?{name}=... URI", option=name
        )
    # A Java URI does not connect here; its addresses are network addresses.
    schemes = {"stomp"} if java else {address.scheme for address in parts.addresses}
    # Adapters of other projects can have a use for any option.
    if not schemes & option.schemes and schemes <= SCHEMES.keys():
        *others, last = (f"{scheme}://" for scheme in SCHEMES if scheme in option.schemes)
        raise ConfigurationError(f"{name} needs a {', '.join(others)} or {last} address", option=name)


def _pattern(text: str, prefix: str, *, java: bool, quiet: bool) -> str:
    try:
        pattern = Destination.parse(text)
        # In the Java client such a pattern is a text that matches nothing.
        if not java:
            check_wildcards(pattern)
        return str(pattern)
    except ConfigurationError as error:
        why = "the pattern is no destination" if quiet else str(error)
        raise ConfigurationError(f"{prefix}<pattern>.<option>: {why}", option=prefix[:-1]) from None


def _named(name: str, parts: UriParts) -> str:
    repeats = name_repeats(name, quiet=parts.quiet) or java_name_repeats(name)
    return name if repeats else "in the URI (name not shown)"


def _hint(name: str) -> str:
    """Return what to say of an unknown name: the nearest right one, first of the same group; else the whole group."""
    if name in DESTINATION_OPTIONS:
        return f": an option of the Java client's destinations; write {DESTINATION_OPTIONS[name]}"
    head, dot, last = name.rpartition(".")
    # The option of that name in the other group of policy options.
    other = {POLICY: OUR_POLICY, OUR_POLICY: POLICY}.get(head + dot, "") + last
    if other != last and other in OPTIONS:
        return f": write {other}"
    # The right name behind the prefix of another group.
    whole = next(
        (option for option in OPTIONS if dot and option.rpartition(".")[2].lower() == last.lower()), None
    )
    if whole is not None:
        return f"; did you mean {whole!r}?"
    group = [option.rpartition(".")[2] for option in OPTIONS if dot and option.rpartition(".")[0] == head]
    if group:
        near = near_miss(last, group)
        return near.replace("'", f"'{head}.", 1) if near else f"; allowed: {', '.join(group)}"
    return near_miss(name, OPTIONS)


def near_option(name: str) -> str | None:
    """Return the option that an unknown name is closest to, as the error over it says; None: there is none.

    An option whose value is shown is none for a name that sounds like a secret.
    """
    hint = _hint(name)
    quoted = hint.partition("did you mean '")[2].partition("'")[0] or hint.partition(": write ")[2]
    return quoted if quoted in OPTIONS and may_stand_for(name, quoted) else None
