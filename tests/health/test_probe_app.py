"""Health as an ASGI application."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery import health

if TYPE_CHECKING:
    from tests.health.conftest import Source


def said(app: Any, scope: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages that an application sends for a scope."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent


def request(app: Any, path: str, method: str = "GET", **scope: Any) -> tuple[int, dict[bytes, bytes], bytes]:
    start, body = said(app, {"type": "http", "method": method, "path": path, **scope})
    assert (start["type"], body["type"]) == ("http.response.start", "http.response.body")
    return start["status"], dict(start["headers"]), body["body"]


def test_request(source: Source) -> None:
    """The answers are those of the server, with their type and length."""
    source.ready = False
    app = health.asgi(source, metrics=lambda: b"m 1\n")
    status, headers, body = request(app, "/livez")
    assert (status, headers[b"content-type"]) == (200, b"application/json")
    assert headers[b"content-length"] == str(len(body)).encode()
    assert headers[b"cache-control"] == b"no-store"
    assert [request(app, path)[0] for path in ("/readyz", "/metrics", "/x")] == [503, 200, 404]


def test_head(source: Source) -> None:
    """HEAD has the headers of GET, and no body."""
    app = health.asgi(source)
    get, head = request(app, "/livez"), request(app, "/livez", "HEAD")
    assert (head[:2], head[2]) == (get[:2], b"")


@pytest.mark.parametrize("path", ["/livez", "/health/livez"])
def test_mounted(source: Source, path: str) -> None:
    """The path of a mounted application may begin with its mount point, or not."""
    assert request(health.asgi(source), path, root_path="/health")[0] == 200


def test_by_itself(source: Source) -> None:
    """A server may run the application alone: it has a lifespan, and refuses WebSockets."""
    app = health.asgi(source)
    assert said(app, {"type": "lifespan"}) == [
        {"type": "lifespan.startup.complete"},
        {"type": "lifespan.shutdown.complete"},
    ]
    assert said(app, {"type": "websocket"}) == [{"type": "websocket.close"}]


def test_an_open_breaker_leaves_it_ready_by_default(source: Source) -> None:
    """An open breaker leaves the application ready by default; a wrong argument is refused at once."""
    health.asgi(source)
    assert source.asked[0][0] == "connected"
    with pytest.raises(redelivery.ConfigurationError, match="ready_when"):
        health.asgi(redelivery.connect("memory://x"), ready_when="conected")  # type: ignore[arg-type]
    wrong: Any
    for wrong in (True, "text"):
        with pytest.raises(redelivery.ConfigurationError, match=f"metrics={wrong!r}: must be a function"):
            health.asgi(redelivery.connect("memory://x"), metrics=wrong)
