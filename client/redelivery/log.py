"""The library's log: a log handler that raises stops nothing.

Applications bring their own handlers, which may fail with a full disk or a lost collector. A line is written on the way
of a message, or of the loss of a connection: what has been decided there must be carried out all the same.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

__all__ = ["logger"]


class _Log(logging.LoggerAdapter[logging.Logger]):
    """The logger `redelivery`."""

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        """Write a line. What a handler raises is dropped, for there is nobody to tell."""
        with suppress(Exception):
            # The caller's place in the code, not this one.
            super().log(level, msg, *args, stacklevel=2, **more)


logger = _Log(logging.getLogger("redelivery"), {})
