"""Row of the log as the engine takes it: the original message, identified by its place in the log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redelivery.core.delivery import BodyKind, Delivery
from redelivery.driver.port import restorer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from redelivery.driver.port import Restore
    from redelivery_spark.wal.places import Place

__all__ = ["CONSUMER", "LOG_EPOCH", "LoggedDelivery", "StoredRow", "restored"]

LOG_EPOCH = 1
"""Epoch of rows in the log: no connection is ever lost to it."""
CONSUMER = 0


@dataclass(frozen=True, slots=True)
class StoredRow:
    """Row as stored in the log. `place`: its first place in the log; `count`: that of its last delivery.

    `wire`: JSON by which the bytes are restored to a delivery; `arrived`: seconds since the Unix epoch.
    """

    place: Place
    head: bytes
    body: bytes | None
    wire: str
    arrived: float
    count: int = 1


@lru_cache(maxsize=64)
def _restorer(wire: str) -> Restore:
    return restorer(json.loads(wire))


def restored(row: StoredRow) -> Delivery:
    """Return the message of a row. Raises ConfigurationError: its protocol is not installed here."""
    return _restorer(row.wire)(row.head, row.body, row.arrived)


class LoggedDelivery(Delivery):
    """One row. Only the log has its message: the broker has dropped it."""

    __slots__ = ("delay", "message", "passed", "row")

    def __init__(self, row: StoredRow) -> None:
        self.message = restored(row)
        super().__init__(CONSUMER, LOG_EPOCH, self.message.body)
        self.row = row
        # Its last delay, in seconds.
        self.delay = 0.0
        # Number of batches that had succeeded when it last failed as the only row of one.
        self.passed: int | None = None

    @property
    def place(self) -> Place:
        """First place of the row in the log. No two rows have the same."""
        return self.row.place

    @property
    def count(self) -> int:
        """Count of its next delivery: 1 at first."""
        return 1 + (0 if self.record is None else self.record.count)

    @property
    def original(self) -> bool:
        return False

    @property
    def key(self) -> Place:
        return self.row.place

    @property
    def strong(self) -> bool:
        return True

    @property
    def identity(self) -> str | None:
        return self.message.identity

    @property
    def destination(self) -> str:
        return self.message.destination

    @property
    def origin(self) -> str | None:
        return self.message.origin

    @property
    def moved(self) -> bool:
        return self.message.moved

    @property
    def died_of(self) -> str | None:
        return self.message.died_of

    @property
    def redelivered(self) -> bool:
        return self.message.redelivered

    @property
    def expires_at(self) -> float | None:
        return self.message.expires_at

    @property
    def group(self) -> str | None:
        return self.message.group

    @property
    def persistent(self) -> bool:
        return self.message.persistent

    @property
    def body_kind(self) -> BodyKind:
        return self.message.body_kind

    @property
    def readable(self) -> bool:
        return self.message.readable

    @property
    def message_id(self) -> str | None:
        return self.message.message_id

    @property
    def noted(self) -> Mapping[str, Any]:
        return self.message.noted

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.message.headers

    @property
    def content_type(self) -> str | None:
        return self.message.content_type

    @property
    def correlation_id(self) -> str | None:
        return self.message.correlation_id

    @property
    def reply_to(self) -> str | None:
        return self.message.reply_to

    @property
    def message_type(self) -> str | None:
        return self.message.message_type

    @property
    def priority(self) -> int:
        return self.message.priority

    @property
    def timestamp(self) -> datetime | None:
        return self.message.timestamp

    @property
    def expiration(self) -> datetime | None:
        return self.message.expiration

    @property
    def value(self) -> Any:
        return self.message.value
