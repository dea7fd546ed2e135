"""Exit codes, and the error that ends a command with one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = [
    "FAILED",
    "HELD_UP",
    "INTERNAL",
    "INTERRUPTED",
    "MISCONFIGURED",
    "OK",
    "PARTLY",
    "REFUSED",
    "UNREACHABLE",
    "USAGE",
    "Failure",
    "log_in_refused",
]


# ---- Exit codes ------------------------------------------------------------------------------------------

OK = 0
FAILED = 1
USAGE = 2
PARTLY = 3
"""Some of it was done: handlers were still running at the deadline, or a broker went away between sends."""
UNREACHABLE = 69
"""EX_UNAVAILABLE of sysexits.h: no broker answers."""
INTERNAL = 70
"""EX_SOFTWARE of sysexits.h: a handler is stuck, or an error of this program."""
HELD_UP = 75
"""EX_TEMPFAIL of sysexits.h: a service that the handler needs is down; the messages stay on the broker."""
REFUSED = 77
"""EX_NOPERM of sysexits.h: the broker refused the log-in."""
MISCONFIGURED = 78
"""EX_CONFIG of sysexits.h: a URI, a handler or an installation that cannot work."""
INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


class Failure(Exception):
    """The command ends with one line on stderr and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


# ---- Log in refused --------------------------------------------------------------------------------------
# Exit code of a refused log-in, which is not that of a broker that is down.


@contextmanager
def log_in_refused() -> Generator[None]:
    """Give a log-in that the broker refuses exit code 77: a supervisor need not try again."""
    try:
        yield
    except AdapterError as error:
        raise Failure(str(error), REFUSED) from None
