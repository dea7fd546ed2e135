"""Ports for servers of a test run."""

from __future__ import annotations

import atexit
import random
import socket
import sys

__all__ = ["HOST", "free_ports"]

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return unused ports, below the kernel's range for outgoing connections.

    From that range a client's own socket could take the port of a broker that is down for a restart. No other process
    of a test run on this machine gets these ports while this process runs.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if _reserve(port):
            found.append(port)
    return found


def _reserve(port: int) -> bool:
    """Reserve the port's name among Linux' abstract sockets until this process ends; False if a test process has it."""
    if sys.platform != "linux":
        return True
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0redelivery-port-{port}")
    except OSError:
        name.close()
        return False
    atexit.register(name.close)
    return True
