"""Give up the messages of a damaged segment: `python -m redelivery_spark.wal.give_up_segment WALDIR s1/NAME.arrow`.

A segment without rows is published in its place, and the query goes on with all other messages. The damaged file stays
beside it, in the folder `damaged`.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery_spark.wal.checked_file import FileMissing, LogDamaged, publish_checked
from redelivery_spark.wal.lane import LANES, REDELIVERIES
from redelivery_spark.wal.segment_files import (
    SegmentFacts,
    folder_of,
    read_table,
    redelivered_table,
    stored_table,
    written,
)
from redelivery_spark.wal.store import store_at
from redelivery_spark.wal.wal_state import States

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["give_up", "main"]

DAMAGED = "damaged"


def give_up(wal_dir: str, name: str) -> None:
    """Replace a damaged or missing segment by one without rows.

    Args:
        wal_dir: The source's `walDir`. No query may use it.
        name: Name of the segment, as the error has it: `s1/000000000042.arrow`.

    Raises:
        ConfigurationError: A query uses the log; or the name is not that of a segment; or the segment is whole.
        LogDamaged: The state of the log is damaged, too.
    """
    store = store_at(wal_dir)
    lanes = {folder_of(lane): lane for lane in range(LANES)}
    folder = name.partition("/")[0]
    if folder not in lanes:
        raise ConfigurationError(f"{name}: no segment; only files such as s1/000000000042.arrow are given up")
    state = States(store).load()
    if state is None:
        raise ConfigurationError(f"walDir={wal_dir}: no log, because it has no state", option="walDir")
    unlock = store.lock()
    if unlock is None:
        raise ConfigurationError(
            f"walDir={wal_dir}: in use by {store.holder()}; end the query first", option="walDir"
        )
    try:
        _replace(store, name, lanes[folder], state.log)
    finally:
        unlock()


def _replace(store: WalStore, name: str, lane: int, log: str) -> None:
    try:
        read_table(store, name)
    except FileMissing:
        pass
    except LogDamaged:
        store.prepare(DAMAGED)
        store.publish(f"{DAMAGED}/{name.replace('/', '-')}", store.read(name) or b"")
        store.remove([name])
    else:
        raise ConfigurationError(f"{name}: is whole, and is not given up")
    facts = SegmentFacts(time.time(), log, ())
    made = (
        redelivered_table((), (), (), (), (), (), facts)
        if lane == REDELIVERIES
        else stored_table((), (), facts)
    )
    publish_checked(store, name, *written(made))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m redelivery_spark.wal.give_up_segment", description=__doc__
    )
    parser.add_argument("wal_dir", metavar="WALDIR")
    parser.add_argument("name", metavar="NAME", help="s1/000000000042.arrow, as the error says")
    given = parser.parse_args(argv)
    try:
        give_up(given.wal_dir, given.name)
    except RedeliveryError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{given.name}: given up; the file is in {given.wal_dir}/{DAMAGED}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
