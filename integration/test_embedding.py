"""The programs of `examples/embedding` with a real Artemis: they work, drain at SIGTERM, and lose no message."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest
from tests.needs import need

from integration.embedded import GRACE, QUEUE, asked, left, protocol, sent, status, uri
from integration.eventually import SLACK, eventually
from integration.program import EXAMPLES, Program, WebProgram

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from integration.brokers import Broker
    from integration.proxy import LinkProxy

pytestmark = [
    pytest.mark.ci("web applications in processes"),
    pytest.mark.own_broker("uses the queue of the examples"),
]

__all__ = ["protocol", "uri"]

# Seconds of `send_timeout` in the examples.
SEND_TIMEOUT = 5.0
# uvicorn sends the signal to itself again after a clean shutdown.
IN_GOOD_ORDER = {0, -signal.SIGTERM}
SLOW = """
import asyncio
from fastapi_app import app, connection

@connection.listen("{queue}")
async def handle(message):
    print("began", message.text, flush=True)
    await asyncio.sleep(8)
    print("ended", message.text, flush=True)
"""


def fastapi(uri: str, app: str = "fastapi_app:app", folder: Path = EXAMPLES) -> WebProgram:
    for package in ("fastapi", "uvicorn"):
        need(package)
    return WebProgram(
        ["-m", "uvicorn", app, "--port", "PORT"], folder=folder, environment={"REDELIVERY_URL": uri}
    )


# FastAPI under uvicorn.


def test_fastapi_sends_and_consumes(uri: str) -> None:
    """A request sends a message, the same process handles it, and the probes succeed."""
    with fastapi(uri) as program:
        eventually(lambda: status(f"{program.url}/health/readyz") == 200)
        assert asked(f"{program.url}/orders/bolt", b"")[0] == 202
        eventually(lambda: json.loads(asked(f"{program.url}/handled")[1]) == ["bolt"])
        health = asked(f"{program.url}/health/livez")[1]
        assert json.loads(health)["connection"]["broker"].startswith("artemis")
        assert "secret" not in health
        assert program.terminated(GRACE) in IN_GOOD_ORDER
        assert "Application shutdown complete" in program.output


def test_fastapi_drains(uri: str, protocol: str, artemis: Broker, unique_queue: str, tmp_path: Path) -> None:
    """SIGTERM lets a running handler finish; prefetched messages stay on the broker."""
    (tmp_path / "slow_app.py").write_text(SLOW.format(queue=unique_queue), encoding="utf-8")
    with fastapi(artemis.uri(protocol=protocol), "slow_app:app", tmp_path) as program:
        sent(uri, 3, unique_queue)
        program.prints("began")
        assert program.terminated(GRACE) in IN_GOOD_ORDER
        began, ended = (
            re.findall(rf"^{word} (\S+)", program.output, re.MULTILINE) for word in ("began", "ended")
        )
    assert len(began) == 1
    assert began == ended
    assert sorted([*ended, *left(uri, unique_queue, expected=2)]) == ["item-0", "item-1", "item-2"]


@pytest.mark.parametrize("how", ["refused", "stalled"])
def test_fastapi_without_a_broker(
    uri: str, artemis: Broker, make_proxy: Callable[..., LinkProxy], protocol: str, how: str
) -> None:
    """Without a broker a request fails in `send_timeout`, the process stays live, and SIGTERM ends it in time."""
    proxy = make_proxy(artemis.ports[protocol], opaque=protocol == "amqp")
    with fastapi(artemis.uri(protocol=protocol, port=proxy.port)) as program:
        eventually(lambda: status(f"{program.url}/health/readyz") == 200)
        if how == "refused":
            proxy.refuse()
            proxy.cut()
            eventually(lambda: status(f"{program.url}/health/readyz") == 503)
        else:
            # It never resumes: a DISCONNECT that arrives with the end of the stream may deadlock Artemis' STOMP.
            proxy.stall()
        began = time.monotonic()
        assert asked(f"{program.url}/orders/bolt", b"")[0] == 503
        assert time.monotonic() - began < SEND_TIMEOUT + SLACK
        assert status(f"{program.url}/health/livez") == 200
        assert program.terminated(GRACE) in IN_GOOD_ORDER
        assert "Application shutdown complete" in program.output


def test_fastapi_starts_before_its_broker(
    uri: str, artemis: Broker, make_proxy: Callable[..., LinkProxy]
) -> None:
    """The application starts without a broker, live and not ready, and consumes when the broker starts."""
    proxy = make_proxy(artemis.ports["stomp"])
    proxy.refuse()
    with fastapi(artemis.uri(port=proxy.port)) as program:
        eventually(lambda: status(f"{program.url}/health/livez") == 200)
        assert status(f"{program.url}/health/readyz") == 503
        proxy.accept()
        eventually(lambda: status(f"{program.url}/health/readyz") == 200)
        assert asked(f"{program.url}/orders/bolt", b"")[0] == 202
        eventually(lambda: json.loads(asked(f"{program.url}/handled")[1]) == ["bolt"])


# Django.


def test_django_command(uri: str, tmp_path: Path) -> None:
    """Django's command uses Django's settings and database, keeps no database connection, and drains at SIGTERM."""
    need("django")
    database = tmp_path / "orders.sqlite"
    environment = {"REDELIVERY_URL": uri, "DATABASE": str(database)}
    with Program(
        ["manage.py", "consume_orders"], folder=EXAMPLES / "django_shop", environment=environment
    ) as program:
        bodies = sent(uri, 20)

        def written() -> list[str]:
            with sqlite3.connect(database) as reader:
                try:
                    return sorted(item for (item,) in reader.execute("SELECT item FROM orders"))
                except sqlite3.OperationalError:
                    return []

        eventually(lambda: written() == sorted(bodies))
        # Only the connection of the main thread, which made the table.
        eventually(lambda: open_files(program.process.pid).count(str(database)) <= 1)
        assert program.terminated() == 0
        assert "Report(accepted=20, redelivered=0, poisoned=0" in program.output
    assert left(uri, QUEUE) == []


def open_files(pid: int) -> list[str]:
    """Return the open files of a process, if the system shows them."""
    folder = f"/proc/{pid}/fd"
    found: list[str] = []
    for each in os.listdir(folder) if os.path.isdir(folder) else []:
        try:
            found.append(os.readlink(f"{folder}/{each}"))
        except OSError:
            continue
    return found
