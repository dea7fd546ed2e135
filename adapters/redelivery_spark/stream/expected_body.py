"""Whether a body is what the source was told to expect."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from redelivery.core.delivery import Cause
from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.delivery import Delivery
    from redelivery_spark.options.stream_options import SourceOptions

__all__ = ["Expected", "FreshMessage", "decoded", "read_message"]

logger = logging.getLogger("redelivery.spark")


class FreshMessage(NamedTuple):
    """A message, its body as text, and what is wrong with that."""

    delivery: Delivery
    text: str | None
    error: str | None


class Expected(Protocol):
    """What a body must be: options of a source."""

    @property
    def text(self) -> bool:
        """Whether it is decoded."""
        ...

    @property
    def decode(self) -> str:
        """As what."""
        ...


def decoded(body: bytes, options: Expected) -> tuple[str | None, str | None]:
    """Return the body as text, and what is wrong with it; one of the two is None, or both where nothing is decoded."""
    if not options.text:
        return None, None
    try:
        text = body.decode()
        if options.decode == "json":
            json.loads(text)
    # UnicodeDecodeError and JSONDecodeError are ValueErrors.
    except (ValueError, RecursionError) as error:
        return None, f"cannot be decoded as {options.decode}: {type(error).__name__}: {_where(error)}"
    return text, None


def read_message(
    delivery: Delivery, options: SourceOptions, refuse: Callable[[Delivery, Cause], object]
) -> FreshMessage | None:
    """Return a message for the log; None: it is not what was expected, and was refused.

    Raises:
        RedeliveryError: it is not, and that is to end the query.
    """
    text, error = decoded(delivery.body, options)
    if error is None or options.on_decode_error == "permissive":
        return FreshMessage(delivery, text, error)
    if options.on_decode_error == "fail":
        raise RedeliveryError(f"message {delivery.identity} of {delivery.destination} {error}")
    logger.warning("%s: %s: %s; dead-lettered", delivery.destination, delivery.identity, error)
    refuse(delivery, Cause.of(error))
    return None


def _where(error: Exception) -> str:
    """Say where it is wrong, without quoting the body."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return f"{error.reason} at byte {error.start}"
    return "nested too deeply" if isinstance(error, RecursionError) else "it has no meaning"
