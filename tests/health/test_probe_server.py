"""Server of probes: the answers to clients of all kinds, and its limits."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.eventually import eventually
from tests.health.conftest import PATIENCE, Source, ask

from redelivery import ConfigurationError, health
from redelivery.health import probes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redelivery.health import HealthServer

HALF = b"GET /livez HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a server end within 10 ms."""
    monkeypatch.setattr(probes, "LOOK", 0.01)


@pytest.fixture
def server(source: Source) -> Iterator[HealthServer]:
    """Return a running server on a free port, whose metrics are larger than the buffers of sockets."""
    with health.serve(source, 0, metrics=lambda: b"m" * 50_000_000) as made:
        yield made


def connected(server: HealthServer, sent: bytes) -> socket.socket:
    """Return the socket of a client that has sent some bytes."""
    client = socket.create_connection((server.host, server.port), PATIENCE)
    client.sendall(sent)
    return client


def serving() -> int:
    """Return the number of threads that serve connections."""
    return len([each for each in threading.enumerate() if "process_request_thread" in each.name])


def test_probe(server: HealthServer, source: Source) -> None:
    """A probe gets its status and JSON, without the version of a server."""
    found = ask(server, "/livez")
    assert (found.status, json.loads(found.body)["live"]) == (200, True)
    assert (found.headers["server"], found.headers["cache-control"]) == ("redelivery", "no-store")
    source.live = False
    assert ask(server, "/livez").status == 503
    assert [ask(server, path).status for path in ("/", "/metrics")] == [404, 200]


def test_methods(server: HealthServer) -> None:
    """HEAD has no body; another method is refused, with a list of the allowed ones."""
    head, get = ask(server, "/readyz", "HEAD"), ask(server, "/readyz")
    assert (head.body, head.headers["content-length"]) == (b"", str(len(get.body)))
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        found = ask(server, "/livez", method, body=b"x")
        assert (found.status, found.headers["allow"]) == (405, "GET, HEAD")
    assert ask(server, "/livez", "BREW").status == 501


def test_only_this_machine_by_default(server: HealthServer) -> None:
    """The server listens on 127.0.0.1 by default, on a free port for 0; its URL has both."""
    assert server.host == "127.0.0.1"
    assert server.port > 0
    assert server.url == f"http://127.0.0.1:{server.port}"


def test_ipv6(source: Source) -> None:
    """The server listens on an IPv6 address, which is in brackets in the URL."""
    try:
        made = health.serve(source, 0, "::1")
    except ConfigurationError as error:
        pytest.skip(str(error))
    with made:
        assert made.url == f"http://[::1]:{made.port}"
        assert ask(made, "/livez").status == 200


def test_a_port_in_use(server: HealthServer, source: Source) -> None:
    """A port in use is an error in one sentence with the port, and leaves nothing."""
    threads = threading.active_count()
    with pytest.raises(ConfigurationError) as error:
        health.serve(source, server.port)
    assert str(error.value) == (
        f"health endpoint 127.0.0.1:{server.port}: the port is in use; choose another one, "
        "or end the program that has it"
    )
    assert error.value.option == "port"
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("port", "host", "named"),
    [
        (-1, "127.0.0.1", "port=-1: must be a whole number from 0 to 65535"),
        (65536, "127.0.0.1", "port=65536"),
        ("80", "127.0.0.1", "port='80'"),
        (True, "127.0.0.1", "port=True"),
        (0, "no.such.host.invalid", "no such host"),
        (0, "a" * 70 + ".b", "not the name of a host"),
        (0, "192.0.2.1", "this machine does not have the address"),
    ],
)
def test_what_cannot_be_listened_on(source: Source, port: Any, host: str, named: str) -> None:
    """A host or port on which the server cannot listen is a ConfigurationError that names it."""
    with pytest.raises(ConfigurationError) as error:
        health.serve(source, port, host)
    assert named in str(error.value)


def test_the_end(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `close` the port is free at once, connections are cut, no thread is left; a second call does nothing."""
    monkeypatch.setattr(probes._ProbeRequest, "timeout", PATIENCE)
    server = health.serve(source, 0)
    with connected(server, HALF) as waiting:
        eventually(lambda: serving() == 1)
        server.close()
        server.close()
        assert waiting.recv(100) == b""
    eventually(lambda: serving() == 0)
    assert "redelivery-health" not in [each.name for each in threading.enumerate()]
    with health.serve(source, server.port) as again:
        assert ask(again, "/livez").status == 200


def test_half_requests(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that never end their requests use a limited number of threads, and the next probe is answered."""
    # Only the limit of connections ends one.
    monkeypatch.setattr(probes._ProbeRequest, "timeout", PATIENCE)
    monkeypatch.setattr(probes, "LONGEST", PATIENCE)
    # More than threads, and no more than wait to be accepted: the system lets one beyond that wait for a second.
    clients = 3 * probes.MOST
    assert clients < server._server.request_queue_size
    with ExitStack() as stack:
        for _ in range(clients):
            stack.enter_context(connected(server, HALF))
        assert ask(server, "/livez").status == 200
        # A thread that has ended its connection may exist a moment longer.
        eventually(lambda: serving() <= 2 * probes.MOST)
    eventually(lambda: serving() == 0)


def test_a_client_that_takes_too_long(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client is cut after its time, although each of its reads was fast enough."""
    monkeypatch.setattr(probes, "LONGEST", 0.0)
    monkeypatch.setattr(probes._ProbeRequest, "timeout", PATIENCE)
    with connected(server, HALF) as slow:
        assert slow.recv(100) == b""
    eventually(lambda: serving() == 0)


def test_a_client_that_stalls(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read without data ends the connection."""
    monkeypatch.setattr(probes._ProbeRequest, "timeout", 0.01)
    with connected(server, HALF) as stalled:
        assert stalled.recv(100) == b""
    eventually(lambda: serving() == 0)


def test_a_client_that_never_reads(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large answer that its client does not read ends, and others are answered meanwhile."""
    monkeypatch.setattr(probes._ProbeRequest, "timeout", 0.01)
    with connected(server, b"GET /metrics HTTP/1.0\r\n\r\n"):
        eventually(lambda: serving() == 0)
        assert ask(server, "/livez").status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /livez HTTP/1.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + b"X: x\r\n" * 200 + b"\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["long", "many", "path"],
)
def test_large_headers(server: HealthServer, sent: bytes) -> None:
    """A request with headers that are too large is refused before all are read."""
    with connected(server, sent) as client:
        # A part of the request may be unread here; the answer may then be lost.
        try:
            answer = client.recv(100)
        except ConnectionError:
            answer = b""
    assert answer == b"" or answer.split()[1] in (b"414", b"431")
    assert ask(server, "/livez").status == 200


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00\x01\x00", b"\r\n", b"GET\r\n\r\n", b"\0" * 100 + b"\r\n\r\n"]
)
def test_nonsense(server: HealthServer, sent: bytes) -> None:
    """TLS, and bytes that are not HTTP, do no harm."""
    with connected(server, sent) as client:
        client.shutdown(socket.SHUT_WR)
        while client.recv(1000):
            pass
    assert ask(server, "/livez").status == 200


def test_no_more_threads(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no thread can be started, the connection is closed, and the server goes on."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with socket.create_connection((server.host, server.port), PATIENCE) as client:
            assert client.recv(100) == b""
    assert ask(server, "/livez").status == 200


def test_the_name_of_the_machine_is_not_looked_up(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server asks no name server: a slow one would delay the program."""
    monkeypatch.setattr(socket, "getfqdn", lambda *_: pytest.fail("looked up"))
    with health.serve(source, 0) as server:
        assert ask(server, "/livez").status == 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_a_child_process_does_not_keep_the_port(source: Source) -> None:
    """A child process does not have the parent's socket after a fork: nothing listens when the parent has closed it."""
    server = health.serve(source, 0)
    (read, write), (child_read, child_write) = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        os.write(child_write, b"x")
        os.read(read, 1)  # until the parent has checked
        server.close()
        os._exit(0)
    try:
        os.close(read)
        os.close(child_write)
        assert ask(server, "/livez").status == 200
        assert os.read(child_read, 1) == b"x"
        server.close()
        # Not by binding the port again: another process may have got it.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((server.host, server.port), timeout=10.0)
    finally:
        for each in (write, child_read):
            os.close(each)
        assert os.waitpid(child, 0)[1] == 0


class Waiting(threading.Condition):
    """Lock of a server that does something when the server begins to wait for the end of a thread."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self._action = action

    def wait(self, timeout: float | None = None) -> bool:
        """Do it; wait."""
        self._action()
        return super().wait(timeout)


def test_a_probe_waits_for_the_thread_of_a_cut_connection(server: HealthServer) -> None:
    """With too many threads, of cut connections, the next probe is answered when one of them has ended."""
    inner, waits = server._server, list[int]()

    def ended() -> None:
        waits.append(inner._serving)
        inner._serving -= 2 * probes.MOST

    inner._turn = Waiting(ended)
    inner._serving += 2 * probes.MOST
    assert ask(server, "/livez").status == 200
    assert waits == [2 * probes.MOST]


def test_a_server_with_too_many_threads_can_be_closed(source: Source) -> None:
    """A server that waits for the end of a thread is closed, with the connection for which it waits."""
    waits = threading.Event()
    with health.serve(source, 0) as server:
        server._server._turn = Waiting(waits.set)
        server._server._serving += 2 * probes.MOST
        with connected(server, b"") as client:
            assert waits.wait(PATIENCE)
            server.close()
            assert client.recv(100) == b""


def test_a_slow_client_is_cut_while_there_are_too_many_threads(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that waits for the end of a thread also cuts the connections that have taken too long."""
    monkeypatch.setattr(probes._ProbeRequest, "timeout", PATIENCE)
    inner = server._server
    with connected(server, HALF) as slow:
        eventually(lambda: serving() == 1)
        inner._turn = Waiting(lambda: monkeypatch.setattr(probes, "LONGEST", 0.0))
        inner._serving += 2 * probes.MOST - 1
        with connected(server, b""):
            assert slow.recv(100) == b""
        with inner._turn:
            inner._serving -= 2 * probes.MOST - 1
