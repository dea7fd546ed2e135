"""`redelivery doctor` with real brokers: correct settings, each mistake by its name, and no message consumed."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.brokers import free_ports
from integration.peers import put
from redelivery.cli.checks.network import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.brokers import Broker

pytestmark = pytest.mark.ci("the doctor on each broker")

CERTIFICATES = Path(__file__).parents[1] / "tests" / "cli" / "certificates"
# A policy without a warning: a message is dead-lettered after 151 s.
PATIENT: dict[str, Any] = {"jms__redeliveryPolicy__redeliveryDelay": 30000}
# For connections without an answer.
HASTY: dict[str, Any] = {"redelivery__connectTimeout": 1500}


class Diagnosis:
    """Output of the doctor, which may ask where that makes a queue; `create=False`: it may not."""

    def __init__(self, uri: str, *args: str, create: bool = True) -> None:
        args = (*args, "--create") if create else args
        done = subprocess.run(
            [sys.executable, "-m", "redelivery.cli", "doctor", uri, *args, "--output", "json"],
            check=False, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.stderr == ""
        said: dict[str, Any] = json.loads(done.stdout)
        self.code: int = said["exit_code"]
        assert self.code == done.returncode
        rows = said["findings"]
        self.findings: list[tuple[str, str, str]] = [(r["level"], r["subject"], r["text"]) for r in rows]
        for secret in ("Traceback", "secret", "tester", "hunter2"):
            assert secret not in done.stdout

    def text(self, subject: str, level: str) -> str:
        """Return the text about a subject, at this level."""
        found = [text for each, about, text in self.findings if (each, about) == (level, subject)]
        assert found, self.findings
        return found[0]

    @property
    def levels(self) -> set[str]:
        """All levels in the output."""
        return {level for level, _, _ in self.findings}


def test_all_is_well(peer: tuple[Broker, str], unique_queue: str) -> None:
    """Correct settings have no failure or warning; a message on the queue is neither consumed nor flagged."""
    broker, protocol = peer
    put(broker, protocol, unique_queue)
    uri = broker.uri(protocol=protocol, **PATIENT)
    found = Diagnosis(uri, unique_queue, "--send", "--strict")
    assert (found.code, found.levels) == (0, {"ok", "note"}), found.findings
    name = {"brokerj": "qpid-broker-j"}.get(broker.name, broker.name)
    assert f"the broker is {NAMES[name]} {broker.version}" in found.text("log-in", "ok")
    assert f"{protocol.upper()} 1." in found.text("log-in", "ok")
    assert "came back" in found.text("send", "ok")
    stamps = protocol == "stomp" and name != "rabbitmq"
    assert "agrees" in found.text("clock", "ok") if stamps else "NTP" in found.text("clock", "note")
    asked = (name, protocol) != ("rabbitmq", "stomp")
    window = found.text(f"queue://{unique_queue}", "ok" if asked else "note")
    assert "credit: auto, begins with" in window
    assert "at most 1,000" in window
    sure = name not in ("rabbitmq", "qpid-broker-j")
    assert "takes messages of this user" in found.text("dead letters", "ok") if sure else True
    if name == "rabbitmq":
        assert "dead letters lack them" in found.text("copies", "note")
    with redelivery.connect(uri) as connection:
        message = connection.consumer(unique_queue).receive(timeout=60)
        assert message is not None
        assert (message.redelivered, message.broker_count or 0) == (False, 0)
        message.accept()


def test_a_wrong_password(peer: tuple[Broker, str], unique_queue: str) -> None:
    """A wrong password is a refused log-in: 77."""
    broker, protocol = peer
    uri = broker.uri(protocol=protocol).replace("jms.password=secret", "jms.password=hunter2%26wrong")
    found = Diagnosis(uri, unique_queue)
    assert found.code == 77
    assert "correct user name and password of the URI" in found.text("log-in", "FAIL")


def test_a_queue_without_permission(peer: tuple[Broker, str]) -> None:
    """A queue without permission is reported; over STOMP RabbitMQ is not asked."""
    broker, protocol = peer
    found = Diagnosis(broker.uri(protocol=protocol, **PATIENT), "denied.orders")
    if (broker.name, protocol) == ("rabbitmq", "stomp"):
        assert "not asked" in found.text("queue://denied.orders", "note")
        return
    assert found.code == 1
    assert "let this user consume from queue://denied.orders" in found.text("queue://denied.orders", "FAIL")


def test_a_dead_letter_queue_without_permission(peer: tuple[Broker, str], unique_queue: str) -> None:
    """A dead-letter queue without permission is reported; Broker-J reports it with the first message only."""
    broker, protocol = peer
    uri = broker.uri(protocol=protocol, redelivery__deadLetterDestination="denied.dlq", **PATIENT)
    found = Diagnosis(uri, unique_queue)
    if broker.name == "brokerj":
        assert "with the first message only" in found.text("dead letters", "note")
        return
    assert found.code == 1
    assert "let this user send to it" in found.text("dead letters", "FAIL")


def test_a_dead_letter_queue_that_is_not_there(brokerj: Broker, unique_queue: str) -> None:
    """A missing dead-letter queue is reported on Broker-J, which creates no queue for a link: 1."""
    uri = brokerj.uri(redelivery__deadLetterDestination="absent.dlq", **PATIENT)
    found = Diagnosis(uri, unique_queue)
    assert found.code == 1
    assert "make queue://absent.dlq" in found.text("dead letters", "FAIL")
    missing = Diagnosis(brokerj.uri(**PATIENT), "absent.orders")
    assert "or make the queue" in missing.text("queue://absent.orders", "FAIL")


@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_a_policy_that_is_longer_than_the_broker_allows(
    rabbitmq: Broker, protocol: str, unique_queue: str
) -> None:
    """A policy that is longer than RabbitMQ's consumer timeout is refused: 78; a limit of time makes it fit.

    Over AMQP a consumer of 4.3 asks for the time that it needs.
    """
    uri = rabbitmq.uri(protocol=protocol, redelivery__policy__delays="1000,1500000")
    found = Diagnosis(uri, unique_queue)
    if protocol == "amqp" and rabbitmq.release >= (4, 3):
        assert "FAIL" not in found.levels
        return
    assert found.code == 78
    assert "holds a message for 1501 s, but rabbitmq lets a consumer hold one for 1800 s" in found.text(
        "policy", "FAIL"
    )
    assert "FAIL" not in Diagnosis(f"{uri}&redelivery.policy.maximumElapsed=600000", unique_queue).levels


def test_the_port_of_the_other_protocol(broker: Broker) -> None:
    """The port of the other protocol is recognised, with the right URI: 69."""
    stomp, amqp = broker.ports["stomp"], broker.ports["amqp"]
    found = Diagnosis(broker.uri(protocol="amqp", port=stomp, **HASTY))
    assert (found.code, f"write stomp://127.0.0.1:{stomp}" in found.text("protocol", "FAIL")) == (69, True)
    found = Diagnosis(broker.uri(protocol="stomp", port=amqp, **HASTY))
    assert (found.code, f"write amqp://127.0.0.1:{amqp}" in found.text("protocol", "FAIL")) == (69, True)


def test_tls_where_there_is_none_and_none_where_there_is(broker: Broker) -> None:
    """TLS to a port without it, and the reverse, are each an error of one sentence: 69."""
    plain, encrypted = broker.ports["stomp"], broker.ports["stomp+ssl"]
    found = Diagnosis(broker.uri(tls=True, port=plain, **HASTY))
    assert (found.code, f"write stomp://127.0.0.1:{plain}" in found.text("protocol", "FAIL")) == (69, True)
    found = Diagnosis(broker.uri(port=encrypted, **HASTY))
    assert (found.code, f"write stomp+ssl://127.0.0.1:{encrypted}" in found.text("protocol", "FAIL")) == (
        69,
        True,
    )


def test_a_port_that_nothing_listens_on(broker: Broker) -> None:
    """A port without a server is one error: 69."""
    (port,) = free_ports(1)
    found = Diagnosis(broker.uri(port=port))
    assert (found.code, f"nothing listens on 127.0.0.1, port {port}" in found.text("tcp", "FAIL")) == (
        69,
        True,
    )


def test_openwire_is_recognised(activemq: Broker) -> None:
    """The port of OpenWire, the Java client's own protocol, is recognised."""
    found = Diagnosis(activemq.uri(port=activemq.ports["openwire"], **HASTY))
    assert (found.code, "speaks OpenWire" in found.text("protocol", "FAIL")) == (69, True)


def test_certificates(broker: Broker, unique_queue: str) -> None:
    """Certificates are reported as trusted, of an unknown authority, or not verified."""
    found = Diagnosis(broker.uri(tls=True, redelivery__tlsCaFile=broker.ca_pem, **PATIENT), unique_queue)
    assert (found.code, "the certificate is trusted" in found.text("tls", "ok")) == (0, True)
    found = Diagnosis(broker.uri(tls=True), unique_queue)
    assert (found.code, "redelivery.tlsCaFile" in found.text("tls", "FAIL")) == (69, True)
    found = Diagnosis(broker.uri(tls=True, redelivery__tlsVerify="false"), unique_queue)
    assert (found.code, "not verified" in found.text("tls", "warn")) == (0, True)


@contextmanager
def behind(port: int, certificate: str) -> Iterator[int]:
    """Serve TLS with a certificate in front of a broker's plain port, and forward the decrypted bytes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / f"{certificate}.pem", CERTIFICATES / "server.key")
    server = socket.create_server(("127.0.0.1", 0))

    def pour(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            return
        finally:
            target.close()

    def serve() -> None:
        while True:
            try:
                raw = server.accept()[0]
            except OSError:
                return
            try:
                peer = context.wrap_socket(raw, server_side=True)
            except OSError:
                raw.close()
                continue
            link = socket.create_connection(("127.0.0.1", port))
            for ends in ((peer, link), (link, peer)):
                threading.Thread(target=pour, args=ends, daemon=True).start()

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    with closing(server):
        yield server.getsockname()[1]
        # A blocked `accept` outlives `close`, and after a signal goes on with the next socket of that number.
        server.shutdown(socket.SHUT_RDWR)
        serving.join(10.0)
        assert not serving.is_alive()


def test_an_expired_certificate(broker: Broker, unique_queue: str) -> None:
    """An expired certificate of a trusted authority is reported with its date."""
    for certificate, code in (("valid", 0), ("expired", 69)):
        authority = CERTIFICATES / f"{certificate}.pem"
        with behind(broker.ports["stomp"], certificate) as port:
            uri = broker.uri(tls=True, port=port, redelivery__tlsCaFile=authority, **PATIENT)
            found = Diagnosis(uri, unique_queue)
        assert found.code == code, found.findings
        text = found.text("tls", "FAIL" if code else "ok")
        if code:
            assert "until 2025-01-01): have the broker's certificate renewed" in text
