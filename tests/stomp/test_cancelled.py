"""A connect that is cancelled while it runs."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.eventually import eventually
from tests.stomp.peer import FrozenPeer

import redelivery


def test_a_cancelled_connect_keeps_no_loop() -> None:
    """An event loop ends at once after a cancelled connect, whose thread still has a minute left."""

    async def main(peer: FrozenPeer) -> None:
        connection = redelivery.connect_async(f"{peer.uri}?redelivery.connectTimeout=60000")
        connecting = asyncio.ensure_future(connection.__aenter__())
        await asyncio.to_thread(eventually, lambda: peer._accepted)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

    began = time.monotonic()
    with FrozenPeer(answers=False) as peer:
        asyncio.run(main(peer))
        assert time.monotonic() - began < 30
