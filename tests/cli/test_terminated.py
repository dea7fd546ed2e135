"""SIGTERM where there is nothing to drain."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

PATIENCE = 30  # seconds that a process may take to begin, or to end


@pytest.mark.ci("a child process: 0.3 s; kills the planted fault X07")
def test_sigterm_while_connecting() -> None:
    """A consumer that waits for a broker which does not answer closes its connection, says so, and exits with 143."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        uri = f"stomp://127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-m", "redelivery.cli", "consume", uri, "orders"],
            env={name: value for name, value in os.environ.items() if name != "REDELIVERY_URL"},
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                connected, _ = silent.accept()
                with connected:
                    connected.settimeout(PATIENCE)
                    assert connected.recv(4096).startswith(b"CONNECT")
                    process.send_signal(signal.SIGTERM)
                    _, err = process.communicate(timeout=PATIENCE)
                    while connected.recv(4096):
                        pass  # to the end
            finally:
                process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert "terminated" in err
