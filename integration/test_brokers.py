"""The test brokers themselves, and the Java client."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import needs

import redelivery
from integration.availability import fetched
from integration.brokers import ALL_BROKERS, BROKERS, Artemis
from integration.eventually import eventually
from integration.peers import PEERS, put, take
from integration.program import Program
from integration.raw_amqp import AmqpError, RawAmqp
from integration.raw_stomp import ConnectFailed, RawStomp

if TYPE_CHECKING:
    from integration.brokers import Broker
    from integration.conftest import Session

pytestmark = pytest.mark.ci("the brokers of the tests themselves: starts, kills, ports")


CLIENTS = [(name, client) for name in sorted(BROKERS) for client in BROKERS[name].java_clients]
TLS = [(name, service) for name in sorted(BROKERS) for service in BROKERS[name].services if "+ssl" in service]


@pytest.mark.parametrize("kind", ["text", "bytes"])
@pytest.mark.parametrize(("name", "client"), CLIENTS)
def test_java_client_gives_back_what_it_sent(
    session: Session, name: str, client: str, unique_queue: str, kind: str
) -> None:
    """A message of the Java client keeps body, kind, properties and headers through the broker."""
    broker = session.broker(name)
    java = session.java(broker, client)
    body = "Grüße\n".encode() if kind == "text" else b"\x00\xff\r\n:"
    java.send(
        unique_queue,
        body,
        kind=kind,
        properties={"flag": True, "count": 3, "ratio": 0.5, "name": "ü"},
        correlation_id="c-1",
        priority=7,
        type="order",
    )
    if broker.browsable:
        assert java.count(unique_queue) == 1
    (seen,) = java.drain(unique_queue, expected=1)
    assert (seen.kind, seen.body, seen.persistent) == (kind, body, True)
    assert {"flag": True, "count": 3, "ratio": 0.5, "name": "ü"}.items() <= seen.properties.items()
    assert (seen.correlation_id, seen.priority, seen.type) == ("c-1", 7, "order")
    assert java.drain(unique_queue, timeout=0.2) == []


@pytest.mark.own_broker("kills it")
def test_a_durable_message_survives_a_kill(peer: tuple[Broker, str], unique_queue: str) -> None:
    """A broker has the same data and the same ports after SIGKILL and a restart."""
    broker, protocol = peer
    put(broker, protocol, unique_queue, b"kept")
    ports, pid = dict(broker.ports), broker.pid
    broker.kill()
    assert not broker.running
    broker.start()
    assert (broker.ports, broker.pid != pid) == (ports, True)
    assert take(broker, protocol, unique_queue) == b"kept"


@pytest.mark.parametrize("login", [("tester", "wrong"), ("", ""), ("guest", "guest")])
def test_any_other_login_is_refused(peer: tuple[Broker, str], login: tuple[str, str]) -> None:
    """Any other log-in is refused: without this, tests of a log-in would prove nothing."""
    broker, protocol = peer
    if protocol == "stomp":
        raw = RawStomp(broker)
        with pytest.raises(ConnectFailed):
            raw.connect(*login)
        eventually(lambda: raw.errors, message="an ERROR; stomp.py raises before it calls its listeners")
    else:
        with pytest.raises(AmqpError):
            RawAmqp(broker, *login)


def test_an_anonymous_amqp_connection_is_refused(any_broker: Broker) -> None:
    """An AMQP connection with the anonymous mechanism is refused."""
    with pytest.raises(AmqpError):
        RawAmqp(any_broker, mechanism="ANONYMOUS")


@pytest.mark.parametrize(("name", "service"), TLS)
def test_tls_with_the_brokers_certificate(session: Session, name: str, service: str) -> None:
    """The TLS port serves a name and an address for clients that trust `ca_pem`, and no others."""
    broker = session.broker(name)
    for trusted in (True, False):
        context = ssl.create_default_context(cafile=broker.ca_pem if trusted else None)
        for host in ("localhost", broker.host):
            assert _handshake(context, broker, broker.ports[service], host) == trusted


def _handshake(context: ssl.SSLContext, broker: Broker, port: int, name: str) -> bool:
    with socket.create_connection((broker.host, port), timeout=30.0) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=name):
                return True
        except ssl.SSLCertVerificationError:
            return False


def test_amqp_over_tls(any_broker: Broker, unique_queue: str) -> None:
    """A message that is sent over TLS is received without TLS."""
    with RawAmqp(any_broker, ca=any_broker.ca_pem) as secure:
        secure.send(unique_queue, b"sealed")
    assert take(any_broker, "amqp", unique_queue) == b"sealed"


@pytest.mark.own_broker("freezes it")
@pytest.mark.parametrize("name", [name for name, protocol in PEERS if protocol == "stomp"])
def test_a_frozen_stomp_link_goes_on(session: Session, name: str, unique_queue: str) -> None:
    """A frozen STOMP connection gets no answer; after resume it gets all, and messages sent meanwhile are there."""
    broker = session.broker(name)
    with RawStomp(broker) as raw:
        broker.pause()
        raw.connection.send(broker.destination(unique_queue), b"x", headers=broker.send_headers)
        raw.connection.begin("t", headers={"receipt": "frozen"})
        with pytest.raises(AssertionError, match="RECEIPT"):
            raw.confirmed("frozen", timeout=0.5)
        broker.resume()
        raw.confirmed("frozen")
    assert take(broker, "stomp", unique_queue) == b"x"


@pytest.mark.own_broker("freezes it")
def test_a_frozen_amqp_link_goes_on(any_broker: Broker, unique_queue: str) -> None:
    """A frozen AMQP connection gets no outcome; after resume it gets all, also for messages sent meanwhile."""
    with RawAmqp(any_broker) as raw:
        raw.declare(unique_queue)
        any_broker.pause()
        raw.connection.timeout = 0.5
        with pytest.raises(AmqpError):
            raw.send(unique_queue, b"too early")
        raw.connection.timeout = 60.0
        any_broker.resume()
    put(any_broker, "amqp", unique_queue, b"later")
    assert take(any_broker, "amqp", unique_queue) is not None


def test_servers_die_with_the_test_run(tmp_path: Path) -> None:
    """A server ends at SIGKILL of the program that started it."""
    code = (
        "import sys; from pathlib import Path; from integration.brokers.process import ServerProcess;"
        "s = ServerProcess(['sh', '-c', 'echo READY; exec tail -f /dev/null'], log=Path(sys.argv[1]),"
        " ready='READY'); s.start(); print(s.pid, flush=True); sys.stdin.read()"
    )
    root = Path(__file__).resolve().parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        os.kill(pid, 0)
        starter.send_signal(signal.SIGKILL)
        eventually(lambda: _gone(pid), message=f"process {pid} is gone")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_broker_by_hand_ends_at_a_signal(unique_queue: str, end: signal.Signals) -> None:
    """`python -m integration.brokers NAME` prints usable URIs, and its end ends the broker."""
    fetched(Artemis)
    root = Path(__file__).resolve().parent.parent
    with Program(["-m", "integration.brokers", "artemis"], folder=root) as program:
        # A JVM on a busy machine.
        program.prints("amqp://", 240)
        uris = [line for line in program.output.splitlines() if line.startswith(("stomp://", "amqp://"))]
        assert len(uris) == 2
        with redelivery.connect(uris[0]) as connection:
            connection.send(unique_queue, "by hand")
            with connection.consumer(unique_queue) as consumer:
                message = consumer.receive(timeout=10)
                assert message is not None
                message.accept()
        program.process.send_signal(end)
        assert program.process.wait(60) == 0
        with pytest.raises(redelivery.TransportError), redelivery.connect(uris[0]):
            pass


def _gone(pid: int) -> bool:
    # If no process reaps orphans, a dead process stays as a zombie.
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


def test_every_broker_can_be_required() -> None:
    """Each broker is a valid name in the environment."""
    assert sorted(ALL_BROKERS) == sorted(needs.BROKERS)
