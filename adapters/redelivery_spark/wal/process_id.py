"""Name of a process for others: in the lock file, and in errors."""

from __future__ import annotations

import os
import socket

__all__ = ["who"]


def who() -> str:
    """Return a name for this process that says where to look for it."""
    return f"process {os.getpid()} on {socket.gethostname()}"
