"""Findings of the doctor's checks, and the exit code."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redelivery import AdapterError, ConfigurationError, RedeliveryPolicy, TransportError, parse_uri
from redelivery.adapter import Agreed
from redelivery.cli.checks.destination_check import schedule
from redelivery.cli.checks.finding import exit_code, fail, note, ok, summary, warn
from redelivery.cli.checks.network import (
    Answer,
    Handshake,
    answers,
    encrypted,
    instead,
    logged_in,
    no_answer,
    no_name,
    plain_password,
    refused,
    resolved,
    validity,
)
from redelivery.cli.checks.probe import clock_of
from redelivery.core.capabilities import Capabilities
from redelivery.settings import Endpoint, TlsSettings

CERTIFICATES = Path(__file__).parent / "certificates"
STOMP = Endpoint("stomp", "b1", 61613)
STOMPS = Endpoint("stomp+ssl", "b1", 61614)


def der(name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert((CERTIFICATES / f"{name}.pem").read_text())


VALID = der("valid")


@pytest.mark.parametrize(
    ("findings", "code", "strictly", "said"),
    [
        ([ok("a", ""), note("b", "")], 0, 0, "none failed, no warnings"),
        ([warn("a", "")], 0, 3, "none failed, 1 warning"),
        ([warn("a", ""), fail("b", "", 77), fail("c", "", 1)], 77, 77, "2 failed, 1 warning"),
        ([fail("a", ""), warn("b", ""), warn("c", "")], 1, 1, "1 failed, 2 warnings"),
    ],
)
def test_the_first_failure_is_the_exit_code(findings: Any, code: int, strictly: int, said: str) -> None:
    """The first FAIL is the exit code; without one it is 0, or 3 for a warning with --strict."""
    assert (exit_code(findings), exit_code(findings, strict=True)) == (code, strictly)
    assert summary(findings) == said


def test_a_line_has_its_columns() -> None:
    """A line has level, subject and sentence."""
    assert fail("tcp", "nothing listens").line == "FAIL  tcp            nothing listens"


def test_a_certificate_says_how_long_it_is_valid() -> None:
    """The dates of a certificate are read from its bytes, trusted or not."""
    found = validity(der("expired"))
    assert found == (datetime(2024, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC))
    assert validity(VALID) is not None


def value(tag: int, *content: bytes) -> bytes:
    inside = b"".join(content)
    return bytes([tag, len(inside)]) + inside


@pytest.mark.parametrize("version", [b"", value(0xA0, value(2, b"\x02"))])
def test_certificates_of_each_version(version: bytes) -> None:
    """A certificate of version 1 has no version field; years have two digits before 2050, and four from then on."""
    dates = value(0x30, value(0x17, b"990102030405Z"), value(0x18, b"20500102030405Z"))
    signed = value(0x30, version, value(2, b"\x01"), value(0x30), value(0x30), dates)
    assert validity(value(0x30, signed)) == (
        datetime(1999, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2050, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
    wrong = value(0x30, value(0x30, value(2, b"\x01"), value(0x30), value(0x30), value(2, b"\x01")))
    assert validity(wrong) is None


@given(data=st.binary(max_size=80), at=st.integers(0, len(VALID) - 1), byte=st.integers(0, 255))
def test_what_is_no_certificate_has_no_dates(data: bytes, at: int, byte: int) -> None:
    """Any bytes are a certificate or none; nothing is raised."""
    assert validity(data) is None
    assert validity(VALID[:at]) is None
    validity(VALID[:at] + bytes([byte]) + VALID[at + 1 :])


def test_a_name_and_its_addresses() -> None:
    """An address instead of a name has no finding on DNS."""
    found = resolved(STOMP, ["10.0.0.7", "::1"])
    assert found is not None
    assert found.text == "b1 is 10.0.0.7, ::1"
    assert resolved(Endpoint("stomp", "10.0.0.7", 1), ["10.0.0.7"]) is None
    failed = no_name(STOMP, socket.gaierror(-2, "Name or service not known"))
    assert (failed.code, failed.text.partition(":")[0]) == (
        69,
        "b1 has no address (Name or service not known)",
    )


def test_what_answers() -> None:
    """The finding has the time, and the address of a name."""
    assert answers(STOMP, Answer("10.0.0.7", 0.003)).text == "b1 (10.0.0.7), port 61613, answers in 3 ms"
    assert (
        answers(Endpoint("amqp", "::1", 5672), Answer("::1", 0.0)).text == "::1, port 5672, answers in 0 ms"
    )


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            ConnectionRefusedError(),
            "start the broker, correct the port (stomp is usually on 61613), or switch",
        ),
        (TimeoutError(), "does not answer within 10 s: the host is down, or a firewall"),
        (OSError(113, "No route to host"), "cannot be reached (No route to host): look at the route"),
    ],
)
def test_nothing_answers(error: OSError, text: str) -> None:
    """Each reason of a failed connection has its remedy."""
    found = no_answer(Endpoint("stomp", "b1", 1), error, 10.0)
    assert (found.level, found.code) == ("FAIL", 69)
    assert text in found.text
    assert "usually" not in no_answer(STOMP, ConnectionRefusedError(), 10.0).text


def distrust(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize(
    ("shaken", "level", "text"),
    [
        (Handshake("TLSv1.3", VALID), "ok", "TLSv1.3; the certificate is trusted, for b1, and valid until 20"),
        (Handshake("TLSv1.3"), "ok", "and valid"),
        (Handshake(der=der("expired"), error=distrust(10, "certificate has expired")), "FAIL",
         "certificate has expired (valid until 2025-01-01): have the broker's certificate renewed"),
        (Handshake(der=VALID, error=distrust(18, "self-signed certificate")), "FAIL", "redelivery.tlsCaFile"),
        (Handshake(der=VALID, error=distrust(20, "unable to get local issuer certificate")), "FAIL", "tlsCaFile"),
        (Handshake(der=VALID, error=distrust(62, "Hostname mismatch, certificate is not valid for 'b1'.")), "FAIL",
         "give the host by a name that the certificate has"),
        (Handshake(der=VALID, error=distrust(99, "something else")), "FAIL", "the clock of this machine"),
        (Handshake(error=ConnectionResetError("reset")), "FAIL", "makes no TLS connection (reset): give the port"),
    ],
)  # fmt: skip
def test_certificates(shaken: Handshake, level: str, text: str) -> None:
    """A finding says what is wrong with a certificate, until when it is valid, and what to do."""
    found = encrypted(STOMPS, TlsSettings(), shaken, datetime(2026, 1, 1, tzinfo=UTC))
    assert (found.level, found.code) == (level, 69 if level == "FAIL" else 0)
    assert text in found.text


@pytest.mark.parametrize(
    ("days", "text"), [(13, "ends in 13 days"), (0, "ends in 0 days"), (-3, "has ended on 20")]
)
def test_a_certificate_that_ends_soon_is_a_warning(days: int, text: str) -> None:
    """A certificate that ends within two weeks is a warning, verified or not."""
    known = validity(VALID)
    assert known is not None
    now = known.ends - timedelta(days=days, hours=1 if days >= 0 else -1)
    found = encrypted(STOMPS, TlsSettings(verify=False), Handshake("TLSv1.3", VALID), now)
    assert (found.level, text in found.text) == ("warn", True)


def test_a_certificate_that_is_not_verified_is_a_warning() -> None:
    """A certificate that is not verified is a warning: a host in between could read the password."""
    found = encrypted(
        STOMPS, TlsSettings(verify=False), Handshake("TLSv1.3", VALID), datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert (found.level, "remove redelivery.tlsVerify=false" in found.text) == ("warn", True)


@pytest.mark.parametrize(
    ("answering", "text"),
    [
        ("amqp", "b1, port 61613 speaks amqp, not stomp: write amqp://b1:61613, or give the port"),
        ("stomp+ssl", "write stomp+ssl://b1:61613"),
        (
            "openwire",
            "speaks OpenWire, the Java client's protocol: give the port that the broker has for stomp",
        ),
        ("amqp-0-9-1", "enable the plugin rabbitmq_amqp1_0"),
        ("http", "web console"),
        ("tls", "speaks TLS, and neither"),
        ("stomp", "no: look at the broker's log"),
        ("", "no: give the port that the broker has for stomp"),
    ],
)
def test_another_protocol_answers(answering: str, text: str) -> None:
    """The protocol that answers is named, with the URI for it."""
    found = instead(STOMP, answering, TransportError("no"))
    assert (found.level, found.code, text in found.text) == ("FAIL", 69, True)
    assert "amqp://[::1]:1" in instead(Endpoint("stomp", "::1", 1), "amqp", TransportError("no")).text


@pytest.mark.parametrize(
    ("uri", "warned"),
    [
        ("stomp://u:pass@b1", "use stomp+ssl://"),
        ("amqp://u:pass@b1", "use amqps://"),
        ("amqps://u:pass@b1", None),
        ("stomp://b1", None),
        ("stomp://u:pass@127.0.0.1", None),
        ("memory://b1", None),
    ],
)
def test_a_password_in_clear(uri: str, warned: str | None) -> None:
    """An unencrypted password is a warning where it leaves this machine."""
    settings = parse_uri(uri)
    found = plain_password(settings.endpoints[0], password=settings.password is not None)
    assert (found is None) is (warned is None)
    if found is not None and warned is not None:
        assert (found.level, warned in found.text) == ("warn", True)


def test_a_log_in() -> None:
    """The finding has broker, version, protocol and heart-beats, and no user name."""
    able = Capabilities("artemis", version="2.40.0")
    (found,) = logged_in(parse_uri("stomp://bob:x@b1"), able, Agreed("STOMP 1.2", 10.0, 10.0))
    assert found.text == (
        "with the user name of the URI; the broker is ActiveMQ Artemis 2.40.0; STOMP 1.2, "
        "heart-beats each 10 s both ways"
    )
    (found,) = logged_in(parse_uri("memory://x"), Capabilities("memory"), None)
    assert found.text == "without a user name; the broker is memory"


@pytest.mark.parametrize(
    ("version", "text"),
    [("2.99.1", "ActiveMQ Artemis 2.99.1 is newer than every tested version, and is treated as 2.56.0"),
     ("2.41.0", "2.41.0 was not tested itself; 2.40.0 and 2.56.0 were"),
     ("2.4.0", "ActiveMQ Artemis 2.4.0 is older than every tested version"),
     ("", "ActiveMQ Artemis reports no version, and is treated as 2.56.0"), ("2.40.9", None)],
)  # fmt: skip
def test_a_version_that_is_not_tested_is_a_note(version: str, text: str | None) -> None:
    """A version that is not tested is a note."""
    _, *others = logged_in(parse_uri("stomp://b1"), Capabilities("artemis", version=version), None)
    assert [finding.level for finding in others] == ([] if text is None else ["note"])
    assert text is None or text in others[0].text


def test_what_no_copy_can_have_is_a_note() -> None:
    """Headers that a broker does not deliver over a protocol are a note: no handler and no dead letter has them."""
    able = Capabilities("rabbitmq", version="3.10.8", not_delivered="lists in headers")
    _, found = logged_in(parse_uri("stomp://b1"), able, None)
    assert (found.level, found.subject) == ("note", "copies")
    assert "RabbitMQ 3.10.8 does not deliver lists in headers, over this protocol" in found.text


@pytest.mark.parametrize(
    ("agreed", "text"),
    [
        (Agreed("STOMP 1.2"), "no heart-beats: a broken connection is seen late"),
        (Agreed("AMQP 1.0", None, 10.0), "no heart-beats to the broker, each 10 s from it"),
        (Agreed("AMQP 1.0", 7.5, 10.0), "heart-beats each 7.5 s to the broker, each 10 s from it"),
        (Agreed("STOMP 1.2", 7.5, None), "heart-beats each 7.5 s to the broker, none from it"),
    ],
)
def test_heart_beats(agreed: Agreed, text: str) -> None:
    """Heart-beats are shown for each direction, as agreed."""
    assert logged_in(parse_uri("stomp://b1"), Capabilities("x"), agreed)[0].text.endswith(text)


@pytest.mark.parametrize(
    ("broker", "agreed", "text"),
    [
        ("activemq", Agreed("STOMP 1.2", 10.0, 10.0), None),
        ("activemq", Agreed("AMQP 1.0", 15.0, 10.0),
         "has missed some of its heart-beats, each 15 s; on ActiveMQ Classic 6.1.7 change transport.wireFormat.idle"),
        ("qpid-broker-j", Agreed("AMQP 1.0", None, 10.0),
         "its connection ends, for the broker asks for no heart-beats; on Qpid Broker-J 6.1.7 change qpid.port.heart"),
        ("another", Agreed("AMQP 1.0", 15.0, 10.0), "each 15 s; on another 6.1.7 its own setting decides"),
    ],
)  # fmt: skip
def test_how_long_a_frozen_process_keeps_its_messages(broker: str, agreed: Agreed, text: str | None) -> None:
    """Over AMQP a note says how long, and which setting of the broker changes that; over STOMP an option does."""
    found = logged_in(parse_uri("stomp://b1"), Capabilities(broker, version="6.1.7"), agreed)
    notes = [finding for finding in found if finding.subject == "frozen process"]
    assert [finding.level for finding in notes] == ([] if text is None else ["note"])
    assert text is None or text in notes[0].text


def test_a_refused_log_in() -> None:
    """A refusal of the broker is 77, a broker that is not supported 78."""
    known, unknown = parse_uri("stomp://bob:hunter2@b1"), parse_uri("stomp://b1")
    error = AdapterError("refused")
    assert (refused(known, error).code, "correct user name and password" in refused(known, error).text) == (
        77,
        True,
    )
    assert refused(unknown, error).text == "refused: add jms.userName=... and jms.password=... to the URI"
    found = refused(known, ConfigurationError("not supported yet"))
    assert (found.subject, found.code) == ("broker", 78)


FOREVER = Capabilities("x")
RABBIT = Capabilities("rabbitmq", max_hold=1800.0)


@pytest.mark.parametrize(
    ("policy", "able", "level", "text"),
    [
        (RedeliveryPolicy(), FOREVER, "note", "up to 6 s, dead after 7 deliveries: if a service"),
        (RedeliveryPolicy(redelivery_delay=30), FOREVER, "ok", "up to 2 min 31 s, dead after 7 deliveries"),
        (RedeliveryPolicy(redelivery_delay=30), RABBIT, "ok", "rabbitmq lets it be held for 24 min"),
        (RedeliveryPolicy(maximum_redeliveries=-1), FOREVER, "note", "redelivers for ever"),
        (RedeliveryPolicy(maximum_redeliveries=0), FOREVER, "note", "each failure is a dead letter"),
        (
            RedeliveryPolicy(maximum_redeliveries=-1, maximum_elapsed=3600),
            FOREVER,
            "ok",
            "up to 1 h, dead after 1 h",
        ),
        (RedeliveryPolicy.from_delays([1, 5]), FOREVER, "note", "up to 6 s, dead after 3 deliveries"),
    ],
)
def test_schedules(policy: Any, able: Capabilities, level: str, text: str) -> None:
    """A finding says how long a message is parked, when it is dead, and whether a database restarts meanwhile."""
    found = schedule(policy, able)
    assert (found.level, text in found.text) == (level, True), found.text


@pytest.mark.parametrize(
    ("stamped", "level", "text"),
    [
        (100.5, "ok", "agrees"),
        (98.5, "ok", "agrees"),
        (103.1, "warn", "2.1 s ahead of"),
        (97.0, "warn", "3 s behind"),
        (None, "note", "by NTP"),
    ],
)
def test_clocks(stamped: float | None, level: str, text: str) -> None:
    """A broker's time that is not between sending and arrival is a finding on its clock."""
    found = clock_of(stamped, 100.0, 101.0)
    assert (found.level, text in found.text) == (level, True), found.text
