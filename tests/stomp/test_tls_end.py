"""A connection over TLS leaves nothing open."""

from __future__ import annotations

import selectors
import socket

from tests.stomp.peer import opening

from redelivery_stomp.frame_scanner import FrameScanner
from redelivery_stomp.transport import ScanningTransport


def test_the_selector_ends_with_the_connection() -> None:
    """The selector's descriptor is closed with the connection, not by the garbage collector."""
    first = opening("stomp+ssl://h")
    transport = ScanningTransport(
        first.endpoint, first.settings.tls, 1.0, FrameScanner("TOKEN"), lambda _: None
    )
    ours, theirs = socket.socketpair()
    with theirs:
        transport.socket = ours
        transport._write_from_the_reading_thread(ours)
        selector = transport.sel
        assert isinstance(selector, selectors.DefaultSelector)
        transport.cleanup()
    assert selector.get_map() is None
    assert ours.fileno() == -1
