"""Runs rows on clusters of this machine: `python -m integration.clusters term_one 'rabbitmq/rolling/*/quorum'`.

A pattern is that of a row's whole name, of its fault, or of its cluster; `--list` names all rows. Exit status 1: the
books of a row are wrong, or a cluster cannot run here.
"""

from __future__ import annotations

import json
import logging
import sys
from argparse import ArgumentParser
from contextlib import closing
from itertools import groupby
from typing import TYPE_CHECKING

from integration.brokers import BrokerError
from integration.clusters import SETUPS
from integration.clusters.rows import ROWS, chosen
from integration.clusters.run import Extent, run
from integration.clusters.table import as_json, details, table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from integration.clusters.rows import Row
    from integration.clusters.run import Outcome

__all__ = ["main"]


def outcomes(rows: Sequence[Row], extent: Extent, tell: Callable[[str], None]) -> list[Outcome]:
    """Run the rows, those of one cluster after each other. Raises BrokerError if a cluster cannot be had."""
    found: list[Outcome] = []
    for setup, own in groupby(rows, lambda row: row.setup):
        kind = SETUPS[setup]
        kind.obtain()
        with closing(kind()) as cluster:
            tell(f"starting {setup}")
            cluster.start()
            for row in own:
                tell(f"== {row.name}")
                found.append(run(cluster, row, extent, tell))
                tell("\n".join(details(found[-1])))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run rows, and print their books."""
    parser = ArgumentParser(
        prog="python -m integration.clusters", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "patterns", nargs="*", metavar="SCENARIO", help="name, fault or cluster of rows; wildcards"
    )
    parser.add_argument("--list", action="store_true", help="name the rows")
    parser.add_argument("--messages", type=int, default=2000, help="confirmed messages of a row, at least")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the operations")
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="of random operations (the rows */random/*)"
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")
    given = parser.parse_args(arguments)
    rows = list(ROWS) if given.list and not given.patterns else chosen(given.patterns)
    if given.list:
        print("\n".join(row.name for row in rows))
        return 0
    if not rows:
        parser.error("no such row; --list names all")
    logging.getLogger("redelivery").propagate = False
    try:
        found = outcomes(
            rows,
            Extent(given.messages, given.seed, given.minutes),
            lambda line: print(line, file=sys.stderr, flush=True),
        )
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps([as_json(each) for each in found], indent=1) if given.output == "json" else table(found))
    return 1 if any(each.wrong for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
