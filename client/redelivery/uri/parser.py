"""Reading a connection URI: every option is honoured, or refused with one sentence that names it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redelivery.core.credit_pace import MOST_CREDIT
from redelivery.core.destination import Destination
from redelivery.core.policy.classic_wildcards import check_wildcards
from redelivery.errors import ConfigurationError, near_miss
from redelivery.settings import Endpoint, Secret, Settings
from redelivery.uri.breaker_options import breaker
from redelivery.uri.dead_letter_options import OUTCOME, dead_letters
from redelivery.uri.option_table import (
    JAVA_PORTS,
    MAP_PREFIX,
    OPTIONS,
    OUR_MAP_PREFIX,
    OUR_POLICY,
    POLICY,
    SCHEMES,
    is_java_only,
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
from redelivery.uri.repeatable import Masked, name_repeats, value_to_show
from redelivery.uri.syntax import UriParts, redact_uri, split_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["parse_uri", "redact_uri"]

_FAMILIES = {"stomp+ssl": "stomp", "amqps": "amqp"} | dict.fromkeys(JAVA_PORTS, "java")
_LARGEST_PREFETCH = 32767
_SECRET_NAME = re.compile(r"pass|user|secret|pwd|token|cred", re.IGNORECASE)


def parse_uri(text: str) -> Settings:
    """Read a connection URI. No I/O.

    Every option's name, values and default are in `redelivery.options`; durations are milliseconds. Raises
    ConfigurationError for an option that is unknown, unconvertible, misplaced, contradictory or
    senseless; the error names it and shows no user name or password.
    """
    parts = split_uri(text)
    family = _family(parts)
    given, patterns, inapplicable = _sorted_out(parts, java=family == "java")
    read = OptionsReader(given)
    policies = given_policies(given, patterns, quiet=parts.quiet)
    user, password = _credentials(parts, read)
    endpoints = tuple(Endpoint(a.scheme, a.host, a.port) for a in parts.addresses)
    queue, topic, durable = _credits(read)
    return Settings(
        scheme=endpoints[0].scheme,
        endpoints=endpoints,
        policies=policies,
        has_policies=bool(patterns)
        or any(OPTIONS[name].scope == "policy" for name in given if name != OUTCOME),
        credit=queue,
        topic_credit=topic,
        durable_topic_credit=durable,
        max_parked=read.whole_or_none("redelivery.maxParked"),
        ordering=ordering(read, java=family == "java"),
        client_id=read.text("jms.clientID"),
        user_name=user,
        password=password,
        failover=failover(read, enabled=parts.failover),
        tls=tls(read),
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
        scheduler=scheduler(read, java=family == "java"),
        ledger=ledger(read),
        inapplicable=inapplicable,
        rate=rate(read),
        **of_rabbitmq(read, amqp=family == "amqp"),
        **breaker(read),
        **dead_letters(read),
    )


def _family(parts: UriParts) -> str:
    """Return which client all the addresses are for; ConfigurationError if they differ."""
    families = [_FAMILIES.get(address.scheme, address.scheme) for address in parts.addresses]
    if len(set(families)) > 1:
        schemes = ", ".join(sorted({f"{address.scheme}://" for address in parts.addresses}))
        raise ConfigurationError(
            f"the addresses of one failover: list must speak one protocol, not {schemes}"
        )
    return families[0]


def _sorted_out(
    parts: UriParts, *, java: bool
) -> tuple[dict[str, str], dict[str, dict[str, str]], dict[str, str]]:
    """Return the options that have a meaning, the policy options by pattern, and the Java client's own."""
    given: dict[str, str] = {}
    patterns: dict[str, dict[str, str]] = {}
    inapplicable = dict(_member_options(parts, java=java))
    for written, value in parts.options:
        name = _canonical(written)
        shown = value_to_show(name, value, quiet=parts.quiet)
        prefix = next((one for one in (MAP_PREFIX, OUR_MAP_PREFIX) if name.startswith(one)), None)
        if prefix is not None:
            pattern, dot, option = written[len(prefix) :].rpartition(".")
            if not dot or not pattern.strip():
                raise ConfigurationError(
                    f"{prefix}<pattern>.<option> needs a pattern and an option", option=prefix[:-1]
                )
            key = mapped_option(prefix, option, quiet=parts.quiet)
            values = patterns.setdefault(_pattern(pattern, prefix, java=java, quiet=parts.quiet), {})
            if key in values:
                raise ConfigurationError(f"{prefix}<pattern>.{option} is given twice, in two spellings")
            values[key] = shown
        elif name in OPTIONS and not (java and _is_qpid(name)):
            _check_place(parts, name, java=java)
            if name in given:
                raise ConfigurationError(f"{name} is given twice, in two spellings", option=name)
            given[name] = shown
        elif is_java_only(name, failover=parts.failover):
            if not java:
                raise ConfigurationError(
                    f"{_named(written, parts)} is an option of the Java client only; it has no meaning here",
                    option=written if name_repeats(written, quiet=parts.quiet) else None,
                )
            inapplicable[written] = _shown_value(written, value, quiet=parts.quiet)
        else:
            raise ConfigurationError(
                f"unknown option {_named(written, parts)}{_hint(written)}",
                option=written if name_repeats(written, quiet=parts.quiet) else None,
            )
    return given, patterns, inapplicable


def _member_options(parts: UriParts, *, java: bool) -> Iterator[tuple[str, str]]:
    """Go through the options inside failover:(...): transport options of the Java client at most."""
    for address in parts.addresses:
        for name, value in address.options:
            if not (java and is_java_only(name, failover=False) and not name.startswith("jms.")):
                raise ConfigurationError(
                    f"{_named(name, parts)} is misplaced: options go behind the ) of failover:(...)",
                    option=name if name_repeats(name, quiet=parts.quiet) else None,
                )
            yield name, _shown_value(name, value, quiet=parts.quiet)


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
    return name if name_repeats(name, quiet=parts.quiet) else "in the URI (name not shown)"


def _hint(name: str) -> str:
    """Return the nearest right name, first among the options of the same group; else the whole group."""
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


def _shown_value(name: str, value: str, *, quiet: bool) -> str:
    masked = isinstance(value_to_show(name, value, quiet=quiet), Masked)
    return "***" if masked or _SECRET_NAME.search(name) else value


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
        return read.whole(name, default)
    except ConfigurationError as error:
        raise ConfigurationError(str(error).replace(", not ", ", or auto, not ", 1), option=name) from None
