"""A Docker engine: the one that answers, or one of our own for as long as it is needed."""

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
    """The variables that lead clients to an engine, which is there until the end of the block."""
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
    # Ports are published by the engine's own proxy: nothing of the machine's packet filter is changed.
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
    """A client of the engine that `variables` lead to; building may take minutes."""
    return docker.DockerClient.from_env(environment={**os.environ, **variables}, timeout=600)
