"""A refused log-in is reported as one, whatever the broker sends after it."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

import redelivery
from redelivery.adapter import Opening
from redelivery.clock import SystemClock
from redelivery_amqp.connection import AmqpConnection

SASL, AMQP = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"


def sasl_frame(body: bytes) -> bytes:
    """Return a frame of the SASL layer."""
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


MECHANISMS = sasl_frame(b"\x00\x53\x40\xc0\x08\x01\xa3\x05PLAIN")
REFUSED = sasl_frame(b"\x00\x53\x44\xc0\x03\x01\x50\x01")


@pytest.mark.parametrize("behind", [b"", AMQP])
def test_a_refusal_is_not_taken_for_a_lost_connection(behind: bytes) -> None:
    """A refusal with bytes of the next layer behind it, as from Artemis, is reported at once."""

    def refuse() -> None:
        accepted, _ = listening.accept()
        with accepted:
            accepted.recv(4096)
            accepted.sendall(SASL + MECHANISMS)
            accepted.recv(4096)
            accepted.sendall(REFUSED + behind)
            while accepted.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        done = pool.submit(refuse)
        uri = f"amqp://127.0.0.1:{listening.getsockname()[1]}?jms.userName=tester&jms.password=wr0ng&redelivery.connectTimeout=30000"
        with pytest.raises(redelivery.AdapterError, match="refused the log-in") as caught:
            redelivery.connect(uri).__enter__()
        done.result(60)
    assert "wr0ng" not in str(caught.value)
    assert caught.value.passes is False


@pytest.mark.parametrize("answer", [b"", b"ERROR\nversion:1.2\n\nnot AMQP\0"])
def test_the_port_of_another_protocol_is_suspected(answer: bytes) -> None:
    """A connection that is closed, or answered in another protocol, before the log-in asks for the right port."""

    def close() -> None:
        accepted, _ = listening.accept()
        with accepted:
            accepted.recv(4096)
            accepted.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        done = pool.submit(close)
        uri = f"amqp://127.0.0.1:{listening.getsockname()[1]}?redelivery.connectTimeout=30000"
        with pytest.raises(redelivery.TransportError, match="is this the port of another protocol"):
            redelivery.connect(uri).__enter__()
        done.result(60)


def test_heart_beats_that_the_broker_finds_too_often_are_a_wrong_option() -> None:
    """Broker-J's minimum of a second is an error of the option, which no reconnect repeats, and names the value."""
    settings = redelivery.parse_uri("amqp://h?redelivery.heartbeat=500")
    link = AmqpConnection(Opening(settings, settings.endpoints[0], 1, SystemClock()), lambda _: None)
    link._error = (
        "amqp:not-allowed",
        "Requested idle timeout of 500 is too low. The minimum supported timeout is1000",
    )
    refused = link._refusal()
    assert isinstance(refused, redelivery.ConfigurationError)
    assert refused.option == "redelivery.heartbeat"
    assert "give redelivery.heartbeat=1000 or more" in str(refused)
