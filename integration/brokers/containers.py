"""Brokers in containers, through testcontainers, if a Docker engine answers."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from tests.children import for_all_tests

from integration.brokers.toolchain import BrokerError, progress
from integration.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from docker.models.containers import Container

INSTALLED = find_spec("testcontainers") is not None
if TYPE_CHECKING or INSTALLED:
    import docker
    from docker.errors import DockerException, ImageNotFound, NotFound
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

# Blocks on a pipe that only the test run keeps open: any end of the test run ends the container.
_WATCHDOG = (
    "import sys, docker; sys.stdin.read() or"
    " docker.from_env().containers.get(sys.argv[1]).remove(force=True, v=True)"
)

FOLDER = "/redelivery"  # the broker's settings and data, in the container's own layer


@functools.cache
def engine_problem() -> str | None:
    """Return why no container can run here, or None."""
    if not INSTALLED:
        return "testcontainers is not installed (the extra test-all)"
    host = os.environ.get("DOCKER_HOST", "")
    if host and urlsplit(host).hostname not in {None, "localhost", "127.0.0.1", "::1"}:
        return f"the Docker engine {host} is on another machine, and the tests connect to ports of this one"
    try:
        client = docker.from_env(timeout=10)
        client.ping()
        client.close()
    except (DockerException, OSError) as error:
        return f"no Docker engine answers: {error}"
    return None


@functools.cache
def problem(image: str) -> str | None:
    """Return why no container of this image can run here, or None. Pull the image if it is missing."""
    reason = engine_problem()
    if reason is not None:
        return reason
    client = docker.from_env(timeout=60)
    try:
        client.images.get(image)
    except ImageNotFound:
        progress(f"pulling {image}")
        try:
            client.images.pull(image)
        except (DockerException, OSError) as error:
            return f"no image {image} here, and it cannot be pulled: {error}"
    finally:
        client.close()
    return None


class ServerContainer:
    """One container, which keeps its ports and its data until `close()`.

    `command` replaces the image's entry point and runs as root: it uses the image's software, not its conventions.
    `files` are written under FOLDER before the first start.
    """

    def __init__(
        self,
        image: str,
        command: Sequence[str],
        *,
        ports: Sequence[int],
        files: Mapping[str, bytes],
        env: Mapping[str, str],
        ready: str,
    ) -> None:
        """Store the configuration; nothing runs before `start()`. Each port has the same number outside."""
        self._ready = ready.encode()
        self._image = image
        self._outer = DockerContainer(image, command=None, env=dict(env))
        self._outer.with_kwargs(entrypoint=list(command), user="0", working_dir="/")
        # On the loopback interface only; the type annotation of testcontainers does not allow that.
        self._outer.ports = cast("dict[str, Any]", {f"{port}/tcp": ("127.0.0.1", port) for port in ports})
        for name, content in files.items():
            self._outer.with_copy_into_container(content, f"{FOLDER}/{name}")
        self._inner: Container | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """True if it exists, also if it is paused."""
        return self._inner is not None and self._state() in {"running", "paused"}

    @property
    def pid(self) -> int:
        """Pid, on this machine, of the container's first process."""
        self._container.reload()
        return int(self._container.attrs["State"]["Pid"])

    def start(self, timeout: float = 90.0) -> None:
        """Start, and wait for the log line `ready`. Raises BrokerError with the end of the log."""
        if self.running:
            raise BrokerError("already running")
        seen = 0
        try:
            if self._inner is None:
                self._first_start()
            else:
                seen = len(self._inner.logs())
                self._inner.start()
            eventually(lambda: self._is_ready(seen), timeout, 0.2, f"the log of {self._image} says it serves")
        except (AssertionError, BrokerError, DockerException, OSError) as error:
            raise BrokerError(f"{self._image} did not start: {error}\n{self.log_tail()}") from error

    def stop(self, timeout: float = 30.0) -> None:
        """End with a clean shutdown (SIGTERM), or by force after `timeout` seconds."""
        if self.running:
            self.resume()
            self._container.stop(timeout=int(timeout))

    def kill(self) -> None:
        """Send SIGKILL to each of its processes."""
        self.resume()
        self._container.kill()
        eventually(lambda: not self.running, message=f"the container of {self._image} is dead")

    def pause(self) -> None:
        """Freeze it: sockets stay open, but get no answer."""
        self._container.pause()

    def resume(self) -> None:
        """Continue after `pause()`."""
        if self._state() == "paused":
            self._container.unpause()

    def execute(self, argv: list[str]) -> str:
        """Run a tool in it, with its variables, and return the output. Raises BrokerError if the tool fails."""
        done = self._container.exec_run(argv, user="0")
        # An iterator only if a stream is requested.
        printed = cast("bytes", done.output).decode(errors="replace")
        if done.exit_code:
            raise BrokerError(f"{argv[0]} failed ({done.exit_code}):\n{printed}")
        return printed

    def close(self) -> None:
        """Remove it, with its data."""
        with contextlib.suppress(NotFound):  # Ryuk, or a user, was faster
            self._outer.stop()
        if self._watchdog is not None:
            self._watchdog.communicate(b"done\n")

    def published(self) -> dict[int, str]:
        """Ports of this machine that lead into the container, with the address of each."""
        self._container.reload()
        bindings = self._container.attrs["NetworkSettings"]["Ports"]
        return {int(b["HostPort"]): str(b["HostIp"]) for found in bindings.values() for b in found or ()}

    def log_tail(self, characters: int = 4000) -> str:
        """Return the end of the log."""
        return "" if self._inner is None else self._inner.logs().decode(errors="replace")[-characters:]

    def _first_start(self) -> None:
        if not testcontainers_config.ryuk_disabled and problem(testcontainers_config.ryuk_image) is not None:
            testcontainers_config.ryuk_disabled = True  # the watchdog replaces Ryuk
        self._outer.start()
        self._inner = self._outer.get_wrapped_container()
        self._watchdog = subprocess.Popen(
            [sys.executable, "-c", _WATCHDOG, self._outer.get_container_id()],
            env=for_all_tests(),
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def _container(self) -> Container:
        if self._inner is None:
            raise BrokerError("not started")
        return self._inner

    def _state(self) -> str:
        self._container.reload()
        return str(self._container.status)

    def _is_ready(self, seen: int) -> bool:
        if not self.running:
            raise BrokerError("it ended")
        return self._ready in self._container.logs()[seen:]
