"""A WSGI application whose workers send and consume; `gunicorn_conf.py` connects each of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import redelivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery import Connection, Message

_of_this_worker: list[Connection] = []


def connect() -> Connection:
    """Return the connection of this worker, with its listener; it is not open yet."""
    connection = redelivery.connect(os.environ["REDELIVERY_URL"], send_timeout=5)
    connection.listen("orders", handle)
    _of_this_worker.append(connection)
    return connection


def handle(message: Message) -> None:
    """Handle one order."""
    print(f"{os.getpid()} handled {message.text}", flush=True)


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Send the body of a request."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    try:
        answer, status = _of_this_worker[0].send("orders", body.decode()), "202 Accepted"
    except redelivery.TransportError as error:
        answer, status = str(error), "503 Service Unavailable"
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [answer.encode()]
