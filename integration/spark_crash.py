"""The source with a SIGKILL in it: the whole driver dies at a point that the option `crashPoint` names, once."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redelivery_spark.source import RedeliveryDataSource
from redelivery_spark.stream.stream_reader import RedeliveryStreamReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from redelivery_spark.stream.coordinator import Coordinator

__all__ = ["POINTS", "Crashing"]

POINTS = ("before the log", "after the log", "after the ack", "before the settling")
FROM = 3  # the batch from which on it dies


class _Reader(RedeliveryStreamReader):
    """Dies at one point of one batch, if the flag is there, which it takes away."""

    def __init__(self, made: RedeliveryStreamReader, point: str, flag: str) -> None:
        assert made._options is not None
        super().__init__(made._options)
        self._point = point
        self._flag = Path(flag)
        self._armed = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_point": "", "_flag": self._flag, "_armed": False}

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:
        coordinator = self._open()
        if not self._armed:
            self._armed = True
            self._arm(coordinator)
        if self._point == "before the settling" and start["n"] >= FROM:
            self._die()
        found = super().latestOffset(start, limit)
        if self._point == "after the ack" and found["n"] >= FROM:
            self._die()
        return found

    def _arm(self, coordinator: Coordinator) -> None:
        segments = coordinator._journal.segments
        publish: Callable[..., bool] = segments.publish

        def dying(number: int, rows: Any) -> bool:
            if self._point == "before the log" and number >= FROM:
                self._die()
            done = publish(number, rows)
            if self._point == "after the log" and number >= FROM:
                self._die()
            return done

        segments.publish = dying  # type: ignore[method-assign]

    def _die(self) -> None:
        if self._flag.exists():
            self._flag.unlink()
            os.killpg(os.getpgid(0), signal.SIGKILL)


class Crashing(RedeliveryDataSource):
    """`format("redelivery-crashing")`."""

    def __init__(self, options: dict[str, str]) -> None:
        self._point = options.pop("crashpoint", "")
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return what `format` takes."""
        return "redelivery-crashing"

    def streamReader(self, schema: StructType) -> RedeliveryStreamReader:
        """Return a reader that dies."""
        return _Reader(super().streamReader(schema), self._point, self._read.wal_dir + ".crash")
