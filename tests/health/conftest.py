"""Fixture of a connection whose health a test sets."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from redelivery import Report
from redelivery.errors import ConfigurationError
from redelivery.health import ConnectionHealth, Health

if TYPE_CHECKING:
    from redelivery.health import HealthServer, ReadyWhen

PATIENCE = 60.0


class Source:
    """Replacement of a connection for `serve` and `asgi`: a test sets if it is live and ready."""

    def __init__(self) -> None:
        self.live = self.ready = True
        self.reasons: tuple[str, ...] = ()
        self.asked: list[tuple[str, bool]] = []
        self.refuses: str | None = None

    def health(self, ready_when: ReadyWhen = "consuming", *, texts: bool = True) -> Health:
        """Return the health that the test has set."""
        self.asked.append((ready_when, texts))
        if self.refuses is not None:
            raise ConfigurationError(self.refuses)
        where = ConnectionHealth(connected=True, address="a:1", broker="b", since_s=1.0, reconnects=0)
        return Health(self.live, self.ready, self.reasons, where, (), Report())


class Response(NamedTuple):
    """Response that a client gets."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask(server: HealthServer, path: str, method: str = "GET", body: Any = None) -> Response:
    """Return the response to a request of a client that behaves well."""
    client = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
    try:
        client.request(method, path, body=body)
        response = client.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Response(response.status, headers, response.read())
    finally:
        client.close()


@pytest.fixture
def source() -> Source:
    """Return a connection that is live and ready."""
    return Source()
