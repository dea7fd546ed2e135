"""Answers to probes over HTTP: `/livez`, `/readyz` and `/metrics`, by an ASGI application or a server of their own."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self
from weakref import WeakSet

from redelivery.errors import ConfigurationError
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping
    from types import TracebackType

    from redelivery.health.snapshot import Health, ReadyWhen

__all__ = ["HealthServer", "HealthSource", "ProbeAnswer", "ProbeAnswers", "asgi", "serve"]


# ---- Probe answers ---------------------------------------------------------------------------------------
# Answers to probes: `/livez`, `/readyz` and `/metrics`, for the server and for the ASGI application.
#
# No I/O, and no lock for longer than a copy takes, except in the application's own metrics function.

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
# Format of the text that prometheus_client writes by default.
METRICS = "text/plain; version=0.0.4; charset=utf-8"


class HealthSource(Protocol):
    """Interface of a connection that has a health; `Connection` and `AsyncConnection` implement it."""

    def health(self, ready_when: ReadyWhen = "consuming", *, texts: bool = True) -> Health:
        """Return the health, from any thread, without waiting."""
        ...


class ProbeAnswer(NamedTuple):
    """Answer to one request."""

    status: int
    content_type: str
    body: bytes


class ProbeAnswers:
    """Answers for one connection. Any thread may call `answer`."""

    def __init__(
        self, connection: HealthSource, metrics: Callable[[], bytes] | None, ready_when: ReadyWhen
    ) -> None:
        """Set the sources of the answers. Raises ConfigurationError for a wrong `ready_when` or `metrics`."""
        connection.health(ready_when)
        if metrics is not None and not callable(metrics):
            raise ConfigurationError(
                f"metrics={metrics!r}: must be a function that returns bytes, as redelivery.prometheus.text",
                option="metrics",
            )
        self._connection = connection
        self._metrics = metrics
        self._ready_when: ReadyWhen = ready_when
        self._scraping = threading.Lock()

    def answer(self, method: str, path: str) -> ProbeAnswer:
        """Return the answer to a request. `path` may have a query, which is ignored."""
        if method not in ("GET", "HEAD"):
            return _text(405, f"{method} is not answered here: send GET or HEAD")
        match path.partition("?")[0]:
            case "/livez":
                return self._health(lambda health: health.live)
            case "/readyz":
                return self._health(lambda health: health.ready)
            case "/metrics":
                return self._scrape()
            case _:
                return _text(404, "nothing is here: there are /livez, /readyz and /metrics")

    def _health(self, good: Callable[[Health], bool]) -> ProbeAnswer:
        try:
            # Anyone who reaches the port can read the answer. Only the types of exceptions: a text may quote a message.
            health = self._connection.health(self._ready_when, texts=False)
        except ConfigurationError as error:
            return _text(503, str(error))
        return ProbeAnswer(200 if good(health) else 503, JSON, f"{health.as_json()}\n".encode())

    def _scrape(self) -> ProbeAnswer:
        if self._metrics is None:
            # The command line serves metrics if the package is installed.
            needs = "" if find_spec("prometheus_client") else "pip install 'redelivery[prometheus]', and "
            return _text(
                404, f"no metrics here: {needs}give metrics=redelivery.prometheus.text to serve or asgi"
            )
        # One at a time, without waiting: scrapes must not use up the connections that probes need.
        if not self._scraping.acquire(blocking=False):
            return _text(503, "another scrape has not ended yet")
        try:
            return ProbeAnswer(200, METRICS, memoryview(self._metrics()).tobytes())
        except BaseException as error:
            logger.warning("/metrics: the metrics function failed: %s", type(error).__name__)
            logger.debug("/metrics", exc_info=True)
            return _text(500, "the metrics function failed; the log has its error")
        finally:
            self._scraping.release()


def _text(status: int, sentence: str) -> ProbeAnswer:
    return ProbeAnswer(status, TEXT, f"{sentence}\n".encode())


# ---- Probe app -------------------------------------------------------------------------------------------
# Health over HTTP as an ASGI application, to be mounted in another one or served by itself.


def asgi(
    connection: HealthSource,
    *,
    metrics: Callable[[], bytes] | None = None,
    ready_when: ReadyWhen = "connected",
) -> ProbeApp:
    """Return an ASGI application that answers `/livez`, `/readyz` and `/metrics` as `serve` does.

    Mount it: `app.mount("/health", health.asgi(connection))` answers `/health/livez`. It answers on the event loop:
    while a handler blocks the loop, there is no answer. `serve` answers then, too.

    Args:
        connection: A connection of either kind; it need not be connected yet.
        metrics: Function that returns the body of `/metrics` in Prometheus' text format. None: `/metrics` is 404.
        ready_when: As for `connection.health()`. Default `connected`: with a pause or an open breaker the application
            still gets web requests.

    Returns:
        The ASGI application.

    Raises:
        ConfigurationError: `ready_when` has another value, or `metrics` is no function.
    """
    return ProbeApp(ProbeAnswers(connection, metrics, ready_when))


class ProbeApp:
    """ASGI application of probes. Made by `asgi`."""

    def __init__(self, answers: ProbeAnswers) -> None:
        self._answers = answers

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer one request, or the events of the lifespan."""
        match scope["type"]:
            case "http":
                await self._request(scope, send)
            case "lifespan":
                for event in ("startup", "shutdown"):
                    await receive()
                    await send({"type": f"lifespan.{event}.complete"})
            case _:
                # Refuse a WebSocket before it is open.
                await send({"type": "websocket.close"})

    async def _request(
        self, scope: MutableMapping[str, Any], send: Callable[[MutableMapping[str, Any]], Awaitable[None]]
    ) -> None:
        # With some servers and routers the path of a mounted application begins with `root_path`, with others not.
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        found = self._answers.answer(scope["method"], path)
        headers = [
            (b"content-type", found.content_type.encode()),
            (b"content-length", str(len(found.body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": found.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else found.body})


# ---- Probe server ----------------------------------------------------------------------------------------
# HTTP server of probes: the standard library's, in a daemon thread, with a thread for each of a few connections.
#
# Each connection has one request. The server cuts the connection of a slow client after `LONGEST` seconds, or
# earlier if `MOST` are open and another one arrives. No client can then keep the next probe from its answer: on a
# busy machine the probe waits until the thread of a cut connection has ended.

# Open connections at the same time: enough for some probes, a scrape or two, and people.
MOST = 16
# Seconds that a connection may take in all.
LONGEST = 10.0
# Seconds for one read or write.
STALLED = 5.0
# Seconds between two checks of the connections; also the longest time that `close` takes.
LOOK = 0.2
LAST_PORT = 65535


def serve(
    connection: HealthSource,
    port: int,
    host: str = "127.0.0.1",
    *,
    metrics: Callable[[], bytes] | None = None,
    ready_when: ReadyWhen = "consuming",
) -> HealthServer:
    """Answer probes over HTTP from now on, in threads of its own: `/livez`, `/readyz` and `/metrics`.

    `/livez` and `/readyz` are 200 or 503, with `connection.health()` as JSON: without credentials and bodies, and with
    the type of an exception instead of its text. They are answered while the broker is down, and while a handler hangs.

    Args:
        connection: A connection of either kind; it need not be connected yet.
        port: Port to listen on; 0: a free one, which is `.port` of the result.
        host: Address or name to listen on. Default `127.0.0.1`: only this machine can connect. `0.0.0.0`: all IPv4
            addresses of this machine.
        metrics: Function that returns the body of `/metrics` in Prometheus' text format. None: `/metrics` is 404.
        ready_when: As for `connection.health()`. Default `consuming`.

    Returns:
        The server, a context manager. It runs until `close()`, or until the program ends.

    Raises:
        ConfigurationError: The port is in use, or the server cannot listen there; `ready_when` has another value; or
            `metrics` is no function.
    """
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= LAST_PORT:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"port={port!r}: must be a whole number from 0 to {LAST_PORT}", option="port"
        )
    return HealthServer(ProbeAnswers(connection, metrics, ready_when), host, port)


class HealthServer:
    """Running server of probes. Made by `serve`; a context manager that closes it."""

    def __init__(self, answers: ProbeAnswers, host: str, port: int) -> None:
        self._server = _bound(answers, host, port)
        self.host: str = host
        """Address or name that it listens on, as given."""
        self.port: int = self._server.server_address[1]
        """Port that it listens on."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(LOOK,), name="redelivery-health", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:
            self._server.server_close()
            raise
        _listening.add(self._server)

    @property
    def url(self) -> str:
        """URL of the server, without a path: `http://127.0.0.1:8080`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def close(self) -> None:
        """Stop listening, and cut the open connections. A second call does nothing."""
        # In a child process after a fork there is no thread, and the socket is closed.
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.cut_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _bound(answers: ProbeAnswers, host: str, port: int) -> _ProbeServer:
    """Return a server that listens. Raises ConfigurationError."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _ProbeServer(answers, family, address)
    except socket.gaierror as error:
        raise ConfigurationError(
            f"health endpoint {where}: no such host: {error.strerror}", option="host"
        ) from None
    except UnicodeError:
        raise ConfigurationError(
            f"health endpoint {host!r}: this is not the name of a host", option="host"
        ) from None
    except OSError as error:
        why = {
            errno.EADDRINUSE: "the port is in use; choose another one, or end the program that has it",
            errno.EACCES: "listening there is not permitted; choose a port from 1024",
            errno.EADDRNOTAVAIL: "this machine does not have the address; 0.0.0.0 is each one that it has",
        }.get(error.errno or 0, error.strerror or str(error))
        raise ConfigurationError(f"health endpoint {where}: {why}", option="port") from None


class _ProbeServer(ThreadingHTTPServer):
    """HTTP server with a limit of connections, and a time limit for each."""

    # A restarted program gets its port back at once. Not on Windows: two running programs could share the port there.
    allow_reuse_address = os.name != "nt"
    request_queue_size = 64
    block_on_close = False

    def __init__(self, answers: ProbeAnswers, family: socket.AddressFamily, address: Any) -> None:
        self.address_family = family
        # Also wakes the thread that accepts connections, when a connection has ended.
        self._turn = threading.Condition()
        # Connections and the times at which they began, oldest first; without those that were cut.
        self._open: dict[Any, float] = {}
        self._serving = 0
        self._closing = False
        super().__init__(address, partial(_ProbeRequest, answers))

    def server_bind(self) -> None:
        """Bind the socket. The base class would look up the machine's name, and might wait for a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Without a free file descriptor, sleep before the caller tries again."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(LOOK)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection; cut the oldest one if there are too many.

        If there are too many threads, wait for one to end. A thread of a cut connection ends at once, unless its answer
        hangs; with `2 * MOST` of these another thread would hang, too.
        """
        with self._turn:
            while len(self._open) >= MOST:
                self._cut(next(iter(self._open)))
            while self._serving >= 2 * MOST and not self._closing:
                self._turn.wait(LOOK)
                self._cut_late()
            refused = self._closing
            if not refused:
                self._open[request] = time.monotonic()
                self._serving += 1
        if refused:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._ended(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, in its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._ended(request)

    def service_actions(self) -> None:
        """Cut the connections that have taken too long. Called between connections, and each `LOOK` seconds."""
        with self._turn:
            self._cut_late()

    def shutdown(self) -> None:
        """Accept no further connection, and stop the loop."""
        self._closing = True
        super().shutdown()

    def cut_all(self) -> None:
        """Cut all connections."""
        with self._turn:
            for request in list(self._open):
                self._cut(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's signature
        """Log the error that ended a connection: mostly its client has closed it."""
        logger.debug("health endpoint: a connection has failed", exc_info=True)  # noqa: LOG014 - called in an except

    def _cut_late(self) -> None:
        """Cut the connections that have taken too long. With the lock held."""
        began = time.monotonic() - LONGEST
        for request in [each for each, since in self._open.items() if since < began]:
            self._cut(request)

    def _cut(self, request: Any) -> None:
        """End a connection: its thread wakes with an error. With the lock held."""
        del self._open[request]
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def _ended(self, request: Any) -> None:
        with self._turn:
            self._open.pop(request, None)
            self._serving -= 1
            self._turn.notify()


class _ProbeRequest(BaseHTTPRequestHandler):
    """One connection, with one request."""

    timeout = STALLED
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def __init__(self, answers: ProbeAnswers, *given: Any) -> None:
        self._answers = answers
        # The constructor of the base class also serves the connection.
        super().__init__(*given)

    def do_GET(self) -> None:
        """Answer a request."""
        found = self._answers.answer(self.command, self.path)
        self.send_response(found.status)
        self.send_header("Content-Type", found.content_type)
        self.send_header("Content-Length", str(len(found.body)))
        self.send_header("Cache-Control", "no-store")
        if found.status == 405:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found.body)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET  # noqa: N815 - names of the base class

    def version_string(self) -> str:
        """Return the header `Server`: no versions."""
        return "redelivery"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        """Log nothing: probes arrive every few seconds."""


_listening: WeakSet[_ProbeServer] = WeakSet()


def _forked() -> None:
    """Close the parent's sockets in a child process: else the port stays in use after the parent's end."""
    for server in tuple(_listening):
        with suppress(OSError):
            server.socket.close()
    _listening.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)
