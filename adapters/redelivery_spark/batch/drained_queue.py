"""Folder of one drain: numbered segments of each queue. The last one is empty and marks the end of the drain.

Attempts of one task agree by the names of segments: each can be published once. An attempt that finds a name in use
reads that file.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from redelivery.errors import ConfigurationError
from redelivery_spark.batch.drained_segment import END, DrainedSegment
from redelivery_spark.wal.arrow_files import read_table, written
from redelivery_spark.wal.checked_file import publish_checked, read_json
from redelivery_spark.wal.store import prepared

if TYPE_CHECKING:
    import pyarrow as pa

    from redelivery.settings import Settings
    from redelivery_spark.options.batch_options import ReadOptions

__all__ = ["DrainedQueue"]

_BOUND = "drain.json"
# Version of the segments' content. Version 1 had a column for each part of a message, and had no version number.
_FORMAT = 2


class DrainedQueue:
    """Segments that one drain has taken from one queue."""

    def __init__(self, options: ReadOptions, queue: str, settings: Settings) -> None:
        """Make the folder, or find it. Raises ConfigurationError: it belongs to another drain, or cannot be used."""
        assert options.wal_dir is not None, "checked where options are read"
        self.path = f"{options.wal_dir}/drains/{options.run}"
        readable = re.sub(r"[^\w.-]+", "_", queue.partition("://")[2])[:60]
        self._folder = f"{readable}-{hashlib.sha256(queue.encode()).hexdigest()[:12]}"
        self._store = prepared(self.path, self._folder)
        self._bind(options, settings)

    def _bind(self, options: ReadOptions, settings: Settings) -> None:
        """Refuse to show messages of one broker as those of another."""
        own = {
            "format": _FORMAT,
            "brokers": sorted(str(endpoint) for endpoint in settings.endpoints),
            "selector": options.selector,
        }
        if publish_checked(self._store, _BOUND, json.dumps(own).encode()):
            return
        there: dict[str, Any] = read_json(self._store, _BOUND) or {}
        if there == own:
            return
        name = f"run={options.run}: walDir={options.wal_dir} has a drain of this name"
        if there.get("format") != _FORMAT:
            raise ConfigurationError(
                f"{name}, begun by another version of this package; read it with that version, or use another run",
                option="run",
            )
        was = ", ".join(there.get("brokers", ())) or "another broker"
        selected = f" with the selector {there['selector']}" if there.get("selector") else ""
        raise ConfigurationError(f"{name} from {was}{selected}; use another run", option="run")

    def segments(self) -> int:
        """Return the number of segments."""
        return len(self._store.names(self._folder))

    def read(self, number: int) -> DrainedSegment:
        """Return a segment; the last one has no rows. Raises FileMissing, and LogDamaged."""
        return DrainedSegment(read_table(self._store, self._name(number)))

    def publish(self, number: int, rows: pa.Table) -> bool:
        """Publish a segment, durably; return False if another attempt has published it: that one counts."""
        return publish_checked(self._store, self._name(number), *written(rows))

    def end(self, number: int) -> bool:
        """Mark the end of the drain after `number` segments; return False if another attempt has published one more."""
        return self.publish(number, END)

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:06d}.arrow"
