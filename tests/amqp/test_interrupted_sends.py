"""Ctrl-C in the main thread during AMQP commands: proton's state stays whole."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
from tests.amqp.peer import ScriptedPeer
from tests.amqp.test_declarations import Asked
from tests.amqp.test_freed_links import delivery_of, send_one
from tests.eventually import eventually
from tests.interrupts import default_handler

import redelivery
from redelivery.core.commands import Accept
from redelivery_amqp.connection import AmqpConnection
from redelivery_amqp.io_thread import ProtonEngine
from redelivery_amqp.sender import SenderLink

__all__ = ["default_handler"]

OWN = "redelivery-amqp"
"""Name of a connection's thread."""


def interrupt_at(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> list[str]:
    """Press Ctrl-C before and after the main thread's first call of a method; return the calls that ended."""
    before, began, ended = getattr(of, name), list[str](), list[str]()

    def call(self: Any, *given: Any, **named: Any) -> Any:
        first = not began and threading.current_thread() is threading.main_thread()
        if not first:
            return before(self, *given, **named)
        began.append(name)
        signal.raise_signal(signal.SIGINT)
        result = before(self, *given, **named)
        signal.raise_signal(signal.SIGINT)
        ended.append(name)
        return result

    monkeypatch.setattr(of, name, call)
    return ended


@pytest.mark.parametrize(
    ("of", "name"), [(SenderLink, "send"), (SenderLink, "attach"), (ProtonEngine, "output")]
)
def test_an_interrupted_send_is_written_whole(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> None:
    """An interrupted send is written whole; the connection stays, and takes the next message."""
    taken: list[str] = []
    with ScriptedPeer() as peer, redelivery.connect(peer.uri) as connection:
        peer.taken = lambda _, link: taken.append(str(link.target.address))
        with monkeypatch.context() as patch:
            ended = interrupt_at(patch, of, name)
            with pytest.raises(KeyboardInterrupt):
                connection.send("orders", "first")
        assert ended
        eventually(lambda: taken)
        connection.send("orders", "second", timeout=30)
        assert (len(taken), peer.connections) == (2, 1)


def test_an_interrupted_settlement_is_carried_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted settlement is carried out once: the delivery has no handle any more."""
    with ScriptedPeer(send_one) as peer:
        asked = Asked(peer)
        delivery = delivery_of(asked)
        with monkeypatch.context() as patch:
            interrupt_at(patch, ProtonEngine, "settle")
            with pytest.raises(KeyboardInterrupt):
                asked.adapter.execute((Accept((delivery,)),))
        assert delivery.handle is None
        assert asked.sent("queue://other") is None
        asked.adapter.close(10.0)
        assert [each.tag for each in peer.settlements] == ["1"]


def test_an_interrupted_close_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted close releases the messages and ends the connection."""
    with ScriptedPeer(send_one) as peer:
        asked = Asked(peer)
        delivery = delivery_of(asked, running=False)
        link = asked.adapter._link
        assert link is not None
        with monkeypatch.context() as patch:
            interrupt_at(patch, ProtonEngine, "settle")
            with pytest.raises(KeyboardInterrupt):
                asked.adapter.close(10.0)
        eventually(lambda: not link._stream._thread.is_alive())
        assert delivery.handle is None


def test_an_interrupted_open_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted log-in ends the connection's thread and socket."""
    threads = set(threading.enumerate())
    with ScriptedPeer() as peer:
        with monkeypatch.context() as patch:
            interrupt_at(patch, AmqpConnection, "_welcome")
            with pytest.raises(KeyboardInterrupt):
                Asked(peer)
        eventually(
            lambda: not [each for each in threading.enumerate() if each.name == OWN and each not in threads]
        )
