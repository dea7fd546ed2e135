"""Loggers of the library. An exception of a logging handler stops nothing.

Applications bring their own logging handlers, which may fail: a full disk, a lost collector. Lines are logged
while a message is handled or a lost connection is dealt with. The decision taken there must be carried out in
any case.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from redelivery.errors import RedeliveryError

__all__ = ["brief", "logger", "loggers"]


class _Log(logging.LoggerAdapter[logging.Logger]):
    """Logger of the library. Each record has `redelivery`: the fields of its line, as a dictionary."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Keep the fields that a call gives."""
        kwargs["extra"] = {"redelivery": {}} | (kwargs.get("extra") or {})
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **more: Any) -> None:
        """Write a line. Drop what a logging handler raises: there is no other place to report it."""
        with suppress(Exception):
            # The record names the caller's place in the code, not this one.
            super().log(level, msg, *args, stacklevel=2, **more)


logger = _Log(logging.getLogger("redelivery"), {})
"""Logger of all lines but those of `loggers`."""
loggers = {
    name: _Log(logging.getLogger(name), {})
    for name in ("redelivery.messages", "redelivery.connection", "redelivery.consumers", "redelivery.breaker")
}
"""Loggers of event lines, by their subject."""


def brief(error: RedeliveryError) -> RedeliveryError:
    """Return an error to be raised `from None` at a public call, with a traceback that begins there.

    The whole traceback is logged at DEBUG.
    """
    logger.debug("%s", error, exc_info=error)
    return error.with_traceback(None)
