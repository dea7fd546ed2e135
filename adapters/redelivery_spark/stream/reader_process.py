"""Process of one reader: `python -m redelivery_spark.stream.reader_process`, started by the runner.

It reads lines of JSON on its standard input, of which the first is its configuration, and reports on its standard
output what it has published. It ends when its input ends: with the runner.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from redelivery_spark.options.source_options import SourceOptions, options_of
from redelivery_spark.stream.lane_reader import LaneReader
from redelivery_spark.stream.rows_in_doubt import RowsInDoubt
from redelivery_spark.stream.source_connection import SourceConnection
from redelivery_spark.stream.trigger_size import AvailableNow
from redelivery_spark.wal.lane import LANES, REDELIVERIES, Lane
from redelivery_spark.wal.store import store_at
from redelivery_spark.wal.wal_state import check_start

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

__all__ = ["configuration", "main"]

# Seconds of one turn while no message arrives.
TURN = 0.5


def configuration(options: SourceOptions, **more: object) -> dict[str, Any]:
    """Return the first line. It has the credentials of the URL, which must not be an argument of a process."""
    plain = {each.name: getattr(options, each.name) for each in fields(options) if each.name != "settings"}
    return {"options": plain, **more}


class _Child:
    """One reader, in its own process."""

    def __init__(self, config: Mapping[str, Any], out: TextIO) -> None:
        options = options_of(config["options"])
        self._out = out
        self._lock = threading.Lock()
        self._parent = os.getppid()
        self._ended = False
        store = store_at(options.wal_dir)
        own = Lane(store, config["lane"])
        others = [Lane(store, number) for number in range(LANES) if number not in (REDELIVERIES, own.number)]
        for lane in (own, *others):
            lane.load()
        own.go_on_from(config["last"])
        # Segments that an older start of it has published since the runner has looked are reported, too.
        self._known: int = config["last"]
        own.settle(config["settled"])
        self._lane = own
        self.source = SourceConnection(options)
        self.source.connect()
        self.source.begin()
        self._doubt = RowsInDoubt(own, others, self.source.clock, config["siblings"])
        ahead = options.bytes_ahead // options.readers
        name = config["name"]
        check = partial(check_start, store, config["start"])
        self._reader = LaneReader(self.source, own, self._doubt, config["log"], ahead, check, name)
        self._connection = ""
        self._said: dict[str, Any] = {}

    def say(self, **what: object) -> None:
        """Write a line."""
        with self._lock:
            self._out.write(json.dumps(what) + "\n")
            self._out.flush()

    def run(self) -> None:
        """Read until the runner ends, or sends the end."""
        while not self._ended and os.getppid() == self._parent:
            self._reader.step(TURN)
            for segment in self._lane.after(self._known):
                self.say(segment=list(segment))
                self._known = segment.number
            self._tell_state()

    def _tell_state(self) -> None:
        reader = self._reader
        if self._connection and self._connection != reader.connection:
            self.say(ended=self._connection)
        self._connection = reader.connection
        state = {
            "copies": reader.copies,
            "refused": reader.refused,
            "set_aside": reader.set_aside,
            "connected": self.source.connected,
            "full": reader.full,
            "exhausted": reader.available is not None and reader.available.exhausted,
        }
        if state != self._said:
            self._said = state
            self.say(state=state)

    def hear(self, lines: TextIO) -> None:
        """Obey the runner's lines until they end."""
        try:
            # The runner can die within a line.
            with suppress(ValueError):
                for line in lines:
                    self._obey(json.loads(line))
        finally:
            self._ended = True
            self.source.bulk.wake()

    def _obey(self, said: Mapping[str, Any]) -> None:
        reader = self._reader
        if "wanted" in said:
            reader.wanted = said["wanted"]
            if said["wanted"] and reader.pending:
                self.source.bulk.wake()
        elif "settled" in said:
            self._lane.settle(said["settled"])
        elif "ended" in said:
            self._doubt.ended(*said["ended"])
            if reader.available is not None:
                # Messages that the other reader had taken can be redelivered to this one.
                reader.available.go_on()
        elif "available" in said:
            reader.available = AvailableNow(self.source.clock)


def _told(error: Exception) -> dict[str, str]:
    kind = type(error).__name__
    return {"error": str(error) or kind, "kind": kind}


def main() -> None:
    """Run a reader, until its input ends or an error ends it. The error is reported on standard output."""
    out = sys.stdout
    # Nothing else may write to standard output.
    sys.stdout = sys.stderr
    config = json.loads(sys.stdin.readline())
    try:
        child = _Child(config, out)
    except Exception as error:  # noqa: BLE001 - reported to the runner, which raises it
        out.write(json.dumps(_told(error)) + "\n")
        out.flush()
        return
    threading.Thread(target=child.hear, args=(sys.stdin,), daemon=True).start()
    try:
        child.run()
    except Exception as error:  # noqa: BLE001 - reported to the runner, which raises it
        child.say(**_told(error))
    finally:
        child.source.close()


if __name__ == "__main__":
    main()
