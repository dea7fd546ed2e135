"""Draws the two tables of docs/brokers.md from the recorded results of runs."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.house.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["PAGE", "drawn", "in_page", "with_tables"]

PAGE = ROOT / "docs" / "brokers.md"
BEGIN = "<!-- made by runs: python -m integration.compatibility --write -->"
END = "<!-- end of what is made by runs -->"

NAMES = {
    "activemq": "ActiveMQ Classic",
    "artemis": "ActiveMQ Artemis",
    "brokerj": "Qpid Broker-J",
    "rabbitmq": "RabbitMQ, classic queues",
    "rabbitmq4": "RabbitMQ, quorum queues",
}
# The first area whose beginning fits a file's name, without `test_`.
AREAS = {
    "conformance": ("conformance",),
    "links cut, ids twice": ("cuts", "heartbeats", "namesakes", "marks", "releases", "proxy", "set_aside"),
    "broker or process killed": (
        "kill",
        "client_killed",
        "pills",
        "dead_letters_killed",
        "spark_broker_killed",
    ),
    "dead letters": ("dead_letter", "redrive"),
    "sessions": ("sessions", "commits"),
    "waits in the broker": ("scheduled", "native", "consumer_timeout"),
    "Spark": ("spark",),
    "the rest": ("",),
}
NATIVE = "the broker's own acknowledgement"
LAST = f"; by {NATIVE} what does not arrive whole, if it is persistent"
FORWARD = {"atomic": "in one transaction", "confirmed": "confirmed before"}
WAITS = {
    "native": "the message itself",
    "atomic": "a copy in one transaction",
    "confirmed": "a confirmed copy",
    "none": "no",
}


def drawn(results: Mapping[str, Any]) -> str:
    """Return both tables, and the list of failures."""
    rows = sorted(results, key=_place)
    return "\n\n".join(["\n".join(_offers(results, rows)), "\n".join(_seen(results, rows))])


def in_page(page: str) -> str:
    """Return the tables that a page has between the marks."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def with_tables(page: str, tables: str) -> str:
    """Return a page with these tables between its marks."""
    start, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{start}{BEGIN}\n\n{tables}\n\n{END}{after}"


def _place(key: str) -> tuple[str, list[int], str]:
    broker, version, protocol = key.split(" ")
    return broker, [int(number) for number in re.findall(r"\d+", version)], protocol


def _label(key: str) -> str:
    broker, version, protocol = key.split(" ")
    return f"{NAMES[broker]} {version}, {protocol.upper()}"


def _offers(results: Mapping[str, Any], rows: Sequence[str]) -> Iterator[str]:
    yield _row("broker, version, protocol", "poison leaves as", "the broker holds back", "counts deliveries",
               "transactions", "browse", "topics, durable, selectors", "bodies that arrive whole")  # fmt: skip
    yield _row(*["---"] * 8)
    for key in rows:
        offers = results[key].get("offers")
        if offers is None:
            continue
        own = offers["own_poison"] if offers["poison_persistent"] else ""
        copy = f"a copy, {FORWARD[offers['forward']]}{LAST if own == 'last' else ''}"
        features = [name for name in ("topics", "durable", "selectors") if name in offers["features"]]
        yield _row(
            _label(key),
            NATIVE if own == "first" else copy,
            WAITS[_waits(key, offers["reschedule"])],
            _yes(offers["counts"]),
            _yes(offers["transactions"]),
            _yes(offers["browse"]),
            "all" if len(features) == 3 else ", ".join(features),
            "all" if len(offers["bodies"]) == 5 else ", ".join(offers["bodies"]),
        )


def _waits(key: str, reschedule: str) -> str:
    # On RabbitMQ only quorum queues delay messages, and the broker reports the kind of a queue.
    return "none" if reschedule == "native" and not key.startswith("rabbitmq4 ") else reschedule


def _seen(results: Mapping[str, Any], rows: Sequence[str]) -> Iterator[str]:
    failed: list[str] = []
    yield _row("broker, version, protocol", *AREAS, "seen on")
    yield _row(*["---"] * (len(AREAS) + 2))
    for key in rows:
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        dates = set()
        for file, found in results[key]["files"].items():
            area = counts[_area(file)]
            area[0] += found["passed"]
            area[1] += found["passed"] + len(found["failed"])
            failed += [f"- {_label(key)}: `{file}`, `{name}`" for name in found["failed"]]
            dates.add(found["on"])
        yield _row(_label(key), *(_share(*counts[area]) for area in AREAS), max(dates))
    if failed:
        yield ""
        yield "What failed:"
        yield ""
        yield from failed


def _area(file: str) -> str:
    stem = file.removeprefix("test_").removesuffix(".py")
    fits = {begin: area for area, begins in AREAS.items() for begin in begins if stem.startswith(begin)}
    return fits[max(fits, key=len)]


def _share(passed: int, ran: int) -> str:
    if not ran:
        return "not run"
    return str(passed) if passed == ran else f"{passed} of {ran}"


def _yes(value: object) -> str:
    return "yes" if value else "no"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
