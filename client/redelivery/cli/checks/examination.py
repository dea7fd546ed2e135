"""Order of all checks: each runs once those that it needs have passed.

A check that raises is a finding too: the doctor never ends with a traceback.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from redelivery.cli.checks import network, surroundings
from redelivery.cli.checks import network as network_findings
from redelivery.cli.checks.destination_check import look_at
from redelivery.cli.checks.finding import Finding, fail, note, ok
from redelivery.cli.checks.network import logged_in, refused
from redelivery.cli.checks.probe import message_and_back
from redelivery.cli.checks.visit import Visit
from redelivery.cli.exit_codes import INTERNAL, MISCONFIGURED
from redelivery.cli.formatting import credit_words
from redelivery.errors import ConfigurationError, RedeliveryError, TransportError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.settings import Endpoint, Settings

    Entered = tuple[Visit, Capabilities] | None

__all__ = ["examine"]

logger = logging.getLogger("redelivery")


def examine(
    uri: str, destinations: Sequence[str], clock: Clock, *, send: bool = False, create: bool = False
) -> Iterator[Finding]:
    """Yield the findings of all checks, in order, as they are made.

    Args:
        uri: Connection URI.
        destinations: Destinations that a consumer would consume.
        clock: Clock of the connection.
        send: True: one message may be sent, to `redelivery.doctor`.
        create: True: a question may make a queue that is missing.
    """
    try:
        yield from _examined(uri, destinations, clock, send=send, create=create)
    except Exception as error:
        logger.debug("a check failed", exc_info=error)
        what = f"a check failed: {type(error).__name__}: {error}"
        yield fail("doctor", f"{what}; run it with -v, and report it", INTERNAL)


def _examined(
    uri: str, destinations: Sequence[str], clock: Clock, *, send: bool, create: bool
) -> Iterator[Finding]:
    settings = yield from _uri(uri)
    if settings is None:
        return
    installed = surroundings.installed(settings.scheme)
    yield installed
    if installed.level != "FAIL":
        yield from _broker(settings, destinations, clock, send=send, create=create)
    yield surroundings.ledger(settings.ledger)
    if (files := surroundings.descriptors()) is not None:
        yield files


def _uri(uri: str) -> Generator[Finding, None, Settings | None]:
    """Yield the mistakes of the URI; return its settings, or None."""
    from redelivery.connection import connect  # noqa: PLC0415 - 20 ms
    from redelivery.uri.parser import redact_uri  # noqa: PLC0415

    try:
        # No I/O: only the checks before a connection.
        settings = connect(uri).settings
    except ConfigurationError as error:
        for text in error.errors:
            yield fail("uri", text, MISCONFIGURED)
        if error.suggestion is not None:
            yield note("uri", str(error).rpartition("; " if len(error.errors) == 1 else "\n")[2])
        return None
    options = redact_uri(uri).partition("?")[2]
    count = len(options.split("&")) if options else 0
    many = "no option" if not count else f"{count} option{'' if count == 1 else 's'}"
    yield ok("uri", f"{', '.join(map(str, settings.endpoints))}, {many}")
    return settings


def _broker(
    settings: Settings, destinations: Sequence[str], clock: Clock, *, send: bool, create: bool
) -> Iterator[Finding]:
    """Yield the findings on each address, then those on the destinations at the first one that accepts the log-in."""
    found: list[Finding] = []
    reached: Entered = None
    for endpoint in settings.endpoints:
        entered = yield from _held_back(_address(endpoint, settings, clock), found)
        if reached is None:
            reached = entered
        elif entered is not None:
            entered[0].close()
    # One address that serves is enough: findings on the others are warnings then.
    for finding in found:
        yield finding if reached is None else Finding("warn", finding.subject, finding.text)
    if reached is None:
        return
    visit, able = reached
    visit.create = create
    try:
        if send:
            yield from message_and_back(able, visit, clock)
        for destination in destinations:
            yield from look_at(destination, settings, able, visit)
        if not destinations:
            yield note(
                "destinations", "none given: what may be consumed, and where poison goes, was not looked at"
            )
        yield _breaker(settings)
        yield _credit(settings)
    finally:
        visit.close()


def _held_back(
    findings: Generator[Finding, None, Entered], failed: list[Finding]
) -> Generator[Finding, None, Entered]:
    """Yield findings, but add those that failed to `failed`; return the generator's value."""
    while True:
        try:
            finding = next(findings)
        except StopIteration as end:
            entered: Entered = end.value
            return entered
        if finding.level == "FAIL":
            failed.append(finding)
        else:
            yield finding


def _address(endpoint: Endpoint, settings: Settings, clock: Clock) -> Generator[Finding, None, Entered]:
    """Yield the findings on one address; return the visit and the broker's capabilities, or None."""
    if endpoint.port and not (yield from _network(endpoint, settings)):
        return None
    visit = Visit(settings, endpoint, clock)
    try:
        able = visit.open()
    except TransportError as error:
        yield network_findings.instead(endpoint, network.answering(endpoint), error)
        return None
    except RedeliveryError as error:
        yield refused(settings, error)
        return None
    yield from logged_in(settings, able, visit.agreed)
    if (
        plain := network_findings.plain_password(endpoint, password=settings.password is not None)
    ) is not None:
        yield plain
    return visit, able


def _network(endpoint: Endpoint, settings: Settings) -> Generator[Finding, None, bool]:
    """Yield name, connection and certificate of an address; return whether a log-in makes sense."""
    timeout = settings.connect_timeout
    try:
        named = network_findings.resolved(endpoint, network.addresses(endpoint))
    except (OSError, UnicodeError) as error:
        yield network_findings.no_name(endpoint, error)
        return False
    if named is not None:
        yield named
    try:
        yield network_findings.answers(endpoint, network.reach(endpoint, timeout))
    except OSError as error:
        yield network_findings.no_answer(endpoint, error, timeout)
        return False
    if not endpoint.tls:
        return True
    try:
        shaken = network.handshake(endpoint, settings.tls, timeout)
    except ConfigurationError as error:
        yield fail("tls", str(error), MISCONFIGURED)
        return False
    if shaken.error is not None and not shaken.der and (found := network.answering(endpoint)):
        yield network_findings.instead(endpoint, found, shaken.error)
        return False
    tls = network_findings.encrypted(endpoint, settings.tls, shaken, datetime.now(UTC))
    yield tls
    return tls.level != "FAIL"


def _breaker(settings: Settings) -> Finding:
    breaker = settings.breaker
    if breaker is None:
        return note(
            "breaker", "off: in an outage of a service each message is dead-lettered as its policy says"
        )
    named = f"{breaker.named} failures in a row of what Classifier().trip() names"
    others = (
        f", or {breaker.failures} of any kind of at least {breaker.messages} messages"
        if breaker.failures
        else ""
    )
    return ok("breaker", f"handling pauses, uncharged, after {named}{others}")


def _credit(settings: Settings) -> Finding:
    parked = settings.max_parked
    more = "" if parked is None else f", and {parked} parked ones"
    if settings.credit is None:
        return note(
            "credit",
            f"{credit_words(settings, None)} messages ahead{more}: more only while handlers are fast",
        )
    return note(
        "credit",
        f"each consumer takes up to {settings.credit} messages ahead{more}; a small redelivery.credit, or auto, shares "
        "a queue evenly",
    )
