"""A Docker engine: the one that answers, or a temporary one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import docker

from integration.brokers import containers
from integration.brokers.process import ServerProcess
from integration.brokers.toolchain import BrokerError, progress, run

if TYPE_CHECKING:
    from collections.abc import Iterator

_BRIDGE = Path("/sys/class/net/docker0")
_DRIVERS = ("overlay2", "vfs")  # the second one is slow, and works on any file system


@contextlib.contextmanager
def engine() -> Iterator[dict[str, str]]:
    """Yield the variables by which clients find an engine, which runs until the end of the block."""
    problem = containers.engine_problem()
    if problem is None:
        yield {}
        return
    if os.geteuid() or shutil.which("dockerd") is None:
        raise BrokerError(f"{problem}; to start one takes root, and dockerd (Debian's package docker.io)")
    with tempfile.TemporaryDirectory(prefix="redelivery-engine-") as folder, _started(Path(folder)) as socket:
        yield {"DOCKER_HOST": f"unix://{socket}"}


@contextlib.contextmanager
def _started(folder: Path) -> Iterator[Path]:
    had_bridge = _BRIDGE.exists()
    try:
        daemon = _start(folder)
        try:
            yield folder / "socket"
        finally:
            daemon.stop()
    finally:
        if _BRIDGE.exists() and not had_bridge:
            run(["ip", "link", "delete", "docker0"], "removing the engine's bridge")


def _start(folder: Path) -> ServerProcess:
    argv = ["dockerd", f"--host=unix://{folder}/socket", f"--pidfile={folder}/pid"]
    argv += [f"--data-root={folder}/data", f"--exec-root={folder}/exec"]
    # The engine's own proxy publishes ports: the machine's packet filter is not changed.
    argv += ["--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    for driver in _DRIVERS:
        progress(f"starting a Docker engine on {driver}")
        log = folder / f"{driver}.log"
        daemon = ServerProcess([*argv, f"--storage-driver={driver}"], log=log, ready="API listen on")
        try:
            daemon.start()
        except BrokerError as error:
            failure = error
        else:
            return daemon
    raise failure


def client(variables: dict[str, str]) -> docker.DockerClient:
    """Return a client of the engine in `variables`, with a time-out of minutes, for builds."""
    return docker.DockerClient.from_env(environment={**os.environ, **variables}, timeout=600)
