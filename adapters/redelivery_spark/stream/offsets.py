"""Offsets: the position of each lane. A batch is the range between two of them: its content never changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery_spark.wal.lane import Vector

__all__ = ["log_of", "offset_of", "vector_of"]

LOG = "log"
# Key of the first design's offsets: the number of a batch.
OLD = "n"


def offset_of(vector: Vector, log: str) -> dict[str, Any]:
    """Return the offset that Spark stores: JSON, as `{"log": "…", "0": 3, "1": 42}`."""
    return {LOG: log} | {str(lane): number for lane, number in sorted(vector.items()) if number}


def vector_of(offset: Mapping[str, Any]) -> Vector:
    """Return the position of each lane.

    Raises:
        ConfigurationError: The offset was written by a source of another kind.
    """
    if OLD in offset:
        raise ConfigurationError(
            "checkpointLocation: written by the first design of this source; drain its walDir with the version of "
            "redelivery that wrote it (trigger AvailableNow, until it ends), then begin with a new walDir and a new "
            "checkpoint",
            option="checkpointLocation",
        )
    lanes = {name: number for name, number in offset.items() if name != LOG}
    if not all(re.fullmatch(r"\d{1,2}", name) and type(number) is int for name, number in lanes.items()):
        raise ConfigurationError(
            "checkpointLocation: not written by this source; give the query its own checkpoint",
            option="checkpointLocation",
        )
    return {int(name): number for name, number in lanes.items()}


def log_of(offset: Mapping[str, Any]) -> str | None:
    """Return the log to which an offset belongs; None: it is the offset before the first batch."""
    found = offset.get(LOG)
    return None if found is None else str(found)
