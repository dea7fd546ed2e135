"""The library's log: a log handler that raises stops nothing.

Applications bring their own handlers, which may fail with a full disk or a lost collector. A line is written on the way
of a message, or of the loss of a connection: what has been decided there must be carried out all the same.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redelivery.errors import RedeliveryError

__all__ = ["brief", "logger"]


class _Log(logging.LoggerAdapter[logging.Logger]):
    """The logger `redelivery`."""

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        """Write a line. What a handler raises is dropped, for there is nobody to tell."""
        with suppress(Exception):
            # The caller's place in the code, not this one.
            super().log(level, msg, *args, stacklevel=2, **more)


logger = _Log(logging.getLogger("redelivery"), {})


def brief(error: RedeliveryError) -> RedeliveryError:
    """Return an error to be raised `from None` at a public call, with a traceback that begins there.

    The whole traceback is logged at DEBUG.
    """
    logger.debug("%s", error, exc_info=error)
    return error.with_traceback(None)
