"""What a process is called where others must know it."""

from __future__ import annotations

import os
import socket

__all__ = ["who"]


def who() -> str:
    """Return a name for this process that tells where to look for it."""
    return f"process {os.getpid()} on {socket.gethostname()}"
