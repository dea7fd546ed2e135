"""Parser of connection URIs: every option is honoured, or refused; one error lists all mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redelivery import registry
from redelivery.core.credit_pace import MOST_CREDIT
from redelivery.core.destination import Destination
from redelivery.core.policy.classic_wildcards import check_wildcards
from redelivery.errors import ConfigurationError, near_miss
from redelivery.settings import Endpoint, Secret, Settings
from redelivery.uri.breaker_options import breaker
from redelivery.uri.dead_letter_options import OUTCOME, dead_letters
from redelivery.uri.mistakes import Mistakes
from redelivery.uri.option_table import (
    DESTINATION_OPTIONS,
    JAVA_PORTS,
    MAP_PREFIX,
    OPTIONS,
    OUR_MAP_PREFIX,
    OUR_POLICY,
    POLICY,
    QPID_NAMES,
    SCHEMES,
    is_java_only,
    is_qpid_only,
)
from redelivery.uri.options_reader import (
    OptionsReader,
    failover,
    ledger,
    of_rabbitmq,
    ordering,
    rate,
    scheduler,
    tls,
)
from redelivery.uri.policy_options import given_policies, mapped_option
from redelivery.uri.repeatable import java_name_repeats, name_repeats, shown_value, value_to_show
from redelivery.uri.syntax import UriParts, redact_uri, split_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["check_parts", "near_option", "parse_to_connect", "parse_uri", "redact_uri"]

_FAMILIES = {"stomp+ssl": "stomp", "amqps": "amqp"} | dict.fromkeys(JAVA_PORTS, "java")
_LARGEST_PREFETCH = 32767


def parse_uri(text: str) -> Settings:
    """Read a connection URI. No I/O.

    Every option's name, values and default are in `redelivery.options`; durations are milliseconds. Raises
    ConfigurationError for an option that is unknown, unconvertible, misplaced, contradictory or
    senseless. One error lists all mistakes of the options (`errors`), and shows no user name or password.
    """
    return _read(text, connects=False)


def parse_to_connect(text: str) -> Settings:
    """Read a connection URI as `parse_uri` does; a URI of the Java client is a mistake, too. No I/O."""
    return _read(text, connects=True)


class SortedOptions(NamedTuple):
    """Options of a URI, by what they are about."""

    given: dict[str, str]
    """Those that have a meaning here, by canonical name."""
    patterns: dict[str, dict[str, str]]
    """Policy options by pattern."""
    inapplicable: dict[str, str]
    """The Java client's own, of a URI of the Java client."""


def _read(text: str, *, connects: bool) -> Settings:
    parts = split_uri(text)
    mistakes = Mistakes()
    mistakes.attempt(lambda: _check_family(parts), "address")
    found = _sorted_out(parts, mistakes)
    if connects:
        _check_connects(parts, found, mistakes)
    if not mistakes:
        try:
            return _settings(parts, found, OptionsReader(found.given))
        except ConfigurationError as error:
            first = error
    else:
        first = None
    # Again, to the end: the user is to see all mistakes.
    read = OptionsReader(found.given, mistakes)
    mistakes.attempt(lambda: _settings(parts, found, read))
    if not mistakes and first is not None:
        raise first
    raise mistakes.error(*_suggestion(text, parts, mistakes))


def _settings(parts: UriParts, found: SortedOptions, read: OptionsReader) -> Settings:
    """Return the settings. Raises ConfigurationError, or adds to the mistakes of `read`."""
    family = _family(parts)
    java = family == "java"
    policies = given_policies(read, found.patterns, quiet=parts.quiet)
    user, password = read.part(lambda one: _credentials(parts, one), lambda: (None, None))
    endpoints = tuple(Endpoint(a.scheme, a.host, a.port) for a in parts.addresses)
    queue, topic, durable = read.part(_credits)
    return Settings(
        scheme=endpoints[0].scheme,
        endpoints=endpoints,
        policies=policies,
        has_policies=bool(found.patterns)
        or any(OPTIONS[name].scope == "policy" for name in found.given if name != OUTCOME),
        credit=queue,
        topic_credit=topic,
        durable_topic_credit=durable,
        max_parked=read.whole_or_none("redelivery.maxParked"),
        ordering=read.part(lambda one: ordering(one, java=java)),
        client_id=read.text("jms.clientID"),
        user_name=user,
        password=password,
        failover=read.part(lambda one: failover(one, enabled=parts.failover)),
        tls=read.part(tls),
        heartbeat=read.seconds("redelivery.heartbeat", 10.0),
        connect_timeout=read.seconds("redelivery.connectTimeout", 10.0),
        send_timeout=read.seconds("redelivery.sendTimeout", 0.0) or None,
        maximum_header_bytes=read.whole("redelivery.maximumHeaderBytes", 2**24),
        maximum_message_bytes=read.whole("redelivery.maximumMessageBytes", 2**28),
        virtual_host=read.text("redelivery.virtualHost"),
        maximum_deferrals=read.whole("redelivery.maximumDeferrals", 100),
        maximum_set_aside=read.whole("redelivery.maximumSetAside", 100),
        log_each=read.flag("redelivery.logEach", False),  # noqa: FBT003
        unique_ids=read.flag("redelivery.uniqueIds", False),  # noqa: FBT003
        scheduler=read.part(lambda one: scheduler(one, java=java)),
        ledger=read.part(ledger),
        inapplicable=found.inapplicable,
        rate=read.part(rate),
        **read.part(lambda one: of_rabbitmq(one, amqp=family == "amqp")),
        **read.part(breaker),
        **read.part(dead_letters),
    )


def _family(parts: UriParts) -> str:
    """Return which client the addresses are for: `java`, `stomp`, `amqp`, or another scheme."""
    scheme = next(
        (one.scheme for one in parts.addresses if one.scheme in JAVA_PORTS), parts.addresses[0].scheme
    )
    return _FAMILIES.get(scheme, scheme)


def _check_family(parts: UriParts) -> None:
    families = {_FAMILIES.get(address.scheme, address.scheme) for address in parts.addresses}
    if len(families) > 1:
        schemes = ", ".join(sorted({f"{address.scheme}://" for address in parts.addresses}))
        raise ConfigurationError(
            f"the addresses of one failover: list must speak one protocol, not {schemes}"
        )


def _check_connects(parts: UriParts, found: SortedOptions, mistakes: Mistakes) -> None:
    """Add what a URI of the Java client has that cannot connect from here."""
    for scheme in dict.fromkeys(address.scheme for address in parts.addresses):
        if scheme in JAVA_PORTS and scheme not in registry.schemes():
            mistakes.add(registry.unknown(scheme), "address", rewritable=True)
    if mistakes.rewritable:
        for name in found.inapplicable:
            mistakes.add(_java_only(name, parts), "java", rewritable=True)


def _suggestion(text: str, parts: UriParts, mistakes: Mistakes) -> tuple[str | None, tuple[str, ...]]:
    """Return the URI that works instead, without credentials, and the options that it leaves for the user to correct.

    The URI is None where only the user can correct it.
    """
    from redelivery.uri.rewriting import rewritten  # noqa: PLC0415 - for mistakes only

    if not mistakes.rewritable or redact_uri(text) == "***":
        return None, ()
    found = rewritten(parts)
    return (None, ()) if found is None else (found.shown, found.left_out)


def check_parts(parts: UriParts) -> None:
    """Raise ConfigurationError for the first mistake in a URI taken apart. A URI of the Java client is none."""
    mistakes = Mistakes()
    mistakes.attempt(lambda: _check_family(parts), "address")
    found = _sorted_out(parts, mistakes)
    if mistakes:
        raise mistakes.error()
    _settings(parts, found, OptionsReader(found.given))


def _sorted_out(parts: UriParts, mistakes: Mistakes) -> SortedOptions:
    """Return the options that have a meaning, the policy options by pattern, and the Java client's own."""
    java = _family(parts) == "java"
    found = SortedOptions({}, {}, {})
    for name, value in _member_options(parts, mistakes, java=java):
        found.inapplicable[name] = value
    for written, value in parts.options:
        name = _canonical(written)
        prefix = next((one for one in (MAP_PREFIX, OUR_MAP_PREFIX) if name.startswith(one)), None)
        if prefix is not None:
            mistakes.attempt(lambda: _take_mapped(parts, found, prefix, written, value))  # noqa: B023
        elif name in OPTIONS and not (java and _is_qpid(name)):
            mistakes.attempt(lambda: _take(parts, found, name, value))  # noqa: B023
        elif is_java_only(name, failover=parts.failover) or (not java and is_qpid_only(name)):
            if java:
                found.inapplicable[written] = shown_value(written, value, quiet=parts.quiet)
            else:
                mistakes.add(_java_only(written, parts), "java", rewritable=True)
        else:
            mistakes.add(
                ConfigurationError(
                    f"unknown option {_named(written, parts)}{_hint(written)}",
                    option=written if name_repeats(written, quiet=parts.quiet) else None,
                )
            )
    return found


def _take_mapped(parts: UriParts, found: SortedOptions, prefix: str, written: str, value: str) -> None:
    """Keep a policy option of a pattern. Raises ConfigurationError."""
    pattern, dot, option = written[len(prefix) :].rpartition(".")
    if not dot or not pattern.strip():
        raise ConfigurationError(
            f"{prefix}<pattern>.<option> needs a pattern and an option", option=prefix[:-1]
        )
    key = mapped_option(prefix, option, quiet=parts.quiet)
    java = _family(parts) == "java"
    values = found.patterns.setdefault(_pattern(pattern, prefix, java=java, quiet=parts.quiet), {})
    if key in values:
        raise ConfigurationError(f"{prefix}<pattern>.{option} is given twice, in two spellings")
    values[key] = value_to_show(_canonical(written), value, quiet=parts.quiet)


def _take(parts: UriParts, found: SortedOptions, name: str, value: str) -> None:
    """Keep an option. Raises ConfigurationError where it is misplaced or given twice."""
    _check_place(parts, name, java=_family(parts) == "java")
    if name in found.given:
        raise ConfigurationError(f"{name} is given twice, in two spellings", option=name)
    found.given[name] = value_to_show(name, value, quiet=parts.quiet)


def _java_only(name: str, parts: UriParts) -> ConfigurationError:
    if name in QPID_NAMES:
        return ConfigurationError(f"{name} is Qpid JMS's name: write {QPID_NAMES[name]}", option=name)
    return ConfigurationError(
        f"{_named(name, parts)} is an option of the Java client only; remove it",
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


def _canonical(name: str) -> str:
    """Return the name, in `jms.` options with the last word's first letter lowered, as the reference does."""
    head, dot, last = name.rpartition(".")
    return head + dot + last[:1].lower() + last[1:] if name.startswith("jms.") else name


def _is_qpid(name: str) -> bool:
    """Whether only Qpid JMS knows the option: a Classic URI (`tcp://`) with it would not connect in Java."""
    return name.startswith("failover.") or name in (OUTCOME, "jms.redeliveryPolicy.maxRedeliveries")


def _check_place(parts: UriParts, name: str, *, java: bool) -> None:
    option = OPTIONS[name]
    if option.scope == "failover" and not parts.failover:
        raise ConfigurationError(
            f"{name} is misplaced: it belongs to a failover:(...)?{name}=... URI", option=name
        )
    # A Java URI is explained only, and its addresses are network addresses.
    schemes = {"stomp"} if java else {address.scheme for address in parts.addresses}
    # Others' adapters may have a use for any option.
    if not schemes & option.schemes and schemes <= SCHEMES.keys():
        *others, last = (f"{scheme}://" for scheme in SCHEMES if scheme in option.schemes)
        raise ConfigurationError(f"{name} needs a {', '.join(others)} or {last} address", option=name)


def _pattern(text: str, prefix: str, *, java: bool, quiet: bool) -> str:
    try:
        pattern = Destination.parse(text)
        # There such a pattern is text that matches nothing.
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
    # The other group's option of the same policy.
    other = {POLICY: OUR_POLICY, OUR_POLICY: POLICY}.get(head + dot, "") + last
    if other != last and other in OPTIONS:
        return f": write {other}"
    group = [option.rpartition(".")[2] for option in OPTIONS if dot and option.rpartition(".")[0] == head]
    if group:
        near = near_miss(last, group)
        return near.replace("'", f"'{head}.", 1) if near else f"; allowed: {', '.join(group)}"
    return near_miss(name, OPTIONS)


def near_option(name: str) -> str | None:
    """Return the option that an unknown name is closest to, as the error over it says; None: there is none."""
    hint = _hint(name)
    quoted = hint.partition("did you mean '")[2].partition("'")[0] or hint.partition(": write ")[2]
    return quoted if quoted in OPTIONS else None


def _credentials(parts: UriParts, read: OptionsReader) -> tuple[str | None, Secret | None]:
    inside = {(address.user, address.password) for address in parts.addresses if address.user is not None}
    if len(inside) > 1:
        raise ConfigurationError("the addresses of one failover: list must have the same credentials")
    user, password = read.text("jms.userName"), read.given.get("jms.password")
    if inside:
        if user is not None or password is not None:
            raise ConfigurationError(
                "credentials are given twice: before the host, and as jms.userName or jms.password",
                option="jms.userName",
            )
        user, password = inside.pop()
    return user, None if password is None else Secret(str(password))


def _credits(read: OptionsReader) -> tuple[int | None, int, int]:
    """Return the credits of queue, topic and durable topic consumers; None: auto. The reference cuts to 32767, too."""
    prefix = "jms.prefetchPolicy."
    specific = [name for name in read.given if name.startswith(prefix) and name != f"{prefix}all"]
    if specific and f"{prefix}all" in read.given:
        raise ConfigurationError(
            f"{prefix}all contradicts {specific[0]}: give one of them", option=f"{prefix}all"
        )

    def prefetch(name: str, default: int) -> int:
        return min(read.whole(prefix + name, default), _LARGEST_PREFETCH)

    every = prefetch("all", MOST_CREDIT)
    named = any(f"{prefix}{name}" in read.given for name in ("all", "queuePrefetch"))
    java = prefetch("queuePrefetch", every)
    own = read.given.get("redelivery.credit")
    if own == "auto" or (own is None and not named):
        # A topic gives each of its consumers every message: there a wide window takes nothing from the others.
        return None, prefetch("topicPrefetch", java), prefetch("durableTopicPrefetch", java)
    queue = _own_credit(read, java)
    return queue, prefetch("topicPrefetch", queue), prefetch("durableTopicPrefetch", queue)


def _own_credit(read: OptionsReader, default: int) -> int:
    name = "redelivery.credit"
    try:
        return OptionsReader(read.given).whole(name, default)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace(", not ", ", or auto, not ", 1), option=name) from None
