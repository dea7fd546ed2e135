"""`run`: starts a query again when it fails, for as long as that can help."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["run"]

logger = logging.getLogger("redelivery.spark")
# Seconds between starts: doubled while no batch goes through.
FIRST_PAUSE, LAST_PAUSE = 0.5, 30.0
HOPELESS = (
    "redelivery.errors.ConfigurationError:",
    "redelivery.errors.AdapterError:",
    "redelivery_spark.wal.store.LogTaken:",
)
"""What another start does not mend, as a Python traceback names it: our own classes, and nobody else's."""


def run(start_query: Callable[[], StreamingQuery], *, max_restarts: int | None = None) -> StreamingQuery:
    """Start a query, wait for its end, and start it again when it fails; return it once it has ended well.

    Each start of a query brings the source nearer to the message that kills it: it is looked for in smaller and smaller
    batches, charged, and dead-lettered when its redeliveries are used up.

    Args:
        start_query: starts the query, with the same checkpoint each time.
        max_restarts: how often at most it is started again; None: as often as need be.

    Raises:
        StreamingQueryException: it failed once more than `max_restarts`, or in a way that another start does not mend.
        ConfigurationError: the query tracks its progress asynchronously.
    """
    restarts, pause = 0, FIRST_PAUSE
    while True:
        query = start_query()
        _refuse_asynchronous(query)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            text = str(error)
            if any(name in text for name in HOPELESS) or restarts == max_restarts:
                raise
            pause = FIRST_PAUSE if _progressed(query) else min(pause * 2, LAST_PAUSE)
            restarts += 1
            logger.warning("the query failed (%s); start %d in %.1f s", _brief(text), restarts + 1, pause)
            _rest(pause)
        else:
            return query


def _refuse_asynchronous(query: StreamingQuery) -> None:
    """Stop a query whose checkpoint would lag behind the log: after a crash the one would be of no use to the other.

    No source is told of it; by its class alone a query can be asked.
    """
    wrapped: Any = getattr(query, "_jsq", None)  # None: Spark Connect, or a test
    try:
        kind = str(wrapped.streamingQuery().getClass().getSimpleName())
    except Exception:  # noqa: BLE001 - of Spark's own insides: without them the query runs, and a restart may be refused
        return
    if kind.startswith("AsyncProgressTracking"):
        # Of a query that does not end in time: what is wrong is said all the same.
        with suppress(Exception):
            query.stop()
        raise ConfigurationError(
            "asyncProgressTrackingEnabled is not supported: after a crash the checkpoint would be older than walDir",
            option="asyncProgressTrackingEnabled",
        )


def _rest(pause: float) -> None:
    threading.Event().wait(pause)


def _progressed(query: StreamingQuery) -> bool:
    """Whether messages have gone through: a batch that is replayed without its rows always does."""
    return any(progress["numInputRows"] > 0 for progress in query.recentProgress)


def _brief(text: str) -> str:
    """Return the line of an error of Spark's that says most: the last one of a Python traceback, or the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "Error:" in line or "Exception:" in line]
    return (told[-1] if told else lines[0] if lines else "unknown")[:200]
