"""Calls that return by their deadline although the broker reads nothing more."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.amqp.peer import PATIENCE, FrozenPeer
from tests.eventually import eventually

import redelivery
from redelivery import TransportError

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = b"x" * 16_000_000  # more than the buffers of both ends hold
KNOWN = "ActiveMQ.DLQ"  # its link is attached: a message to it is written at once
CLOSE = 0.05
SOON = 10.0  # less than the missing heart-beats take, which would end the write too


def seconds(action: Callable[[], object]) -> float:
    """Return the seconds that an action takes."""
    began = time.monotonic()
    action()
    return time.monotonic() - began


def test_what_has_a_deadline_returns_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send, a new consumer, drain and both closes return in time while a large message blocks the socket."""
    with FrozenPeer(links=2) as peer:
        connection = redelivery.connect(peer.uri).__enter__()
        consumer = connection.consumer("orders")
        monkeypatch.setattr("redelivery.driver.connection.connection_driver.SUBSCRIBE_TIMEOUT", CLOSE)

        def refused(text: str, call: Callable[[], object]) -> Callable[[], object]:
            def check() -> None:
                with pytest.raises(TransportError, match=text):
                    call()

            return check

        send: Any = connection.send
        sender = threading.Thread(
            target=refused("closed|may have been", lambda: send(KNOWN, LARGE, timeout=60))
        )
        sender.start()
        eventually(lambda: connection._driver._adapter._link._stream._blocked)  # type: ignore[attr-defined]
        for call in (
            refused("may have been sent", lambda: send(KNOWN, LARGE, timeout=CLOSE)),
            refused("may have been sent", lambda: send(KNOWN, b"x", timeout=CLOSE)),
            refused("did not confirm the subscription", lambda: connection.consumer("others")),
            consumer.close,
            lambda: connection.drain(CLOSE),
            lambda: connection.close(CLOSE),
        ):
            assert seconds(call) < SOON
        sender.join(PATIENCE)
        assert not sender.is_alive()


def test_asyncio_returns_in_time_too() -> None:
    """The asyncio connection returns in time too."""

    async def main(uri: str) -> None:
        async with asyncio.timeout(2 * SOON):
            connection = await redelivery.connect_async(uri).__aenter__()
            consumer = await connection.consumer("orders")
            for body in (LARGE, b"x"):
                with pytest.raises(TransportError, match="may have been sent"):
                    await connection.send(KNOWN, body, timeout=CLOSE)
            await consumer.close()
            await connection.drain(CLOSE)
            await connection.close(CLOSE)

    with FrozenPeer(links=2) as peer:
        asyncio.run(main(peer.uri))
