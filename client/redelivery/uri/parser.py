"""Parser of connection URIs: every option is honoured, or refused; one error lists all mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery import registry
from redelivery.core.credit import MOST_CREDIT
from redelivery.errors import ConfigurationError
from redelivery.settings import Endpoint, Secret, Settings
from redelivery.uri.java_uris import Rewritten, rewritten
from redelivery.uri.option_table import OPTIONS
from redelivery.uri.options_reader import (
    OUTCOME,
    Mistakes,
    OptionsReader,
    breaker,
    dead_letters,
    failover,
    given_policies,
    ledger,
    of_rabbitmq,
    ordering,
    rate,
    scheduler,
    tls,
)
from redelivery.uri.schemes import JAVA_PORTS
from redelivery.uri.sorted_options import family_of, java_only, sorted_out
from redelivery.uri.syntax import redact_uri, split_uri

if TYPE_CHECKING:
    from redelivery.core.dead_lettering.dead_letter_strategy import DeadLetterMap
    from redelivery.uri.java_uris import Protocol
    from redelivery.uri.sorted_options import SortedOptions
    from redelivery.uri.syntax import UriParts

__all__ = ["parse_to_connect", "parse_uri", "redact_uri", "rewritten_uri"]

_LARGEST_PREFETCH = 32767


def parse_uri(text: str) -> Settings:
    """Read a connection URI. No I/O.

    Every option's name, values and default are in `redelivery.options`; durations are milliseconds. Raises
    ConfigurationError for an option that is unknown, unconvertible, misplaced, contradictory or
    senseless. One error lists all mistakes of the options (`errors`), and shows no user name or password.
    """
    return _read(text, connects=False)


def parse_to_connect(text: str, places: DeadLetterMap | None = None) -> Settings:
    """Read a connection URI as `parse_uri` does; a URI of the Java client is a mistake, too. No I/O.

    `places`: dead-letter strategies that are given beside the URI: options are checked against these.
    """
    return _read(text, connects=True, places=places)


def _read(text: str, *, connects: bool, places: DeadLetterMap | None = None) -> Settings:
    parts = split_uri(text)
    mistakes = Mistakes()
    settings = _collected(parts, mistakes, connects=connects, places=places)
    if settings is None:
        raise mistakes.error(*_suggestion(text, parts, mistakes))
    return settings


def _collected(
    parts: UriParts, mistakes: Mistakes, *, connects: bool, places: DeadLetterMap | None = None
) -> Settings | None:
    """Return the settings of a URI taken apart; None: it has mistakes, and all of them are added."""
    mistakes.attempt(lambda: _check_family(parts), "address")
    found = sorted_out(parts, mistakes)
    if connects:
        _check_connects(parts, found, mistakes)
    first = None
    if not mistakes:
        try:
            return _settings(parts, found, OptionsReader(found.given), places)
        except ConfigurationError as error:
            first = error
    # Again, to the end: the user is to see all mistakes.
    read = OptionsReader(found.given, mistakes)
    mistakes.attempt(lambda: _settings(parts, found, read, places))
    if not mistakes and first is not None:
        mistakes.add(first)
    return None


def _settings(
    parts: UriParts, found: SortedOptions, read: OptionsReader, places: DeadLetterMap | None
) -> Settings:
    """Return the settings. Raises ConfigurationError, or adds to the mistakes of `read`."""
    family = family_of(parts)
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
        ordering=read.part(lambda one: ordering(one, java=java)),
        user_name=user,
        password=password,
        failover=read.part(lambda one: failover(one, enabled=parts.failover)),
        tls=read.part(tls),
        send_timeout=read.seconds("redelivery.sendTimeout", 0.0) or None,
        scheduler=read.part(lambda one: scheduler(one, java=java)),
        ledger=read.part(ledger),
        inapplicable=found.inapplicable,
        rate=read.part(rate),
        **read.fields_of(Settings),
        **read.part(lambda one: of_rabbitmq(one, amqp=family == "amqp")),
        **read.part(breaker),
        **read.part(lambda one: dead_letters(one, found.places, places, quiet=parts.quiet)),
    )


def _check_family(parts: UriParts) -> None:
    families = {family_of(parts._replace(addresses=(address,))) for address in parts.addresses}
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
            mistakes.add(java_only(name, parts), "java", rewritable=True)


def _suggestion(text: str, parts: UriParts, mistakes: Mistakes) -> tuple[str | None, tuple[str, ...]]:
    """Return the URI that works instead, without credentials, and the options that it leaves for the user to correct.

    The URI is None where only the user can correct it.
    """
    if not mistakes.rewritable or redact_uri(text) == "***":
        return None, ()
    found = rewritten(parts, _mistakes_of)
    return (None, ()) if found is None else (found.shown, found.left_out)


def rewritten_uri(text: str, protocol: Protocol | None = None) -> Rewritten:
    """Return a URI of a Java client, or of ours, as one that connects from here, with notes. No I/O.

    Args:
        text: The URI.
        protocol: What to speak; None: what the URI speaks, and STOMP for OpenWire.

    Raises:
        ConfigurationError: It cannot be taken apart, or no URI says the same here.
    """
    parts = split_uri(text)
    found = rewritten(parts, _mistakes_of, protocol)
    if found is None:
        _read(text, connects=False)
        raise ConfigurationError("the URI has no counterpart here: its addresses must speak one protocol")
    return found


def _mistakes_of(parts: UriParts) -> list[ConfigurationError]:
    """Return the mistakes of a URI taken apart. A URI of the Java client is none."""
    mistakes = Mistakes()
    _collected(parts, mistakes, connects=False)
    return mistakes.ordered()


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

    def prefetch(name: str, default: int) -> int:
        return min(read.whole(prefix + name, default), _LARGEST_PREFETCH)

    every = prefetch("all", MOST_CREDIT)
    named = any(f"{prefix}{name}" in read.given for name in ("all", "queuePrefetch"))
    java = prefetch("queuePrefetch", every)
    own = read.given.get("redelivery.credit")
    automatic = own == "auto" or (own is None and not named)
    # A topic gives each of its consumers every message: there a wide window takes nothing from the others.
    queue = java if automatic else _own_credit(read, java)
    topic, durable = prefetch("topicPrefetch", queue), prefetch("durableTopicPrefetch", queue)
    specific = [name for name in read.given if name.startswith(prefix) and name != f"{prefix}all"]
    if specific and f"{prefix}all" in read.given:
        raise ConfigurationError(
            f"{prefix}all contradicts {specific[0]}: give one of them", option=f"{prefix}all"
        )
    return None if automatic else queue, topic, durable


def _own_credit(read: OptionsReader, default: int) -> int:
    name = "redelivery.credit"
    try:
        return OptionsReader(read.given).whole(name, default)
    except ConfigurationError as error:
        text = str(error).replace(", not ", ", or auto, not ", 1)
    read.refuse(ConfigurationError(text, option=name))
    return default
