"""Mistakes on the command line, against real brokers: one clear line, the documented exit code, no secret."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from integration.brokers import free_ports
from integration.proxy import LinkProxy

if TYPE_CHECKING:
    from pathlib import Path

    from integration.brokers import Broker

pytestmark = pytest.mark.ci("mistakes of the command line on real brokers: 8 s each")

FAILED, USAGE, UNREACHABLE, REFUSED, MISCONFIGURED = 1, 2, 69, 77, 78
COMMANDS = [("send", ["orders", "body"]), ("consume", ["orders", "--count", "1"])]


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str
    took: float


def run(command: str, uri: str, rest: list[str]) -> Ended:
    """Run `redelivery` with the URI in its environment."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "redelivery.cli", command, *rest],
        env={**os.environ, "REDELIVERY_URL": uri, "COLUMNS": "500"},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def check(ended: Ended, code: int, *words: str) -> None:
    """Check for one line with these words, without stdout, traceback and credentials."""
    assert ended.code == code, ended
    lines = ended.err.strip().splitlines()
    assert len(lines) == 1, ended.err
    assert ended.out == ""
    for word in words:
        assert word.lower() in lines[0].lower(), lines[0]
    for secret in ("Traceback", "secret", "tester", "hunter2"):
        assert secret not in ended.err, lines[0]


def login_refused(broker: Broker) -> str:
    """Return the broker's text for a wrong password."""
    return "access refused for user" if broker.name == "rabbitmq" else "password is invalid"


@pytest.mark.parametrize(("command", "rest"), COMMANDS)
def test_a_wrong_password(broker: Broker, command: str, rest: list[str]) -> None:
    """A wrong password ends the command with 77, without endless retries."""
    uri = broker.uri().replace(f"jms.password={broker.password}", "jms.password=hunter2")
    check(run(command, uri, rest), REFUSED, login_refused(broker), str(broker.stomp_port))


def test_no_login_at_all(broker: Broker) -> None:
    """A missing user ends the command like a wrong password."""
    check(run("send", broker.uri().partition("?")[0], ["orders", "x"]), REFUSED, login_refused(broker))


@pytest.mark.parametrize(("command", "rest"), COMMANDS)
def test_nobody_listens(command: str, rest: list[str]) -> None:
    """A port without a server ends the command with 69 and the address."""
    (port,) = free_ports(1)
    uri = f"stomp://tester:hunter2@127.0.0.1:{port}"
    check(run(command, uri, rest), UNREACHABLE, "connection refused", str(port))


def test_a_host_that_does_not_exist() -> None:
    """An unknown host ends the command with 69 and its name."""
    check(
        run("send", "stomp://no-such-host.invalid:61613", ["orders", "x"]),
        UNREACHABLE,
        "no-such-host.invalid",
    )


def test_a_certificate_that_is_not_trusted(broker: Broker) -> None:
    """A certificate that is not trusted ends the command with 69 and the word certificate."""
    check(run("send", broker.uri(tls=True), ["orders", "x"]), UNREACHABLE, "certificate is not trusted")


def test_a_certificate_of_another_host(broker: Broker) -> None:
    """A certificate of another host ends the command with 69, although its authority is trusted."""
    proxy = LinkProxy(broker.stomps_port, opaque=True)
    proxy.host = "127.0.0.2"
    with proxy:
        uri = broker.uri(tls=True, port=proxy.port, redelivery__tlsCaFile=broker.ca_pem)
        ended = run("send", uri.replace(broker.host, proxy.host), ["orders", "x"])
    check(ended, UNREACHABLE, "certificate", "127.0.0.2")


def test_a_file_of_authorities_that_is_not_there(broker: Broker, tmp_path: Path) -> None:
    """A missing file of authorities ends the command with 78, the option and the file."""
    uri = broker.uri(tls=True, redelivery__tlsCaFile=tmp_path / "none.pem")
    check(run("send", uri, ["orders", "x"]), MISCONFIGURED, "redelivery.tlsCaFile", "none.pem")


def test_the_wrong_port(broker: Broker) -> None:
    """STOMP or TLS to the port of another protocol ends the command with 69."""
    other = next(broker.ports[name] for name in ("openwire", "core", "amqp") if name in broker.ports)
    cases: list[tuple[str, str]] = [
        (broker.uri(port=broker.stomps_port), "port"),
        (broker.uri(tls=True, port=broker.stomp_port, redelivery__tlsVerify="false"), "TLS"),
        (broker.uri(port=other), "port"),
        (broker.uri(tls=True, port=other, redelivery__tlsVerify="false"), "TLS"),
    ]
    for uri, word in cases:
        if broker.name == "artemis" and uri == broker.uri(port=other):
            continue  # that acceptor has every protocol, including STOMP
        ended = run("send", f"{uri}&redelivery.connectTimeout=3000", ["orders", "x"])
        check(ended, UNREACHABLE, word, uri.partition("?")[0])
        assert ended.took < 30


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        ("send", ["denied.x", "body"]),
        ("consume", ["denied.x", "--count", "1"]),
        ("consume", ["orders", "--selector", "a = = b", "--count", "1"]),
    ],
)
def test_what_the_broker_refuses(broker: Broker, command: str, rest: list[str]) -> None:
    """A refusal ends the command with 1 and the broker's text about it; notes may come before and after.

    A selector on RabbitMQ is refused here, with 78: RabbitMQ would ignore it.
    """
    ended = run(command, broker.uri(), rest)
    (told,) = [line for line in ended.err.splitlines() if line.startswith("redelivery: ")]
    if "--selector" in rest and broker.name == "rabbitmq":
        check(ended._replace(err=told), MISCONFIGURED, "rabbitmq ignores selectors")
    else:
        check(ended._replace(err=told), FAILED, "a = = b" if "--selector" in rest else "denied.x")
    assert "dead-letter" not in told
    assert not any(word in ended.err for word in ("Traceback", "secret", "tester")), ended.err


OPTIONS: dict[str, Any] = {
    "redelivery__kredit": 5,
    "redelivery__credit": "many",
    "redelivery__deadLetter": "reject",
    "jms__redeliveryPolicy__maximumRedeliveries": -2,
    "redelivery__ledger": "/var/x.db",
}


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_options_that_make_no_sense(activemq: Broker, option: str) -> None:
    """A wrong option ends the command with 78 and its name, before any connection."""
    ended = run("send", activemq.uri(**{option: OPTIONS[option]}), ["orders", "x"])
    check(ended, MISCONFIGURED, option.replace("__", ".").rpartition(".")[2])
