"""Log of AMQP frames: it never has a password."""

from __future__ import annotations

import logging

import pytest
from tests.amqp.peer import proton

from redelivery_amqp import io_thread
from redelivery_amqp.io_thread import ProtonEngine


def test_a_log_in_is_shown_without_credentials(caplog: pytest.LogCaptureFixture) -> None:
    """A log-in is logged without its credentials, which proton's own trace contains."""
    caplog.set_level(logging.DEBUG, "redelivery.wire")
    connection, transport = proton.Connection(), proton.Transport()
    connection.user, connection.password = "bob", "hunter2"
    sasl = transport.sasl()
    sasl.allowed_mechs("PLAIN")
    sasl.allow_insecure_mechs = True
    wire = ProtonEngine(connection, transport)
    connection.open()
    with wire.lock:
        wire.output()
        wire.feed(memoryview(b"AMQP\x03\x01\x00\x00"))
        wire.feed(memoryview(b"\x00\x00\x00\x15\x02\x01\x00\x00\x00S@\xc0\x08\x01\xa3\x05PLAIN"))
        wire.output()
    lines = [record.getMessage() for record in caplog.records]
    assert "0 -> @sasl-init not shown" in lines
    assert "hunter2" not in "".join(lines)
    assert "bob" not in "".join(lines)


@pytest.mark.parametrize(
    ("traced", "expected"),
    [
        ('FRAME: 0 -> @open(16) [container-id="x"]', '0 -> @open(16) [container-id="x"]'),
        (
            'FRAME: 1 -> @transfer(20) [handle=0x0] (18) "\\x00Sr) secret"',
            "1 -> @transfer(20) [handle=0x0] (18 bytes)",
        ),
        ('FRAME: 0 <- @sasl-response(67) [response=b"x"]', "0 <- @sasl-response not shown"),
    ],
)
def test_what_is_kept_of_a_line(traced: str, expected: str) -> None:
    """A line has the size of a message without its content, and of a log-in only the name of the frame."""
    assert io_thread.line(traced) == expected
