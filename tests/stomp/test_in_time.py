"""Calls that must end in time even if the broker does nothing: closing, and connecting."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from tests.eventually import eventually
from tests.stomp.peer import PATIENCE, FrozenPeer, opening, stuck

import redelivery
from redelivery import TransportError
from redelivery.core.commands import Send
from redelivery.core.outgoing import Outgoing
from redelivery_stomp import StompAdapter
from redelivery_stomp.connection import StompConnection

LARGE = b"x" * 16_000_000  # more than the buffers of both ends hold
CLOSE = 0.05
ANSWERS = 3  # two for the dead-letter destination of a consumer, one for its subscription
SOON = 10.0  # less than the heart-beats take, which would end the write too


def seconds(action: Any) -> float:
    """Return the seconds that an action takes."""
    began = time.monotonic()
    action()
    return time.monotonic() - began


def test_close_does_not_wait_behind_a_blocked_write() -> None:
    """A close ends in time while a sender is blocked in a write; the sender ends with an error."""
    failures: list[BaseException] = []

    def send() -> None:
        with pytest.raises(TransportError) as caught:
            connection.send("orders", LARGE)
        failures.append(caught.value)

    with FrozenPeer() as peer:
        connection = redelivery.connect(peer.uri).__enter__()
        sender = threading.Thread(target=send)
        sender.start()
        eventually(lambda: stuck(connection._driver._adapter._link.transport))  # type: ignore[attr-defined]
        assert seconds(lambda: connection.close(CLOSE)) < SOON
        sender.join(PATIENCE)
        assert len(failures) == 1


def test_close_does_not_wait_behind_the_drivers_blocked_write() -> None:
    """A close ends in time while the driver's thread is blocked in a write, with settlements waiting."""
    with FrozenPeer() as peer:
        connection = redelivery.connect(peer.uri).__enter__()
        driver = connection._driver
        driver.defer([Send(1, Outgoing("queue://orders", LARGE))])
        eventually(lambda: stuck(driver._adapter._link.transport))  # type: ignore[attr-defined]
        driver.defer([Send(2, Outgoing("queue://orders", b"x"))])
        assert seconds(lambda: connection.close(CLOSE)) < SOON
        assert driver._thread is not None
        driver._thread.join(PATIENCE)
        assert not driver._thread.is_alive()


def test_asyncio_closes_in_time_too() -> None:
    """A close with asyncio ends in time, too."""

    async def main(uri: str) -> float:
        connection = await redelivery.connect_async(uri).__aenter__()
        send = asyncio.ensure_future(connection.send("orders", LARGE))
        transport = connection._driver._adapter._link.transport  # type: ignore[attr-defined]
        await asyncio.to_thread(eventually, lambda: stuck(transport))
        began = time.monotonic()
        await connection.close(CLOSE)
        took = time.monotonic() - began
        with pytest.raises(TransportError):
            await send
        return took

    with FrozenPeer() as peer:
        assert asyncio.run(main(peer.uri)) < SOON


@pytest.fixture
def plain_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace TLS by plain bytes: only their way through the threads is tested."""

    class Plain(socket.socket):
        def recv(self, size: int, flags: int = 0) -> bytes:
            try:
                return super().recv(size, flags)
            except BlockingIOError:
                raise ssl.SSLWantReadError from None

        def send(self, data: Any, flags: int = 0) -> int:
            try:
                return super().send(data, flags)
            except BlockingIOError:
                raise ssl.SSLWantWriteError from None

    class Context:
        def wrap_socket(self, raw: socket.socket, server_hostname: str) -> socket.socket:
            return Plain(fileno=raw.detach())

    monkeypatch.setattr("redelivery.adapter_support.sockets.client_context", lambda _: Context())


@pytest.mark.usefixtures("plain_tls")
@pytest.mark.parametrize("scheme", ["stomp", "stomp+ssl"])
def test_no_command_waits_for_a_broker_that_does_not_read(scheme: str) -> None:
    """An adapter accepts a large message and a thousand small ones, and still closes in time."""
    with FrozenPeer() as peer:
        adapter = StompAdapter()
        adapter.open(opening(f"{scheme}://127.0.0.1:{peer.port}"), lambda _: None)
        assert adapter._link is not None
        transport = adapter._link.transport

        def execute() -> None:
            adapter.execute([Send(1, Outgoing("queue://orders", LARGE))])
            for token in range(2, 1002):
                adapter.execute([Send(token, Outgoing("queue://orders", b"x"))])

        writer = threading.Thread(target=execute, daemon=True)
        writer.start()
        writer.join(PATIENCE)
        assert not writer.is_alive()
        assert stuck(transport)
        assert CLOSE <= seconds(lambda: adapter.close(CLOSE)) < SOON
        eventually(lambda: not threads("redelivery-stomp-writer"))


@pytest.mark.usefixtures("plain_tls")
@pytest.mark.parametrize("scheme", ["stomp", "stomp+ssl"])
def test_what_waited_is_written_in_order(scheme: str) -> None:
    """A broker that reads again gets every frame whole, in the order of the commands."""
    with FrozenPeer() as peer:
        adapter = StompAdapter()
        adapter.open(opening(f"{scheme}://127.0.0.1:{peer.port}"), lambda _: None)
        assert adapter._link is not None
        commands = [Send(n, Outgoing("queue://orders", b"%d-" % n * 300_000)) for n in range(1, 9)]
        for command in commands:
            adapter.execute([command])
        heard = peer.thaw(sum(len(command.message.body) for command in commands)).split(b"\0")
        bodies = [frame.partition(b"\n\n")[2] for frame in heard]
        assert [body == command.message.body for body, command in zip(bodies, commands, strict=False)][
            :7
        ] == ([True] * 7)
        adapter.close(0)


def threads(name: str) -> list[threading.Thread]:
    """Return the threads of this name."""
    return [thread for thread in threading.enumerate() if thread.name == name]


def blocked(connection: Any, peer: FrozenPeer) -> threading.Thread:
    """Fill the broker's window from another thread, which waits for an answer; return that thread."""

    def send() -> None:
        with suppress(TransportError):
            connection.send("orders", LARGE)

    sender = threading.Thread(target=send)
    sender.start()
    eventually(lambda: stuck(connection._driver._adapter._link.transport))
    return sender


def test_what_has_a_deadline_returns_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send, a new consumer, receive, drain and both closes end in time though the broker reads nothing."""
    message = b"MESSAGE\nsubscription:{id}\nmessage-id:1\nack:1\ndestination:/queue/orders\n\nx\0"
    with FrozenPeer(receipts=ANSWERS, then=message) as peer:
        connection = redelivery.connect(peer.uri).__enter__()
        consumer = connection.consumer("orders")
        monkeypatch.setattr("redelivery.driver.connection.connection_driver.SUBSCRIBE_TIMEOUT", CLOSE)
        received = consumer.receive(PATIENCE)
        assert received is not None
        sender = blocked(connection, peer)

        def refused(text: str, call: Any) -> None:
            with pytest.raises(TransportError, match=text):
                call()

        for call in (
            lambda: refused("may have been sent", lambda: connection.send("orders", b"x", timeout=CLOSE)),
            lambda: refused("may have been sent", lambda: connection.send("orders", LARGE, timeout=CLOSE)),
            lambda: refused("did not confirm the sub", lambda: connection.consumer("others")),
            received.accept,
            lambda: consumer.receive(CLOSE),
            consumer.close,
            lambda: connection.drain(CLOSE),
            lambda: connection.close(CLOSE),
        ):
            assert seconds(call) < SOON
        sender.join(PATIENCE)
        assert not sender.is_alive()


def test_asyncio_does_not_wait_for_the_executor_of_its_loop() -> None:
    """Connecting, sending and closing work while the application uses all threads of the loop's executor."""

    async def main(uri: str) -> None:
        loop = asyncio.get_running_loop()
        free = threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        taken = loop.run_in_executor(None, free.wait)
        try:
            async with asyncio.timeout(2 * SOON):
                connection = await redelivery.connect_async(uri).__aenter__()
                consumer = await connection.consumer("orders")
                for body in (LARGE, b"x"):
                    with pytest.raises(TransportError, match="may have been sent"):
                        await connection.send("orders", body, timeout=CLOSE)
                await consumer.close()
                await connection.drain(CLOSE)
                await connection.close(CLOSE)
        finally:
            free.set()
            await taken

    with FrozenPeer(receipts=ANSWERS) as peer:
        asyncio.run(main(peer.uri))


def test_closing_says_goodbye_but_waits_for_no_answer_after_its_time() -> None:
    """A close writes DISCONNECT, and waits for its receipt only until its time-out."""
    with FrozenPeer() as peer:
        adapter = StompAdapter()
        adapter.open(opening(peer.uri), lambda _: None)
        assert CLOSE <= seconds(lambda: adapter.close(CLOSE)) < SOON


@pytest.mark.parametrize("scheme", ["stomp", "stomp+ssl"])
def test_one_deadline_for_all_steps_of_connecting(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """TCP, TLS and the log-in share `connectTimeout`: each step has the time that the ones before left."""
    now = 100.0
    given: dict[str, float] = {}

    class Waited(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            given["log-in"] = timeout or 0.0
            return False

    def reached(endpoint: object, deadline: float) -> socket.socket:
        nonlocal now
        given["TCP"] = deadline - now
        now += 4
        return socket.create_connection(("127.0.0.1", peer.port))

    class Context:
        def wrap_socket(self, raw: socket.socket, server_hostname: str) -> socket.socket:
            nonlocal now
            given["TLS"] = raw.gettimeout() or 0.0
            now += 3
            return raw

    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("redelivery_stomp.transport.time", clock)
    monkeypatch.setattr("redelivery.adapter_support.sockets.time", clock)
    monkeypatch.setattr("redelivery.adapter_support.sockets._reached", reached)
    monkeypatch.setattr("redelivery.adapter_support.sockets.client_context", lambda _: Context())
    with FrozenPeer(answers=False) as peer:
        link = StompConnection(
            opening(f"{scheme}://127.0.0.1:{peer.port}?redelivery.connectTimeout=10000"), lambda _: None
        )
        link._connected = Waited()
        with pytest.raises(TransportError):
            link.open()
    steps = {"TCP": 10.0, "log-in": 6.0} if scheme == "stomp" else {"TCP": 10.0, "TLS": 6.0, "log-in": 3.0}
    assert given == steps


def test_the_addresses_of_one_name_are_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with an address that refuses and another that answers is connected."""
    with FrozenPeer() as peer, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))
            for port in (unused.getsockname()[1], peer.port)
        ]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
        adapter = StompAdapter()
        assert adapter.open(opening("stomp://two-faces:1"), lambda _: None).broker
        adapter.close(0)


def test_a_name_that_is_none_is_a_transport_error() -> None:
    """A host name that cannot be resolved is a transport error that names the address."""
    with pytest.raises(TransportError, match=r"stomp://a\.\.b:61613: cannot connect"):
        StompAdapter().open(opening("stomp://a..b"), lambda _: None)
