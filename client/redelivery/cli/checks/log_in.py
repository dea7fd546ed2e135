"""Findings on a log-in: broker, version, protocol, heart-beats; or the reason of its failure. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.cli.checks.finding import fail, note, ok
from redelivery.cli.exit_codes import MISCONFIGURED, REFUSED
from redelivery.core.tested_versions import untested
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from redelivery.adapter import Agreed
    from redelivery.cli.checks.finding import Finding
    from redelivery.core.capabilities import Capabilities
    from redelivery.errors import RedeliveryError
    from redelivery.settings import Settings

__all__ = ["NAMES", "logged_in", "refused"]

# Measured with each broker: integration/test_frozen_client.py.
_IDLE = {
    "activemq": "transport.wireFormat.idleTimeout (ms) of its AMQP connector",
    "artemis": "amqpIdleTimeout (ms) of its AMQP acceptor",
    "qpid-broker-j": "qpid.port.heartbeatDelay (s) in the context of its port",
    "rabbitmq": "heartbeat (s) in its rabbitmq.conf",
}

NAMES = {
    "activemq": "ActiveMQ Classic",
    "artemis": "ActiveMQ Artemis",
    "qpid-broker-j": "Qpid Broker-J",
    "rabbitmq": "RabbitMQ",
}


def logged_in(settings: Settings, able: Capabilities, agreed: Agreed | None) -> list[Finding]:
    """Return that the log-in succeeded, with the broker's name and version."""
    user = "without a user name" if settings.user_name is None else "with the user name of the URI"
    protocol = "" if agreed is None else f"; {agreed.protocol}, {_beats(agreed)}"
    name = f"{NAMES.get(able.broker, able.broker)} {able.version}".rstrip()
    found = [ok("log-in", f"{user}; the broker is {name}{protocol}")]
    said = untested(able.broker, able.version)
    if said is not None:
        found.append(note("broker", f"{name} {said}"))
    if agreed is not None and agreed.protocol.startswith("AMQP"):
        found.append(_frozen(name, able.broker, agreed.sends))
    if able.not_delivered:
        lost = f"{name} does not deliver {able.not_delivered}, over this protocol"
        kept = "only its own dead-letter exchange keeps them (redelivery.deadLetter=ack)"
        found.append(note("copies", f"{lost}: handlers do not see them, and dead letters lack them; {kept}"))
    return found


def _frozen(name: str, broker: str, sends: float | None) -> Finding:
    """Return when a process that hangs as a whole loses its messages: over AMQP the broker alone decides."""
    until = (
        "its connection ends, for the broker asks for no heart-beats"
        if sends is None
        else f"the broker has missed some of its heart-beats, each {sends:g} s"
    )
    cure = (
        f"change {_IDLE[broker]}, not redelivery.heartbeat" if broker in _IDLE else "its own setting decides"
    )
    return note(
        "frozen process",
        f"over AMQP a process that freezes keeps its messages until {until}; on {name} {cure}",
    )


def _beats(agreed: Agreed) -> str:
    sends, expects = agreed.sends, agreed.expects
    if sends is None and expects is None:
        return "no heart-beats: a broken connection is seen late"
    if sends == expects:
        return f"heart-beats each {sends:g} s both ways"
    ours = "no heart-beats to the broker" if sends is None else f"heart-beats each {sends:g} s to the broker"
    return f"{ours}, {'none' if expects is None else f'each {expects:g} s'} from it"


def refused(settings: Settings, error: RedeliveryError) -> Finding:
    """Return why the broker refused the log-in, or why it cannot be used."""
    if not isinstance(error, AdapterError):
        return fail("broker", str(error), MISCONFIGURED)
    cure = (
        "add jms.userName=... and jms.password=... to the URI"
        if settings.user_name is None
        else "correct user name and password of the URI, or the rights of that user at the broker"
    )
    return fail("log-in", f"{error}: {cure}", REFUSED)
