"""Answers to probes: `/livez`, `/readyz` and `/metrics`, for the server and for the ASGI application.

No I/O, and no lock for longer than a copy takes, except in the application's own metrics function.
"""

from __future__ import annotations

import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Protocol

from redelivery.errors import ConfigurationError
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.health.snapshot import Health, ReadyWhen

__all__ = ["HealthSource", "ProbeAnswer", "ProbeAnswers"]

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
