"""Writes on a thread of their own: how they end."""

from __future__ import annotations

import select
import socket
import threading

import pytest
from tests.eventually import eventually
from tests.stomp.peer import FrozenPeer, opening, stuck
from tests.stomp.test_in_time import LARGE, threads

from redelivery.core.commands import Send
from redelivery.core.outgoing import Outgoing
from redelivery_stomp import StompAdapter
from redelivery_stomp.transport import BufferedWriter, Postbox


def test_a_write_that_breaks_behind_its_caller_is_told() -> None:
    """A failed write is reported to the owner, and the next write raises with its reason."""
    told: list[bool] = []
    ours, theirs = socket.socketpair()
    with ours:
        writer = BufferedWriter(ours, lambda: told.append(True))
        with theirs:
            writer.write(LARGE)
            assert writer.behind
        eventually(lambda: told)
        with pytest.raises(OSError, match=r"pipe|reset"):
            writer.write(b"x")


def test_a_postbox_rings_once() -> None:
    """A postbox is readable exactly while it has frames, and raises for a frame after its shutdown."""
    box = Postbox()

    def readable() -> bool:
        return bool(select.select([box], [], [], 0)[0])

    for frames in ([b"a"], [b"b", b"c"]):
        assert not readable()
        for frame in frames:
            box.put(frame)
        for frame in frames:
            assert readable()
            assert box.get() == frame
    assert not readable()
    box.shutdown()
    with pytest.raises(OSError, match="closed"):
        box.put(b"d")


def test_no_heart_beat_waits_behind_other_bytes() -> None:
    """A heart-beat is dropped while other bytes wait: these are as good when the broker reads again."""
    with FrozenPeer() as peer:
        adapter = StompAdapter()
        adapter.open(opening(peer.uri), lambda _: None)
        assert adapter._link is not None
        transport = adapter._link.transport
        adapter.execute([Send(1, Outgoing("queue://orders", LARGE))])
        eventually(lambda: stuck(transport))
        assert transport._writer is not None
        eventually(lambda: not transport._writer or not transport._writer._waiting)
        transport.send(b"\n")
        assert transport._writer._waiting == []
        transport.send(b"x")
        assert transport._writer._waiting == [b"x"]
        adapter.close(0)


def test_a_broker_that_ends_its_half_ends_the_write() -> None:
    """No thread remains after a broker closed its half, and never reads the bytes that wait."""
    with FrozenPeer() as peer:
        adapter = StompAdapter()
        adapter.open(opening(peer.uri), lambda _: None)
        assert adapter._link is not None
        adapter.execute([Send(1, Outgoing("queue://orders", LARGE))])
        assert stuck(adapter._link.transport)
        peer._accepted[0].shutdown(socket.SHUT_WR)
        eventually(lambda: not threads("redelivery-stomp-writer"))
        adapter.close(0)


def test_a_machine_without_another_thread_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame of which only a part can be written is reported to the owner, and every later write raises."""
    told: list[bool] = []
    ours, theirs = socket.socketpair()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with ours, theirs:
        writer = BufferedWriter(ours, lambda: told.append(True))
        for _ in range(2):
            with pytest.raises(OSError, match="no thread to write with"):
                writer.write(LARGE)
    assert told == [True]
