"""Limits that a broker announces."""

from __future__ import annotations

import pytest
from tests.amqp.peer import ScriptedPeer

import redelivery


def test_a_message_larger_than_the_broker_takes_is_not_sent() -> None:
    """A message above the broker's limit is refused with both sizes; a smaller one goes over the same connection."""
    with ScriptedPeer(largest=1000) as peer, redelivery.connect(peer.uri) as connection:
        with pytest.raises(
            redelivery.AdapterError, match=r"to queue://q was not sent: it has 1\d\d\d bytes .* most 1000"
        ):
            connection.send("q", b"x" * 1000, timeout=30)
        connection.send("q", b"small", timeout=30)
        assert peer.connections == 1
