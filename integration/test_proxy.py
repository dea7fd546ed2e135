"""The proxy that cuts connections, with a small server and without a broker."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from integration.eventually import eventually
from integration.frames import EOL, FrameSplitter
from integration.proxy import LinkProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from integration.proxy import Direction

pytestmark = pytest.mark.ci("the proxy of the tests itself")

FRAMES = [
    b"CONNECT\naccept-version:1.2\n\n\0",
    b"SEND\ndestination:a\ncontent-length:5\n\na\0\n\nb\0",
    b"SEND\r\ndestination:b\r\n\r\nplain\0",
    b"ACK\nid:1\n\n\0",
]


class Echo:
    """Sends received bytes back, and keeps them."""

    def __init__(self) -> None:
        """Listen."""
        self.seen = bytearray()
        self.ends: list[str] = []  # the end of each connection: "fin" or "rst"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._echo, args=(link,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _echo(self, link: socket.socket) -> None:
        with link:
            try:
                while data := link.recv(65536):
                    self.seen += data
                    # A connection that ended with unread answers refuses more of them. The bytes before its end must
                    # still be read: a broker also reads them.
                    with contextlib.suppress(OSError):
                        link.sendall(data)
                self.ends.append("fin")
            except OSError:
                self.ends.append("rst")

    def close(self) -> None:
        """Stop listening, and wait for the connections."""
        if self._listening.fileno() < 0:
            return
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(5.0)


@pytest.fixture
def echo() -> Iterator[Echo]:
    """A server that echoes."""
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[LinkProxy]:
    """A proxy in front of it."""
    with LinkProxy(echo.port) as running:
        yield running


@pytest.fixture
def client(proxy: LinkProxy) -> Iterator[socket.socket]:
    """A link through the proxy."""
    with connect(proxy) as link:
        yield link


def connect(proxy: LinkProxy) -> socket.socket:
    """A link through the proxy."""
    return socket.create_connection((proxy.host, proxy.port), timeout=5.0)


def read(link: socket.socket, count: int) -> bytes:
    """Read exactly this number of bytes."""
    data = b""
    while len(data) < count:
        more = link.recv(count - len(data))
        assert more, f"closed after {data!r}"
        data += more
    return data


def rest(link: socket.socket) -> bytes:
    """Read until the connection ends, in any way."""
    data = b""
    try:
        while more := link.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_frames_end_where_they_end_however_the_bytes_come(size: int) -> None:
    """Frames are split correctly for any pieces: content-length, NUL in a body, CRLF heads and heart-beats."""
    big = b"MESSAGE\ncontent-length:9000\n" + b"x:" + b"y" * 9000 + b"\n\n" + b"\0" * 9001
    stream = b"\n".join([*FRAMES, big, b""])
    splitter = FrameSplitter()
    pieces = [piece for at in range(0, len(stream), size) for piece in splitter.feed(stream[at : at + size])]
    assert b"".join(data for data, _ in pieces) == stream
    assert [done for _, done in pieces if done] == ["CONNECT", "SEND", "SEND", "ACK", "MESSAGE"]
    assert [done for _, done in pieces].count(EOL) == 5
    assert not splitter.inside


def test_everything_passes_and_is_counted(proxy: LinkProxy, client: socket.socket) -> None:
    """All bytes pass unchanged and are counted without a rule."""
    stream = b"".join(FRAMES)
    client.sendall(stream + b"\n")
    assert read(client, len(stream) + 1) == stream + b"\n"
    assert proxy.to_broker.log == proxy.to_client.log == ["CONNECT", "SEND", "SEND", "ACK"]
    assert (proxy.to_broker.frames, proxy.to_broker.bytes, proxy.to_broker.eols) == (4, len(stream) + 1, 1)
    assert (proxy.links, proxy.links_ever, proxy.cuts) == (1, 1, 0)


@pytest.mark.parametrize("reset", [True, False])
def test_cut_ends_every_link_and_lets_new_ones_in(
    proxy: LinkProxy, client: socket.socket, echo: Echo, *, reset: bool
) -> None:
    """A cut arrives as RST or FIN on both sides; the next connection works."""
    client.sendall(FRAMES[0])
    read(client, len(FRAMES[0]))
    assert proxy.cut(reset=reset) == 1
    if reset:
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    else:
        assert client.recv(1) == b""
    assert eventually(lambda: list(echo.ends)) == ["rst" if reset else "fin"]
    eventually(lambda: proxy.links == 0)
    with connect(proxy) as again:
        again.sendall(b"\n")
        assert read(again, 1) == b"\n"
    assert proxy.links_ever == 2


@pytest.mark.parametrize(
    ("direction", "count"), list(itertools.product(["to_broker", "to_client"], [1, 2, 3]))
)
def test_cut_after_frames_is_exact(
    proxy: LinkProxy, client: socket.socket, echo: Echo, direction: Direction, count: int
) -> None:
    """A cut after frames lets the n-th frame pass whole, and not one byte more."""
    proxy.cut_after_frames(direction, count)
    client.sendall(b"\n" + b"".join(FRAMES))
    got = rest(client)
    expected = b"\n" + b"".join(FRAMES[:count])
    if direction == "to_client":
        assert got == expected
    else:
        eventually(lambda: echo.seen == expected, message="the broker got exactly these frames")
    assert proxy.cuts == 1
    assert proxy.way(direction).frames == count


def test_cut_at_a_command_may_swallow_it(proxy: LinkProxy, client: socket.socket, echo: Echo) -> None:
    """A cut at the second SEND may drop that frame itself."""
    proxy.cut_after_frames("to_broker", 2, command="SEND", forward_last=False)
    client.sendall(b"".join(FRAMES))
    rest(client)
    eventually(lambda: echo.seen == b"".join(FRAMES[:2]))


def test_cut_after_bytes_is_exact(proxy: LinkProxy, client: socket.socket, echo: Echo) -> None:
    """A cut after bytes lets the n-th byte pass, but not the next one."""
    proxy.cut_after_bytes("to_broker", 40)
    client.sendall(b"".join(FRAMES))
    rest(client)
    eventually(lambda: echo.seen == b"".join(FRAMES)[:40])


def test_half_a_frame(proxy: LinkProxy, client: socket.socket, echo: Echo) -> None:
    """A cut in the next frame lets its first half pass, whatever was before."""
    client.sendall(FRAMES[0] + FRAMES[1][:10])
    read(client, len(FRAMES[0]) + 10)
    proxy.drop_half_frame("to_broker")
    client.sendall(FRAMES[1][10:])
    read(client, len(FRAMES[1]) - 10)
    client.sendall(b"\n" + FRAMES[3])
    rest(client)
    eventually(lambda: echo.seen.endswith(b"\0\n" + FRAMES[3][: len(FRAMES[3]) // 2]))


def test_half_of_a_later_frame(proxy: LinkProxy, client: socket.socket, echo: Echo) -> None:
    """A cut in the third frame lets two frames pass, and half of the third."""
    proxy.drop_half_frame("to_broker", 3)
    client.sendall(b"".join(FRAMES))
    rest(client)
    eventually(lambda: echo.seen == b"".join(FRAMES[:2]) + FRAMES[2][: len(FRAMES[2]) // 2])


@pytest.mark.parametrize("direction", ["to_broker", "to_client", None])
def test_stall_keeps_what_comes(
    proxy: LinkProxy, client: socket.socket, echo: Echo, direction: Direction | None
) -> None:
    """A stall forwards nothing until resume, then all bytes in order; it accepts 4 MB meanwhile."""
    proxy.stall(direction)
    body = b"SEND\ncontent-length:4000000\n\n" + b"z" * 4_000_000 + b"\0"
    client.sendall(body)
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
    assert bool(echo.seen) == (direction == "to_client")
    client.settimeout(10.0)
    proxy.resume(direction)
    assert read(client, len(body)) == body


def test_a_stalled_link_can_be_cut(proxy: LinkProxy, client: socket.socket) -> None:
    """A stalled or delayed connection can be cut."""
    eventually(lambda: proxy.links == 1)
    proxy.stall()
    proxy.delay(30.0)
    client.sendall(FRAMES[0])
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    eventually(lambda: proxy.links == 0)


def test_delay(proxy: LinkProxy, client: socket.socket) -> None:
    """Delayed bytes arrive later."""
    proxy.delay(0.3, "to_broker")
    began = time.monotonic()
    client.sendall(FRAMES[0])
    assert read(client, len(FRAMES[0])) == FRAMES[0]
    assert time.monotonic() - began >= 0.3


def test_refuse_and_accept(proxy: LinkProxy, client: socket.socket) -> None:
    """New connections are refused, and the open one continues; after `accept` the same port serves again."""
    eventually(lambda: proxy.links == 1)
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    client.sendall(b"\n")
    assert read(client, 1) == b"\n"
    proxy.accept()
    with connect(proxy) as again:
        again.sendall(b"\n")
        assert read(again, 1) == b"\n"


def test_a_broker_that_is_down_closes_the_link(echo: Echo) -> None:
    """The proxy of a broker that is down accepts and closes at once, like a load balancer."""
    echo.close()
    with LinkProxy(echo.port) as proxy, connect(proxy) as link:
        assert rest(link) == b""
