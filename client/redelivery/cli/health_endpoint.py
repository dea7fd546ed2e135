"""Options of `consume` that show its health to a supervisor: `--health`, `--health-file`, `--systemd`."""

from __future__ import annotations

import os
import re
import socket
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import click

from redelivery.cli.app import WrongValue
from redelivery.cli.formatting import note
from redelivery.errors import ConfigurationError
from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from redelivery.events import Observer
    from redelivery.health.probes import HealthSource

__all__ = ["Supervision", "SystemdNotify", "health_options"]


# ---- Health endpoint -------------------------------------------------------------------------------------

# Seconds between two touches of the file: a probe that tolerates two late ones uses 15.
TOUCH = 5.0
# Seconds between two checks whether it is ready, before systemd is notified.
READY = 0.2
LAST_PORT = 65535
_ADDRESS = re.compile(r"(?:(?P<host>[^:\[\]\s/]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")

Command = TypeVar("Command", bound="Callable[..., Any]")


def address(value: object) -> tuple[str, int]:
    """Read `[HOST:]PORT`; without a host only this machine can connect."""
    found = _ADDRESS.fullmatch(str(value))
    if found is None or int(found["port"]) > LAST_PORT:
        raise WrongValue(f"must be PORT or HOST:PORT, as in 8080 or 0.0.0.0:8080, not {str(value)!r}")
    return (found["host"] or "127.0.0.1").strip("[]"), int(found["port"])


def health_options(command: Command) -> Command:
    """Add the options, which `Supervision.of` reads."""
    for option in (
        click.option(
            "--systemd", is_flag=True,
            help="Notify systemd when messages are consumed, and its watchdog while this process is live. A broker "
            "that is down at the start is waited for.",
        ),
        click.option(
            "--health-file", type=click.Path(dir_okay=False), metavar="PATH",
            help="Touch this file each 5 s while this process is live.",
        ),
        click.option(
            "--health", type=address, metavar="[HOST:]PORT",
            help="Answer /livez, /readyz and /metrics over HTTP there; without HOST for this machine alone. A broker "
            "that is down at the start is waited for.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


class Exposition(NamedTuple):
    """Text of `/metrics`, and the observer that counts for it."""

    observer: Observer
    text: Callable[[], bytes]


class Supervision(NamedTuple):
    """Ways in which a supervisor sees the health of a connection."""

    address: tuple[str, int] | None
    file: Path | None
    systemd: bool
    exposition: Exposition | None

    @classmethod
    def of(cls, given: dict[str, Any]) -> Supervision:
        """Return it for the arguments of a command."""
        file = given["health_file"]
        exposition = None if given["health"] is None else _exposition()
        return cls(given["health"], None if file is None else Path(file), given["systemd"], exposition)

    @property
    def patient(self) -> bool:
        """True if the start waits for a broker that is down: the process is live meanwhile."""
        return self.address is not None or self.systemd

    def observers(self) -> list[Observer]:
        """Return the observers that count for `/metrics`, if it is served and the extra `prometheus` is installed."""
        return [] if self.exposition is None else [self.exposition.observer]

    @contextmanager
    def of_connection(self, connection: HealthSource) -> Generator[None]:
        """Show its health, from before it connects until after it is closed.

        Raises:
            ConfigurationError: The port is in use, or the file cannot be written.
        """
        with ExitStack() as stack:
            if self.address is not None:
                from redelivery.health import serve  # noqa: PLC0415 - http.server at first use

                host, port = self.address
                metrics = None if self.exposition is None else self.exposition.text
                server = stack.enter_context(serve(connection, port, host, metrics=metrics))
                also = "" if metrics is None else f", metrics: {server.url}/metrics"
                note(f"health: {server.url}/livez and {server.url}/readyz{also}")
            if self.file is not None:
                stack.enter_context(_repeated(HealthFile(connection, self.file).touch))
            if self.systemd:
                stack.enter_context(_repeated(SystemdBeat(connection, SystemdNotify.from_environment()).beat))
            yield


def _exposition() -> Exposition | None:
    """Return the metrics of this connection and this process; None: the extra is not installed."""
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector  # noqa: PLC0415 - an extra

        from redelivery.prometheus import Metrics, text  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return Exposition(Metrics(registry), lambda: text(registry))


class HealthFile:
    """File whose modification time shows that a process is live."""

    def __init__(self, connection: HealthSource, path: Path) -> None:
        """Touch it for the first time. Raises ConfigurationError if that fails."""
        self._connection = connection
        self._path = path
        self._failing = False
        try:
            path.touch()
        except OSError as error:
            raise ConfigurationError(
                f"--health-file {path}: {error.strerror}", option="--health-file"
            ) from None

    def touch(self) -> float | None:
        """Touch the file if the process is live; return the seconds until the next touch."""
        if self._connection.health().live:
            try:
                self._path.touch()
            except OSError as error:
                if not self._failing:
                    logger.warning("--health-file %s: %s; it is tried again", self._path, error.strerror)
                self._failing = True
            else:
                self._failing = False
        return TOUCH


class SystemdBeat:
    """Notifies systemd: once that messages are consumed, and repeatedly that the process is live."""

    def __init__(self, connection: HealthSource, systemd: SystemdNotify) -> None:
        self._connection = connection
        self._systemd = systemd
        self._ready = False

    def beat(self) -> float | None:
        """Send what is due; return the seconds until the next call; None: none."""
        health = self._connection.health("connected")
        if health.ready and not self._ready:
            self._ready = True
            self._systemd.send("READY=1")
        watchdog = self._systemd.interval
        if watchdog is not None and health.live:
            self._systemd.send("WATCHDOG=1")
        return watchdog if self._ready else READY


@contextmanager
def _repeated(beat: Callable[[], float | None]) -> Generator[None]:
    """Call a function on a thread of its own, again after the seconds that it returns, until it returns None."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set() and (wait := beat()) is not None:
            ended.wait(wait)

    thread = threading.Thread(target=run, name="redelivery-supervised", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


# ---- Systemd notify --------------------------------------------------------------------------------------
# Notifications to systemd, as of sd_notify(3): datagrams to the socket of `NOTIFY_SOCKET`.


class SystemdNotify:
    """Sender of notifications; without a socket it sends none."""

    def __init__(self, path: str, interval: float | None) -> None:
        self._path = f"\0{path[1:]}" if path.startswith("@") else path
        self.interval = interval
        """Seconds between two beats for the watchdog: half of `WatchdogSec=`. None: there is no watchdog."""

    @classmethod
    def from_environment(cls) -> Self:
        """Return the sender of this process. It ignores a watchdog of another process."""
        path, limit = os.environ.get("NOTIFY_SOCKET", ""), os.environ.get("WATCHDOG_USEC", "")
        if not path:
            logger.warning(
                "--systemd: NOTIFY_SOCKET is not set; systemd is not notified (set Type=notify in the unit)"
            )
        mine = os.environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        return cls(path, int(limit) / 2e6 if path and mine and limit.isdecimal() and int(limit) else None)

    def send(self, state: str) -> None:
        """Send one state, such as `READY=1`. Failures are logged: the work goes on."""
        if self._path:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                    # A reader that hangs must not stop the program.
                    sender.settimeout(1.0)
                    sender.connect(self._path)
                    sender.sendall(state.encode())
            except OSError as error:
                logger.warning("--systemd: %s could not be sent: %s", state, error)
