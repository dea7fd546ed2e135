"""Books of runs as text: a table of Markdown, JSON, and what a person needs to find out why a row is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from integration.clusters.run import Outcome

__all__ = ["as_json", "details", "table"]

_HEAD = (
    "row", "confirmed", "lost", "twice", "extra calls", "dead", "double", "early", "late (worst)", "breaks",
    "failed sends", "longest gap", "refusals", "verdict",
)  # fmt: skip


def table(outcomes: Iterable[Outcome]) -> str:
    """Return a table of Markdown."""
    lines = [_HEAD, ("---",) * len(_HEAD), *map(_row, outcomes)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return all of a run as plain values."""
    values = outcome._asdict()
    return {
        **values,
        "row": asdict(outcome.row) | {"name": outcome.row.name},
        "verdict": asdict(outcome.verdict),
        "wrong": outcome.wrong,
    }


def details(outcome: Outcome) -> list[str]:
    """Return lines on one run: its result, refusals, health and log."""
    books = outcome.verdict
    shown = [f"{name}: {value}" for name, value in asdict(books).items() if value]
    refusals = Counter((text, passes) for _, text, passes in outcome.refusals)
    return [
        f"   {'WRONG: ' + '; '.join(outcome.wrong) if outcome.wrong else 'right'} in {outcome.seconds:.0f} s",
        f"   {', '.join(shown)}",
        *(f"   refused {count} times, passes {passes}: {text}" for (text, passes), count in refusals.items()),
        *(f"   health {at:6.1f} {what}" for at, what in outcome.health[:40]),
        *(f"   log {line[:400]}" for line in outcome.log[:60]),
        *(f"   send: {text[:300]}" for text in outcome.send_errors[:8]),
    ]


def _row(outcome: Outcome) -> tuple[str, ...]:
    books = outcome.verdict
    return (
        outcome.row.name,
        str(books.confirmed),
        str(len(books.lost)) + (f" (left {len(books.left)})" if books.left else ""),
        str(len(books.twice)) + (f" (stale {len(books.stale)})" if books.stale else ""),
        str(books.extra_calls),
        str(books.dead),
        str(books.dead_double),
        str(books.early),
        f"{books.late} ({books.latest} s)",
        str(books.breaks),
        str(books.send_errors),
        f"{books.longest_gap} s",
        str(len(outcome.refusals)),
        "; ".join(outcome.wrong) or "right",
    )
