"""The same brokers in containers: differences to a local process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from integration.brokers.containers import ServerContainer
from integration.peers import PEERS, put, take
from integration.raw_amqp import AmqpError, RawAmqp

if TYPE_CHECKING:
    from integration.brokers import Broker

pytestmark = pytest.mark.ci("brokers in containers, in a step of their own")


def test_a_durable_message_survives_a_kill(contained: Broker) -> None:
    """A broker has the same data and ports after `docker kill` and `docker start`, over each protocol."""
    protocols = [protocol for name, protocol in PEERS if name == contained.name]
    for protocol in protocols:
        put(contained, protocol, f"kept.{protocol}", protocol.encode())
    ports, pid = dict(contained.ports), contained.pid
    contained.kill()
    assert not contained.running
    contained.start()
    assert (contained.ports, contained.pid != pid) == (ports, True)
    for protocol in protocols:
        assert take(contained, protocol, f"kept.{protocol}") == protocol.encode()


def test_its_ports_are_published_on_this_machine_only(contained: Broker) -> None:
    """The ports of a container are open on this machine only."""
    assert isinstance(contained.server, ServerContainer)
    published = contained.server.published()
    assert published == {contained.ports[service]: "127.0.0.1" for service in contained.services}


def test_tls_through_a_published_port(contained: Broker) -> None:
    """The certificate is valid for the name that clients use outside of the container."""
    with RawAmqp(contained, ca=contained.ca_pem) as secure:
        secure.send("sealed", b"sealed")
    assert take(contained, "amqp", "sealed") == b"sealed"


def test_a_frozen_link_goes_on(contained: Broker) -> None:
    """A frozen container accepts no message after `docker pause`, and all after `docker unpause`."""
    with RawAmqp(contained) as raw:
        raw.declare("frozen")
        contained.pause()
        raw.connection.timeout = 0.5
        with pytest.raises(AmqpError):
            raw.send("frozen", b"too early")
        raw.connection.timeout = 60.0
        contained.resume()
    put(contained, "amqp", "frozen", b"later")
    assert take(contained, "amqp", "frozen") is not None
