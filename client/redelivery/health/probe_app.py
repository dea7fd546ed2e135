"""Health over HTTP as an ASGI application, to be mounted in another one or served by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redelivery.health.probe_answers import ProbeAnswers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from redelivery.health.probe_answers import HealthSource
    from redelivery.health.snapshot import ReadyWhen

__all__ = ["ProbeApp", "asgi"]


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
