"""`redelivery consume` for supervisors: `--health`, `--health-file`, `--systemd`."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.health.conftest import Source

from redelivery.cli.health_endpoint import READY, TOUCH, HealthFile, SystemdBeat, SystemdNotify, address
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redelivery_memory import MemoryBroker

HANDLERS = """
import threading
from urllib.request import urlopen
from redelivery.health.probes import _listening

hold = threading.Event()
found = []

def asks(message):
    port, = (server.server_port for server in _listening if server.fileno() >= 0)
    for path in ("livez", "readyz", "metrics"):
        with urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
            found.append((answer.status, answer.read()))

async def asks_async(message):
    asks(message)

def holds(message):
    hold.wait(60)
"""


@pytest.fixture
def handlers(tmp_path: Path) -> None:
    """Module of handlers in the current directory."""
    (tmp_path / "handlers.py").write_text(HANDLERS)


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Return the socket that systemd reads."""
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind("notify")  # a path of a test may be too long
        monkeypatch.setenv("NOTIFY_SOCKET", "notify")
        yield made


@pytest.mark.parametrize("handler", ["asks", "asks_async"])
@pytest.mark.usefixtures("handlers")
def test_health(cli: Any, shop: MemoryBroker, uri: str, handler: str) -> None:
    """Probes are answered while messages are handled; the note says where; the server ends with the program."""
    ended = cli("consume", uri, "orders", "--handler", f"handlers:{handler}", "--count", "3", "--health", "0")
    assert ended.code == 0
    note, report = ended.err.splitlines()
    assert note.startswith("health: http://127.0.0.1:")
    assert "/livez and " in note
    assert note.endswith("/metrics")
    assert report == "report: accepted 3"
    found = sys.modules["handlers"].found
    assert [status for status, _ in found] == [200] * 9
    families = {each.name: each for each in text_string_to_metric_families(found[-1][1].decode())}
    accepted = {
        sample.value
        for sample in families["redelivery_outcomes"].samples
        if sample.labels == {"destination": "queue://orders", "outcome": "accepted"}
    }
    assert accepted == {2.0}
    assert json.loads(found[0][1])["consumers"][0]["destination"] == "queue://orders"
    assert "redelivery-health" not in [each.name for each in threading.enumerate()]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("8080", ("127.0.0.1", 8080)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
        ("[::]:8080", ("::", 8080)),
        ("localhost:1", ("localhost", 1)),
    ],
)
def test_address(given: str, expected: tuple[str, int]) -> None:
    """A port, or host and port; an address of IPv6 in brackets."""
    assert address(given) == expected


@pytest.mark.parametrize(
    "given", ["", "x", ":8080", "65536", "a:b:80", "::1:80", "-1", "http://a:80", "a:80/livez", "٣"]
)
def test_wrong_address(cli: Any, given: str) -> None:
    """A mistake is a usage error before anything is connected."""
    with pytest.raises(click.BadParameter):
        address(given)
    ended = cli("consume", "stomp://127.0.0.1:1", "orders", f"--health={given}")
    assert (ended.code, ended.out) == (2, "")
    assert "--health must be PORT or HOST:PORT, as in 8080 or 0.0.0.0:8080, not" in ended.error


def test_port_in_use(cli: Any, uri: str) -> None:
    """A port in use is one line, and exit code 78, before a connection."""
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        ended = cli("consume", "stomp://127.0.0.1:1", "orders", "--health", port)
    assert ended.code == 78
    assert f"health endpoint 127.0.0.1:{port}: the port is in use" in ended.error


@pytest.mark.usefixtures("handlers")
def test_health_file(cli: Any, shop: MemoryBroker, uri: str, tmp_path: Path) -> None:
    """The file exists as soon as the program runs."""
    arguments = ("--exec", "test -f live", "--count", "3", "--health-file", "live")
    assert cli("consume", uri, "orders", *arguments).err == "report: accepted 3\n"
    assert (tmp_path / "live").read_bytes() == b""


def test_health_file_that_cannot_be_written(cli: Any, uri: str, tmp_path: Path) -> None:
    """A file that cannot be written is one line, without a connection; a folder is a usage error."""
    ended = cli("consume", "stomp://127.0.0.1:1", "orders", "--health-file", "no/live")
    assert ended.code == 78
    assert ended.error == "redelivery: --health-file no/live: No such file or directory"
    ended = cli("consume", "stomp://127.0.0.1:1", "orders", "--health-file", str(tmp_path))
    assert (ended.code, "is a directory" in ended.error) == (2, True)


def test_the_file_is_touched_while_live(tmp_path: Path) -> None:
    """The file is touched while the process is live, ready or not."""
    path, source = tmp_path / "live", Source()
    file = HealthFile(source, path)
    for source.live, source.ready, touched in (
        (True, False, True),
        (False, False, False),
        (True, True, True),
    ):
        os.utime(path, (0, 0))
        assert file.touch() == TOUCH
        assert (path.stat().st_mtime > 0) == touched


def test_a_file_that_can_be_touched_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Failures in a row are one WARNING, and touching goes on."""
    folder = tmp_path / "run"
    folder.mkdir()
    file = HealthFile(Source(), folder / "live")
    for _ in range(2):
        (folder / "live").unlink()
        folder.rmdir()
        file.touch()
        file.touch()
        folder.mkdir()
        file.touch()
        assert (folder / "live").exists()
    assert [record.getMessage() for record in caplog.records] == [
        f"--health-file {folder / 'live'}: No such file or directory; it is tried again"
    ] * 2
    with pytest.raises(ConfigurationError):
        HealthFile(Source(), tmp_path / "no" / "live")


@pytest.mark.usefixtures("handlers")
def test_systemd(
    cli: Any, shop: MemoryBroker, uri: str, systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systemd is notified once when messages are consumed, and its watchdog repeatedly."""
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    received: list[bytes] = []

    def read() -> None:
        while received.count(b"WATCHDOG=1") < 3 or b"READY=1" not in received:
            received.append(systemd.recv(100))
        sys.modules["handlers"].hold.set()

    reader = threading.Thread(target=read)
    reader.start()
    ended = cli("consume", uri, "orders", "--handler", "handlers:holds", "--count", "1", "--systemd")
    reader.join()
    assert ended.code == 0
    assert received.count(b"READY=1") == 1
    assert "redelivery-supervised" not in [each.name for each in threading.enumerate()]


def test_what_systemd_is_sent(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """READY is sent once, when ready; WATCHDOG only while live."""
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    source = Source()
    beat = SystemdBeat(source, SystemdNotify.from_environment()).beat
    source.ready = False
    assert beat() == READY
    source.ready = True
    assert [beat(), beat()] == [15.0, 15.0]
    source.live = source.ready = False
    assert beat() == 15.0
    systemd.settimeout(0)
    received = [systemd.recv(100) for _ in range(4)]
    assert received == [b"WATCHDOG=1", b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
    with pytest.raises(BlockingIOError):
        systemd.recv(100)


@pytest.mark.parametrize(
    ("limit", "process", "interval"),
    [("2000000", "", 1.0), ("2000000", "1", None), ("", "", None), ("0", "", None), ("x", "", None)],
)
def test_watchdog(
    systemd: socket.socket, monkeypatch: pytest.MonkeyPatch, limit: str, process: str, interval: float | None
) -> None:
    """Only the watchdog of this process is served, at half of its limit; without one, READY is the last message."""
    monkeypatch.setenv("WATCHDOG_USEC", limit)
    monkeypatch.setenv("WATCHDOG_PID", process)
    notify = SystemdNotify.from_environment()
    assert notify.interval == interval
    assert SystemdBeat(Source(), notify).beat() == interval


def test_without_systemd(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Without its socket a WARNING says so, and nothing is sent; a socket that is gone is a WARNING."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    notify = SystemdNotify.from_environment()
    notify.send("READY=1")
    assert notify.interval is None
    assert [record.getMessage() for record in caplog.records] == [
        "--systemd: NOTIFY_SOCKET is not set; systemd is not notified (set Type=notify in the unit)"
    ]
    caplog.clear()
    SystemdNotify("@redelivery-nothing-listens-here", None).send("READY=1")
    assert "--systemd: READY=1 could not be sent: " in caplog.text
