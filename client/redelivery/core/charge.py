"""Charge of a failure to a message: its count, its cause, and its times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.delivery import Record

if TYPE_CHECKING:
    from redelivery.core.delivery import Cause, Delivery

__all__ = ["charge"]


def charge(delivery: Delivery, cause: Cause, now: float) -> Record:
    """Count one more failure of a message; return its record."""
    record = delivery.record = delivery.record or Record()
    record.count += 1
    record.cause = cause
    record.last_failure = now
    if record.first_failure is None:
        record.first_failure = now
    return record
