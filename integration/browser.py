"""Headless Chromium, driven over its DevTools protocol: pages are opened, looked at, and what went wrong is collected.

It reaches addresses of this machine only: no host name is resolved. It needs the package `websockets`, and no driver.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.children import for_all_tests
from tests.needs import required

if TYPE_CHECKING:
    from types import TracebackType

    from websockets.sync.client import ClientConnection

__all__ = ["Browser", "need_chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Seconds: one answer of the browser, on a busy machine.
PATIENCE = 60.0
_ADDRESS = re.compile(r"DevTools listening on (ws://\S+)")


def need_chromium() -> str:
    """Return the path of Chromium; skip the test without it, or fail where REDELIVERY_REQUIRE_BROKERS asks for it."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    reason = "the package websockets is not installed (the extra test-all)"
    if find_spec("websockets") is not None:
        if found is not None:
            return found
        reason = f"none of {', '.join(NAMES)} is installed"
    if required("chromium"):
        pytest.fail(f"REDELIVERY_REQUIRE_BROKERS asks for Chromium, but: {reason}", pytrace=False)
    pytest.skip(f"Chromium: {reason}")


class Browser:
    """A Chromium process with one page. `failures`: console errors and failed requests since the last `open`."""

    def __init__(self, program: str) -> None:
        self.failures: list[str] = []
        self._open = contextlib.ExitStack()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            [
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                f"--user-data-dir={self._profile.name}",
                "--remote-debugging-port=0",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=for_all_tests(),
            text=True,
        )
        self._number = 0
        self._session: str | None = None
        self._loaded = False
        self._socket: ClientConnection | None = None
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        """Connect to the process, and make the page."""
        from websockets.sync.client import connect  # noqa: PLC0415 - need_chromium looks whether it is there

        self._socket = self._open.enter_context(connect(self._address(), max_size=None, proxy=None))
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process, and remove its profile."""
        self._open.close()
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._profile.cleanup()

    def resize(self, width: int, height: int = 900, *, scheme: str = "light") -> None:
        """Set the size of the window in CSS pixels, and the colour scheme that the user prefers."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Open a page, and wait until it has loaded."""
        self.failures.clear()
        self._loaded = False
        answer = self._call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        while not self._loaded:
            self._receive()

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript; a promise is waited for."""
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Return the value of an expression once it is true."""
        look = f"const value = {expression}; if (value) done(value); else requestAnimationFrame(look)"
        return self.value(f"new Promise(done => {{ const look = () => {{ {look} }}; look() }})")

    def _address(self) -> str:
        assert self._process.stderr is not None
        seen = ""
        for line in self._process.stderr:
            seen += line
            if found := _ADDRESS.search(line):
                return found[1]
        raise AssertionError(f"Chromium has not started: {seen}")

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        request: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        assert self._socket is not None
        self._socket.send(json.dumps(request))
        while True:
            message = self._receive()
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message}"
                result: dict[str, Any] = message["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        assert self._socket is not None
        message: dict[str, Any] = json.loads(self._socket.recv(PATIENCE))
        about = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                self.failures.append(f"exception: {about['exceptionDetails']}")
            case "Runtime.consoleAPICalled" if about["type"] in ("error", "assert"):
                self.failures.append(f"console: {about['args']}")
            case "Log.entryAdded" if about["entry"]["level"] == "error":
                self.failures.append(f"log: {about['entry']['text']} {about['entry'].get('url', '')}")
            case "Network.loadingFailed" if not about.get("canceled"):
                self.failures.append(f"request: {about['errorText']}")
            case "Network.responseReceived" if about["response"]["status"] >= 400:
                self.failures.append(f"{about['response']['status']}: {about['response']['url']}")
        return message
