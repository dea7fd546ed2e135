"""Health of a connection: what `connection.health()` returns, and the answers to probes over HTTP.

- `serve(connection, 8080)` answers `/livez` and `/readyz` in threads of its own; `asgi(connection)` is the same as an
  ASGI application, to be mounted. Both take `metrics=redelivery.prometheus.text` for `/metrics`, and `ready_when=`.
- `connection.health().as_dict()` is the state as dictionaries and plain values.

`serve` and `asgi` are loaded at first use: a program that serves no probes loads no HTTP server.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from redelivery.health.snapshot import ConnectionHealth, ConsumerHealth, ConsumerState, Health, ReadyWhen

if TYPE_CHECKING:
    from redelivery.health.probes import HealthServer, asgi, serve

__all__ = [
    "ConnectionHealth",
    "ConsumerHealth",
    "ConsumerState",
    "Health",
    "HealthServer",
    "ReadyWhen",
    "asgi",
    "serve",
]

_HOMES = {"HealthServer": "probes", "asgi": "probes", "serve": "probes"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'redelivery.health' has no attribute {name!r}")
    value = getattr(import_module(f"redelivery.health.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names, also those that are loaded at first use: `help` shows them."""
    return sorted({*globals(), *__all__})
