"""Notifications to systemd, as of sd_notify(3): datagrams to the socket of `NOTIFY_SOCKET`."""

from __future__ import annotations

import os
import socket
from typing import Self

from redelivery.log import logger

__all__ = ["SystemdNotify"]


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
