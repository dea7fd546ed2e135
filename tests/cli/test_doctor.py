"""`redelivery doctor`: the whole command, log-ins, several addresses, and the probe message."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from redelivery import AdapterError, ConfigurationError, TransportError, registry
from redelivery.cli.checks import examination, network
from redelivery.cli.checks.network import Handshake
from redelivery.core.commands import Accept, Credit, Send, Subscribe, Unsubscribe

if TYPE_CHECKING:
    from tests.cli.doctor_script import Script

    from redelivery_memory import MemoryBroker

from tests.cli.doctor_script import AMQP, REFUSED, URI, levels, lines


def test_all_is_well(cli: Any, shop: MemoryBroker) -> None:
    """Each check has its line, in order; no message is taken, and none is sent."""
    uri = f"{shop.uri}?jms.redeliveryPolicy.redeliveryDelay=30000"
    ended = cli("doctor", uri, "orders", "topic://prices")
    assert (ended.code, ended.err) == (0, "")
    assert [subject for _, subject, _ in lines(ended.out)] == [
        "uri", "installed", "log-in", "queue://orders", "dead letters", "policy", "topic://prices", "dead letters",
        "policy", "breaker", "credit", "ledger", "files",
    ]  # fmt: skip
    assert ended.out.splitlines()[-1] == "none failed, no warnings"
    assert {message.broker_count for message in shop.messages("orders")} == {0}
    assert shop.depth("orders") == 3
    assert shop.depth("redelivery.doctor") == 0


def test_the_default_policy_passes_with_strict(cli: Any, shop: MemoryBroker) -> None:
    """A schedule of six seconds is a note: only the program's classifier decides whether it is short."""
    ended = cli("doctor", shop.uri, "orders", "--strict")
    assert (ended.code, levels(ended.out)["policy"], ended.out.splitlines()[-1]) == (
        0,
        "note",
        "none failed, no warnings",
    )


def test_a_warning_fails_with_strict(cli: Any, script: Script) -> None:
    """A warning alone is exit code 3 with --strict, and 0 without."""
    for strict, code in ((["--strict"], 3), ([], 0)):
        script.opening = [TransportError("b1 is closed"), None]
        ended = cli("doctor", "failover:(stomp://b1,stomp://b2)", "orders", *strict)
        assert (ended.code, levels(ended.out)["protocol"]) == (code, "warn")


def test_the_breaker_is_said(cli: Any, shop: MemoryBroker) -> None:
    """A finding says when handling pauses, or that it does not."""
    said = []
    for options in ("", "?redelivery.breaker=off"):
        found = {subject: text for _, subject, text in lines(cli("doctor", shop.uri + options, "orders").out)}
        said.append(found["breaker"])
    assert said[0] == (
        "handling pauses, uncharged, after 3 failures in a row of what Classifier().trip() names, or 200 of any kind "
        "of at least 100 messages"
    )
    assert said[1].startswith("off: ")


def test_json(cli: Any, shop: MemoryBroker) -> None:
    """Findings are one document with the exit code, or a line each."""
    found = json.loads(cli("doctor", shop.uri, "--strict", "--output", "json").out)
    assert found["exit_code"] == 0
    assert found["findings"][0] == {"level": "ok", "subject": "uri", "text": "memory://shop, no option"}
    rows = [json.loads(line) for line in cli("doctor", shop.uri, "--output", "jsonl").out.splitlines()]
    assert rows == found["findings"]
    assert any(row["subject"] == "destinations" and "none given" in row["text"] for row in rows)


def test_the_uri_from_the_environment(cli: Any, shop: MemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The URI may come from the environment."""
    monkeypatch.setenv("REDELIVERY_URL", shop.uri)
    assert levels(cli("doctor", "orders").out)["queue://orders"] == "ok"
    monkeypatch.delenv("REDELIVERY_URL")
    assert cli("doctor", "orders").code == 2


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("stomp://bob:hunter2@b1?redelivery.credit=no", "redelivery.credit must be a whole number"),
        ("tcp://bob:hunter2@b1", "OpenWire, of the Java client only"),
        ("stomp://bob:hunter2@b1?redelivery.sendToDlqIfMaxRetriesExceeded=false&jms.redeliveryPolicy.maximumRedeliveries=-1",
         "has no effect: no policy has a maximum"),
    ],
)  # fmt: skip
def test_a_uri_that_cannot_work(cli: Any, uri: str, said: str) -> None:
    """A URI that cannot work is refused without a connection, and no credential is shown."""
    ended = cli("doctor", uri, "orders")
    assert ended.code == 78
    assert said in ended.out
    assert [level for level, _, _ in lines(ended.out)] == (["FAIL", "note"] if "tcp:" in uri else ["FAIL"])
    assert "hunter2" not in ended.out + ended.err


def test_each_mistake_of_a_uri_is_a_finding(cli: Any) -> None:
    """Several mistakes of one URI are one FAIL each, and the URI that works is a note."""
    ended = cli("doctor", "tcp://bob:hunter2@b1?redelivery.credit=no&jms.useAsyncSend=true", "orders")
    assert [level for level, _, _ in lines(ended.out)] == ["FAIL", "FAIL", "FAIL", "note"]
    assert "this works without redelivery.credit: stomp://USER:PASSWORD@b1:61613" in ended.out
    assert "hunter2" not in ended.out + ended.err


def test_an_adapter_that_is_not_installed(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding names the package that is missing."""

    class Point:
        def load(self) -> Any:
            raise ModuleNotFoundError("No module named 'stomp'", name="stomp")

    monkeypatch.setattr(registry, "_installed", lambda: _Points([Point()]))
    ended = cli("doctor", "stomp://b1")
    assert (ended.code, "pip install 'redelivery[stomp]'" in ended.out) == (78, True)


class _Points(list[Any]):
    """Fake entry points."""

    def select(self, name: str) -> list[Any]:
        return list(self)


@pytest.mark.parametrize(
    ("errors", "code", "text"),
    [
        (
            [AdapterError("stomp://b1:61613: refused")],
            77,
            "FAIL  log-in         stomp://b1:61613: refused: correct user",
        ),
        (
            [TransportError("stomp://b1:61613: closed")],
            69,
            "FAIL  protocol       stomp://b1:61613: closed: give the port",
        ),
    ],
)
def test_a_log_in_that_fails(
    cli: Any, script: Script, errors: list[Exception | None], code: int, text: str
) -> None:
    """The exit code says why the log-in failed; this machine is still checked."""
    script.opening = errors
    ended = cli("doctor", URI, "orders")
    assert (ended.code, text in ended.out) == (code, True)
    assert {"ledger", "files"} <= levels(ended.out).keys()


@pytest.mark.parametrize(
    ("shaken", "answering", "code", "text"),
    [
        (Handshake("TLSv1.3"), "", 0, "ok    tls            TLSv1.3; the certificate is trusted, for b1"),
        (
            Handshake(error=ConnectionResetError("reset")),
            "stomp",
            69,
            "speaks stomp, not stomp+ssl: write stomp://b1:61614",
        ),
        (
            Handshake(error=ConnectionResetError("reset")),
            "",
            69,
            "FAIL  tls            b1, port 61614, makes no TLS",
        ),
        (
            Handshake(der=b"x", error=ConnectionResetError("reset")),
            "stomp",
            69,
            "FAIL  tls            b1, port 61614",
        ),
    ],
)
def test_tls(cli: Any, script: Script, shaken: Handshake, answering: str, code: int, text: str) -> None:
    """Where there is no TLS the doctor finds the protocol that answers; without TLS it tries no log-in."""
    script.shaken, script.answering = shaken, answering
    ended = cli("doctor", "stomp+ssl://bob:hunter2@b1", "orders")
    assert (ended.code, text in ended.out, script.opened) == (code, True, 0 if code else 1)


def test_a_file_of_certificates(cli: Any, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate file that cannot be used is a mistake of the URI."""

    def refuse(*_: object) -> None:
        raise ConfigurationError("redelivery.tlsCaFile=/x: cannot be used")

    monkeypatch.setattr(network, "handshake", refuse)
    ended = cli("doctor", "stomp+ssl://b1", "orders")
    assert (ended.code, levels(ended.out)["tls"], script.opened) == (78, "FAIL", 0)


@pytest.mark.parametrize(
    ("step", "error", "subject"),
    [("addresses", OSError(-2, "unknown"), "dns"), ("addresses", UnicodeError("label too long"), "dns"),
     ("reach", ConnectionRefusedError(), "tcp")],
)  # fmt: skip
def test_an_address_that_cannot_be_reached(
    cli: Any, script: Script, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception, subject: str
) -> None:
    """No log-in is tried at an address that cannot be reached."""

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(network, step, fails)
    ended = cli("doctor", "stomp://b1", "orders")
    assert (ended.code, levels(ended.out)[subject], script.opened) == (69, "FAIL", 0)


def test_several_addresses(cli: Any, script: Script) -> None:
    """If one address serves, findings on the others are warnings; if none does, they are failures."""
    uri = "failover:(stomp://b1,stomp://b2)"
    script.opening = [TransportError("b1 is closed"), None]
    ended = cli("doctor", uri, "orders", "--create")
    assert (ended.code, levels(ended.out)["protocol"], levels(ended.out)["queue://orders"]) == (
        0,
        "warn",
        "ok",
    )
    script.opening = [TransportError("b1 is closed"), AdapterError("b2 refuses")]
    assert cli("doctor", uri, "orders").code == 69
    closed = script.closed
    assert cli("doctor", uri).code == 0
    assert script.closed == closed + 2


def test_a_broker_that_does_not_answer(cli: Any, script: Script) -> None:
    """A question without an answer is a finding after the connect time-out."""
    script.silent = True
    ended = cli("doctor", URI, "orders", "--send", "--create")
    assert ended.code == 69
    assert ended.out.count("the broker did not confirm a consumer within 0.1 s") == 2


def test_a_broker_that_is_gone_meanwhile(cli: Any, script: Script) -> None:
    """A lost connection is opened once more for the next question."""
    script.refuses, script.loses = {"queue://a": REFUSED}, True
    script.opening = [None, TransportError("gone")]
    ended = cli("doctor", URI, "a", "b", "--create")
    assert "FAIL  queue://b      gone: run it again" in ended.out


def test_one_message_and_back(cli: Any, script: Script) -> None:
    """A message is sent only with --send; it expires after 60 s, and is acknowledged."""
    ended = cli("doctor", URI, "--send")
    assert "ok    send           a message to queue://redelivery.doctor was confirmed" in ended.out
    (sent,) = [command.message for command in script.commands if isinstance(command, Send)]
    assert (sent.destination, sent.persistent, sent.expires_at is None) == (
        "queue://redelivery.doctor",
        False,
        False,
    )
    assert [type(command) for command in script.commands] == [Subscribe, Send, Accept, Unsubscribe]
    assert levels(ended.out)["clock"] == "note"
    script.able = AMQP
    script.commands.clear()
    cli("doctor", URI, "--send")
    assert [type(command) for command in script.commands] == [Subscribe, Credit, Send, Accept, Unsubscribe]


@pytest.mark.parametrize(
    ("change", "level", "text"),
    [
        ({"delivers": False}, "warn", "did not deliver it within 0.01 s"),
        (
            {"refuses": {"send": REFUSED}},
            "FAIL",
            "was not confirmed: no permission: let this user use redelivery.doctor",
        ),
        (
            {"refuses": {"queue://redelivery.doctor": TransportError("cut")}},
            "FAIL",
            "cannot be consumed: cut",
        ),
    ],
)
def test_a_message_that_does_not_come_back(
    cli: Any, script: Script, change: dict[str, Any], level: str, text: str
) -> None:
    """A probe that is refused, or lost on the way, is a finding."""
    for name, value in change.items():
        setattr(script, name, value)
    ended = cli("doctor", URI, "--send")
    assert (levels(ended.out)["send"], text in ended.out) == (level, True)


def test_memory_has_no_selectors(cli: Any, shop: MemoryBroker) -> None:
    """On memory the probe has a queue of its own, because there are no selectors."""
    assert levels(cli("doctor", shop.uri, "--send").out)["send"] == "ok"


def test_nothing_ends_with_a_traceback(cli: Any, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a check is a finding, with an exit code of its own."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(examination, "logged_in", broken)
    ended = cli("doctor", URI, "orders")
    assert (ended.code, "a check failed: RuntimeError: a bug; run it with -v" in ended.out) == (70, True)
    assert "Traceback" not in ended.out + ended.err
