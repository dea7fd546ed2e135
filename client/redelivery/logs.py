"""Structured logs: a formatter that writes each line of the log as one JSON object. Of the standard library alone."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

__all__ = ["JsonFormatter"]


class JsonFormatter(logging.Formatter):
    """Formats a record as JSON in one line: `time`, `level`, `logger`, `message`, `exception`, and the fields.

    The lines of this library have their fields under `redelivery`: `event`, and what goes with it, as
    `redelivery.events` names it. Those of others have none.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        found: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "redelivery", None)
        if fields:
            found["redelivery"] = fields
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False, default=str)
