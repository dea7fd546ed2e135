"""Monitors streams with Spark: prints the reports of their sources, and warns of problems."""

import json
import logging
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming import listener

KEYS = ("waiting", "deadLettered", "ahead", "connected")
GROWS = 5  # reports in a row with more waiting messages each


def reported(latest_offset: str | None) -> dict[str, int]:
    """Return a source's report as numbers; empty for another source, before the first batch, or in a replay."""
    said = json.loads("null" if latest_offset in (None, "", "None") else latest_offset)
    watched = KEYS if isinstance(said, dict) and "deadLettered" in said else ()
    return {key: sum(said[key].values()) if key == "ahead" else int(said[key]) for key in watched}


def alarms(reports: list[dict[str, int]]) -> list[str]:
    """Return the problems in the reports of one query, the newest report last."""
    waiting = [each["waiting"] for each in reports[-GROWS - 1 :]]
    grows = len(waiting) > GROWS and waiting == sorted(set(waiting))
    found = [f"{waiting[-1]} messages wait for a redelivery, more at each report"] * grows
    return found if reports[-1]["connected"] else [*found, "there is no connection to the broker"]


class Monitor(listener.StreamingQueryListener):
    """Listener for `spark.streams.addListener`. `show` gets the query's id and its source's report."""

    def __init__(self, spark: SparkSession, show: Callable[[str, dict[str, int]], object] = print) -> None:
        self.streams, self.show, self.reports = spark.streams, show, dict[str, list[dict[str, int]]]()

    def _see(self, query: str, progress: listener.StreamingQueryProgress | None) -> None:
        for source in progress.sources if progress else ():
            if report := reported(source.latestOffset):
                self.show(query, report)
                self.reports[query] = [*self.reports.get(query, []), report][-GROWS - 1 :]
                for alarm in alarms(self.reports[query]):
                    logging.getLogger("monitor").warning("%s: %s", query, alarm)

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
        self._see(str(event.progress.id), event.progress)

    def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:  # no rows, as without a connection
        self._see(str(event.id), getattr(self.streams.get(str(event.id)), "lastProgress", None))

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None: ...
    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None: ...
