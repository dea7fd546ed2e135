"""The source with a SIGKILL: the whole driver, or the source's process, dies at the point `crashPoint`.

A file next to the log says which of the two, and how often. Segments are small: a few hundred messages make several
batches.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redelivery_spark.source import RedeliveryDataSource
from redelivery_spark.stream import lane_reader
from redelivery_spark.stream.stream_reader import RedeliveryStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from redelivery_spark.stream.coordinator import Coordinator

__all__ = ["POINTS", "Crashing"]

POINTS = (
    "before the log",
    "after the log",
    "after the ack",
    "after a redelivery",
    "before the settling",
    "after the state",
    "after the settling",
)
FROM = 3  # number of the segment, processed by Spark, from which on it dies
ROWS = 50  # rows of a segment


class _Reader(RedeliveryStreamReader):
    """Dies at one point, as often as the file says."""

    def __init__(self, made: RedeliveryStreamReader, point: str, flag: str) -> None:
        assert made._options is not None
        super().__init__(made._options, made._columns)
        self._point = point
        self._flag = Path(flag)
        self._armed = False
        # Spark refuses a checkpoint whose first batch never began.
        self._gone_on = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_point": "", "_flag": self._flag, "_armed": False}

    def _open(self) -> Coordinator:
        # Set before there is a reader, whose first segment would otherwise have all messages that have arrived.
        setattr(lane_reader, "MOST_ROWS", ROWS)  # noqa: B010 - it is not the module's own
        # A busy broker may send fewer than that many at first.
        setattr(lane_reader, "MOMENT", 0.2)  # noqa: B010
        return super()._open()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        coordinator = self._open()
        if not self._armed:
            self._armed = True
            self._arm(coordinator)
        self._gone_on = start.get("1", 0) >= FROM
        if self._point == "before the settling" and self._gone_on:
            self._die()
        found = super().latestOffset(start, limit)
        if self._point == "after the settling" and self._gone_on:
            self._die()
        return found

    def _arm(self, coordinator: Coordinator) -> None:
        reader, journal = coordinator._readers._reader, coordinator._journal  # type: ignore[attr-defined]
        self._around(reader.lane, "publish", "before the log", "after the log")
        self._around(reader._source, "accept", "", "after the ack")
        self._around(journal.lanes.redeliveries, "publish", "", "after a redelivery")
        self._around(journal._states, "publish", "", "after the state")

    def _around(self, owner: Any, name: str, before: str, after: str) -> None:
        called: Callable[..., Any] = getattr(owner, name)

        def dying(*arguments: Any) -> Any:
            if self._point == before and self._gone_on:
                self._die()
            made = called(*arguments)
            if self._point == after and self._gone_on:
                self._die()
            return made

        setattr(owner, name, dying)

    def _die(self) -> None:
        if not self._point or not self._flag.exists():
            return
        whole, left = self._flag.read_text(encoding="utf-8").split()
        self._flag.unlink()
        if int(left) > 1:
            self._flag.write_text(f"{whole} {int(left) - 1}", encoding="utf-8")
        if whole == "all":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class Crashing(RedeliveryDataSource):
    """`format("redelivery-crashing")`."""

    def __init__(self, options: dict[str, str]) -> None:
        self._point = options.pop("crashpoint", "")
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "redelivery-crashing"

    def streamReader(self, schema: StructType) -> RedeliveryStreamReader:
        """Return a reader that dies."""
        return _Reader(super().streamReader(schema), self._point, self._read.wal_dir + ".crash")
