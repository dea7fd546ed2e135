"""Runs on clusters, as data: which cluster, what is done to it, over which protocol, with which queues and scheduler.

The same rows run as tests (`integration/test_clusters.py`), and by hand: `python -m integration.clusters`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ROWS", "Row", "chosen"]


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    setup: str
    fault: str
    protocol: str
    queues: str = ""
    """Kind of queues (RabbitMQ): see `RabbitCluster.options`."""
    scheduler: str = "client"
    client: str = "threads"
    """Or `asyncio`; of the consumer."""
    ledger: bool = False
    """True: the consumer has a ledger in a file."""
    allowed: tuple[str, ...] = ()
    """Numbers that may be wrong in the books, as the documentation says."""

    @property
    def name(self) -> str:
        """Return the name, by which a run is chosen."""
        parts = (
            self.setup,
            self.fault,
            self.protocol,
            self.queues,
            "" if self.scheduler == "client" else self.scheduler,
            "" if self.client == "threads" else self.client,
            "ledger" if self.ledger else "",
        )
        return "/".join(filter(None, parts))


_BOTH = ("amqp", "stomp")
# RabbitMQ has no transaction for a dead letter and its message: one whose confirmation is lost with the connection is
# sent again (docs/dead-letter-routing.md).
_LOST_ANSWER = ("dead double",)
# After a kill: an acceptance that the dead node had read, and not replicated, is lost.
_CUT = ("twice", "extra calls", "dead double")


def _rabbitmq() -> list[Row]:
    def row(fault: str, protocol: str, queues: str, scheduler: str = "client", **more: object) -> Row:
        return Row("rabbitmq", fault, protocol, queues, scheduler, **({"allowed": _LOST_ANSWER} | more))  # type: ignore[arg-type]

    rows = [row("term_one", each, "classic") for each in _BOTH]
    rows += [row("term_one", each, "mixed") for each in _BOTH]
    rows += [row("term_one", "amqp", "mixed", "broker")]
    rows += [row("rolling", each, queues) for queues in ("classic", "quorum") for each in _BOTH]
    rows += [row("rolling", "amqp", "quorum", "broker"), row("rolling", "amqp", "limited")]
    rows += [
        row("rolling", "amqp", "quorum", client="asyncio"),
        row("rolling", "stomp", "classic", client="asyncio"),
    ]
    rows += [row("rolling", "amqp", "classic", ledger=True), row("rolling", "stomp", "quorum", ledger=True)]
    rows += [row("rolling", "amqp", "quorum", "broker", client="asyncio", ledger=True)]
    for fault in ("kill_connected", "kill_long"):
        rows += [row(fault, each, "quorum", allowed=_CUT) for each in _BOTH]
        rows += [
            row(fault, "amqp", "quorum", "broker", allowed=_CUT),
            row(fault, "amqp", "brief", allowed=_CUT),
        ]
    rows += [row("kill_leader", "amqp", "quorum", allowed=_CUT), row("move_leader", "amqp", "quorum")]
    rows += [row("majority", "amqp", "quorum", allowed=_CUT)]
    for fault in ("minority", "long_minority"):
        rows += [row(fault, each, "quorum", allowed=_CUT) for each in _BOTH]
        rows += [row(fault, "amqp", "quorum", "broker", allowed=_CUT)]
    rows += [row("kill_home", each, "classic", allowed=_CUT) for each in _BOTH]
    rows += [row("kill_dead_letters", each, "mixed", allowed=_CUT) for each in _BOTH]
    rows += [row("kill_dead_letters", "stomp", "mixed", "broker", allowed=_CUT)]
    rows += [row("freeze", "amqp", "quorum", allowed=_CUT)]
    rows += [row("all_dead", each, "quorum", allowed=_CUT) for each in _BOTH]
    rows += [
        row("all_dead", "amqp", "quorum", "broker", allowed=_CUT),
        row("all_dead", "amqp", "classic", allowed=_CUT),
    ]
    rows += [row("partition", each, "quorum", allowed=_CUT) for each in _BOTH]
    rows += [
        row(fault, each, "quorum", allowed=_CUT) for fault in ("cut", "silence", "slow") for each in _BOTH
    ]
    rows += [row("random", each, "quorum", allowed=_CUT) for each in _BOTH]
    return [*rows, row("narrow", "amqp", "quorum", allowed=_CUT)]


def _pairs() -> list[Row]:
    rows = [Row("artemis-pair", "failover", each, allowed=_CUT) for each in _BOTH]
    rows += [
        Row("artemis-pair", "failover_term", "amqp", allowed=_CUT),
        Row("artemis-pair", "both_dead", "amqp", scheduler="broker", allowed=_CUT),
        *(Row("artemis-pair", "random", each, allowed=_CUT) for each in _BOTH),
        Row("artemis-cluster", "kill_first", "stomp", allowed=(*_CUT, "breaks", "early")),
        Row("artemis-cluster", "kill_first", "amqp", allowed=_CUT),
        # What a node holds stays there while no consumer is connected to it.
        Row("artemis-apart", "term_each", "stomp", allowed=(*_CUT, "left", "dead missing")),
    ]
    # After a failover Classic does not mark what it sends again.
    rows += [Row("classic-pair", "failover", each, allowed=(*_CUT, "breaks")) for each in _BOTH]
    return [*rows, Row("classic-pair", "freeze", "stomp", allowed=_CUT)]


ROWS: tuple[Row, ...] = (*_rabbitmq(), *_pairs())
"""All runs: the table of docs/clusters.md."""


def chosen(patterns: Iterable[str]) -> list[Row]:
    """Return the rows whose name, or whose fault, matches one of the patterns; each once, in the order of the table."""
    wanted = list(patterns)
    return [
        row
        for row in ROWS
        if any(
            fnmatch(row.name, each) or fnmatch(row.fault, each) or fnmatch(row.setup, each) for each in wanted
        )
    ]
