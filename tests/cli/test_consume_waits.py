"""`redelivery consume` for a supervisor, on a broker that is down at its start."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tests.eventually import eventually
from tests.idle_time import IDLE, idle_once

from redelivery.driver.connection.connection_base import ConnectionBase
from redelivery.driver.consumer import async_worker
from redelivery.driver.consumer.dispatcher import Dispatcher
from redelivery.errors import AdapterError, TransportError
from redelivery.health.probes import _listening
from redelivery_memory.adapter import MemoryAdapter

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery_memory import MemoryBroker

HANDLERS = """
def plain(message):
    pass

async def waits(message):
    pass
"""


@pytest.fixture(autouse=True)
def handlers(tmp_path: Path) -> None:
    """A module of handlers in the current directory."""
    (tmp_path / "handlers.py").write_text(HANDLERS)


class Door:
    """Refuses connections in turn, and checks the probes at each."""

    def __init__(self) -> None:
        self.refusals: list[Exception] = []
        self.seen: list[tuple[int, int, str]] = []
        """Status of `/livez` and of `/readyz`, and the consumer's name."""

    def knock(self) -> None:
        """Handle one attempt to connect."""
        for server in [each for each in _listening if each.fileno() >= 0]:
            base = f"http://127.0.0.1:{server.server_port}"
            with urlopen(f"{base}/livez") as answer:
                live, body = answer.status, json.loads(answer.read())
            with pytest.raises(HTTPError) as unready:
                urlopen(f"{base}/readyz")
            unready.value.close()
            self.seen.append((live, unready.value.code, body["consumers"][0]["destination"]))
        if self.refusals:
            raise self.refusals.pop(0)


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    """Refusals of the broker in this process."""
    made, plain = Door(), MemoryAdapter.open

    def opened(self: MemoryAdapter, *given: Any) -> Any:
        made.knock()
        return plain(self, *given)

    monkeypatch.setattr(MemoryAdapter, "open", opened)
    return made


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("handler", ["plain", "waits"])
def test_a_broker_that_is_down_is_waited_for(cli: Any, uri: str, door: Door, handler: str) -> None:
    """With --health the process is live and not ready until the broker answers; then it consumes."""
    door.refusals = [TransportError("down")] * 3
    ended = cli("consume", uri, "orders", "--handler", f"handlers:{handler}", "--count", "3", "--health", "0")
    assert ended.code == 0
    assert ended.err.splitlines()[-1] == "report: accepted 3"
    assert door.seen == [(200, 503, "queue://orders")] * 4


@pytest.mark.usefixtures("shop")
def test_systemd_waits_too(cli: Any, uri: str, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --systemd the start waits for a broker that is down."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    door.refusals = [TransportError("down")] * 2
    ended = cli("consume", uri, "orders", "--handler", "handlers:plain", "--count", "3", "--systemd")
    assert (ended.code, door.refusals) == (0, [])


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("options", "limit"), [([], ""), (["--health-file", "live"], ""), (["--health", "0"], "1")]
)
def test_otherwise_it_ends(cli: Any, uri: str, door: Door, options: list[str], limit: str) -> None:
    """Without these options, or where the URI sets a limit, a broker that is down is exit code 69."""
    door.refusals = [TransportError("down")] * 2
    given = f"failover:(memory://shop)?startupMaxReconnectAttempts={limit}" if limit else uri
    ended = cli("consume", given, "orders", "--handler", "handlers:plain", *options)
    assert (ended.code, len(door.refusals)) == (69, 1)


@pytest.mark.usefixtures("shop")
def test_a_refused_log_in_is_not_waited_for(cli: Any, uri: str, door: Door) -> None:
    """A refused log-in is exit code 77 also where the start waits for a broker."""
    door.refusals = [TransportError("down"), AdapterError("wrong password")]
    ended = cli("consume", uri, "orders", "--handler", "handlers:plain", "--health", "0")
    assert (ended.code, door.refusals) == (77, [])


@pytest.mark.parametrize("handler", ["plain", "waits"])
@pytest.mark.parametrize("slow", ["start", "dispatch"])
def test_idle_begins_when_nothing_is_left_to_do(
    cli: Any, shop: MemoryBroker, uri: str, monkeypatch: pytest.MonkeyPatch, handler: str, slow: str
) -> None:
    """Neither a slow subscription nor a message that waits for its worker is idle time."""
    time = idle_once(monkeypatch, lambda: shop.depth("orders") == 0)
    where: Any = ConnectionBase if slow == "start" else Dispatcher if handler == "plain" else async_worker
    name = "_dispatcher" if slow == "start" else "take" if handler == "plain" else "message_for"
    plain = getattr(where, name)

    def late(*arguments: Any) -> Any:
        time.now += 100 * IDLE
        before = time.looks
        if where is Dispatcher and shop.depth("orders"):
            # On a thread of its own, a worker does not keep the run from looking.
            eventually(lambda: time.looks >= before + 10)
        return plain(*arguments)

    monkeypatch.setattr(where, name, late)
    ended = cli("consume", uri, "orders", "--handler", f"handlers:{handler}", "--idle", str(IDLE))
    assert ended.err.splitlines()[-1] == "report: accepted 3"
