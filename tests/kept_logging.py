"""Logging as it was before a command of the command line, which sets levels and adds handlers."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["kept_logging"]


@contextmanager
def kept_logging() -> Iterator[None]:
    """Restore levels and handlers at the end: later tests of this process read the log."""
    loggers = [logging.getLogger(name) for name in ("redelivery", "redelivery.wire", "stomp.py", None)]
    before = [(logger, logger.level, [*logger.handlers]) for logger in loggers]
    try:
        yield
    finally:
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
