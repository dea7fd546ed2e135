"""Exit code of a refused log-in, which is not that of a broker that is down."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from redelivery.cli.exit_codes import REFUSED, Failure
from redelivery.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["log_in_refused"]


@contextmanager
def log_in_refused() -> Generator[None]:
    """Give a log-in that the broker refuses exit code 77: a supervisor need not try again."""
    try:
        yield
    except AdapterError as error:
        raise Failure(str(error), REFUSED) from None
