"""How dead letters are shown: groups, rows, and one by itself."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from redelivery.cli.exit_codes import PARTLY, Failure
from redelivery.cli.formatting import clean, duration, note, print_table, to_json
from redelivery.dlq.dead_letter import Redriven
from redelivery.dlq.export import SUFFIX, row_of, written_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from redelivery.dlq.dead_letter import CauseGroup, CountedLetters, DeadLetter, Purged, Resent
    from redelivery.dlq.dead_letter_queue import DeadLetterQueue
    from redelivery.errors import AdapterError

__all__ = [
    "details",
    "is_message_id",
    "no_letters",
    "no_such_letter",
    "nothing_matched",
    "nothing_there",
    "print_groups",
    "print_letters",
    "report",
    "report_redrive",
    "report_resend",
]

PREVIEW = 4096  # characters of a body
# Bytes of a row of a body that is no text.
ROWS = 16
# Causes and origins that a command names when it found nothing.
NAMED = 5
DUMPED = 512  # bytes of it
# Lines of an export that a command names, of those that were not sent.
PROBLEMS = 20
# The count includes the failure of the first delivery.
LABELS = {"redelivery_count": "charged failures"}


def print_groups(groups: Sequence[CauseGroup], places: Sequence[str], output: str) -> None:
    """Print a summary; of several places, or of a pattern, with the dead-letter queue of each group."""
    queue = ", ".join(places)
    total = sum(group.count for group in groups)
    if output == "json":
        click.echo(
            to_json(
                {
                    "queue": queue,
                    "queues": list(places),
                    "count": total,
                    "groups": [asdict(one) for one in groups],
                },
                indent=2,
            )
        )
    elif output == "jsonl":
        for group in groups:
            click.echo(to_json(asdict(group)))
    elif groups:
        several = _several(places, (one.queue for one in groups))
        rows = [
            (
                str(one.count),
                *([one.queue] if several else []),
                one.original_destination,
                _short(one.cause),
                one.day,
            )
            for one in groups
        ]
        headers = ("count", *(["in"] if several else []), "from", "cause", "day")
        print_table(rows, headers, right=("count",), fold=("in", "from", "cause"))
        note(f"{total:,} dead letter{'' if total == 1 else 's'} in {queue}")
    else:
        note(no_letters(queue))


def _several(places: Sequence[str], queues: Iterable[str]) -> bool:
    """True if a table must say in which queue a dead letter is."""
    return len(places) > 1 or bool({*queues} - {*places})


def print_letters(
    letters: Iterable[DeadLetter], limit: int | None, output: str, places: Callable[[], Sequence[str]]
) -> int:
    """Print dead letters, one line each; return how many. `places`: those of the last look."""
    found, count = islice(letters, limit), 0
    if output == "jsonl":
        for count, one in enumerate(found, 1):  # noqa: B007 - the last one counts
            click.echo(to_json(row_of(one)))
        return count
    if output == "json":
        lines = [row_of(one) for one in found]
        click.echo(to_json({"messages": lines}, indent=2))
        return len(lines)
    listed = list(found)
    several = _several(places(), (one.queue for one in listed))
    rows = [
        (
            one.message_id or one.original_id or "-",
            *([one.queue] if several else []),
            one.original_destination or "unknown",
            _short(one.cause),
            "-" if one.died_at is None else f"{one.died_at:%Y-%m-%d %H:%M:%S}",
            str(one.redrives),
            str(len(one.body)),
        )
        for one in listed
    ]
    if rows:
        headers = ("id", *(["in"] if several else []), "from", "cause", "died (UTC)", "redrives", "bytes")
        print_table(rows, headers, right=("redrives", "bytes"), fold=("cause",))
    return len(rows)


def no_letters(queue: str) -> str:
    """Return the sentence about a queue without dead letters: brokers show a queue that is not there as empty."""
    if ", " in queue:
        return f"no dead letters in {queue}: they are empty, or do not exist"
    return f"no dead letters in {queue}: it is empty, or does not exist"


def nothing_matched(there: CountedLetters, queue: str, filters: Mapping[str, Any]) -> Failure:
    """Return the failure of a command whose filters match no dead letter: it names what is on the queue."""
    if not there.count:
        return Failure(no_letters(queue), PARTLY)
    return Failure(
        f"0 of {there.count:,} matched{_as_options(filters)}; causes in {queue}: {_most(there.causes)}; "
        f"from: {_most(there.origins)}",
        PARTLY,
    )


def nothing_there(tools: DeadLetterQueue, filters: Mapping[str, Any]) -> Failure:
    """Return the failure of a redrive or purge that matched nothing; without filters nothing need be looked at."""
    if not filters:
        return Failure(no_letters(tools.queue), PARTLY)
    return nothing_matched(tools.contents(take=True), tools.queue, filters)


def _as_options(filters: Mapping[str, Any]) -> str:
    found: list[str] = []
    for name, value in filters.items():
        values: Sequence[object] = (duration(value * 1000),) if isinstance(value, float) else value
        found += [f"--{name.replace('_', '-')} {_short(str(one))}" for one in values]
    return f" {' '.join(found)}" if found else ""


_ID = re.compile(r"^(?i:ID:)|^[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")


def is_message_id(word: str) -> bool:
    """True if a word looks like a message id of a broker, and not like the name of a queue."""
    return _ID.search(word) is not None


def no_such_letter(error: AdapterError, queue: Sequence[str]) -> Failure:
    """Return the failure of `show`, with the order of its arguments where two were given."""
    order = "the order is QUEUE ID, and " if queue else ""
    return Failure(f"{error}; {order}dlq list shows the ids")


def _most(counts: Mapping[str, int]) -> str:
    shown = [f"{_short(name)} {count:,}" for name, count in islice(counts.items(), NAMED)]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def details(letter: DeadLetter, output: str) -> None:
    """Print one dead letter."""
    if output != "table":
        click.echo(to_json(row_of(letter), indent=2 if output == "json" else None))
        return
    row = row_of(letter)
    for name in ("body", "body_base64", "headers"):
        row.pop(name, None)
    for name, value in row.items():
        if value is not None:
            click.echo(clean(f"{LABELS.get(name) or name.replace('_', ' ')}: {value}"))
    headers = {str(name): written_value(value) for name, value in letter.headers.items()}
    for name, value in sorted(headers.items(), key=itemgetter(0)):
        click.echo(clean(f"header {name}: {value}"))
    click.echo(f"body: {len(letter.body)} bytes")
    for line in _preview(letter):
        click.echo(clean(line))


def _preview(letter: DeadLetter) -> list[str]:
    """Return a body for people: JSON indented, text as it is, anything else in hexadecimal."""
    try:
        text = letter.body.decode()
    except UnicodeDecodeError:
        text = None
    kind = letter.content_type or ""
    if text is None or (not kind.startswith("text/") and "\0" in text):
        cut = letter.body[:DUMPED]
        lines = [f"{at:06x}  {cut[at : at + ROWS].hex(' ')}" for at in range(0, len(cut), ROWS)]
        return lines + (["…"] if len(letter.body) > DUMPED else [])
    if "json" in kind or text[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    lines = text[:PREVIEW].splitlines()
    return lines + (["…"] if len(text) > PREVIEW else [])


def report_redrive(done: Redriven, output: str) -> None:
    """Print what a redrive has done. Raises Failure if some that matched stay."""
    verb = "would be redriven" if done.dry_run else "redriven"
    lines = [
        f"{done.redriven:,} {verb}",
        *(f"  {count:,} to {where}" for where, count in done.destinations.items()),
    ]
    left = {
        "stay: redriven by this run, and dead-lettered again": done.again,
        "stay: their origin is not known (give --to)": done.without_origin,
        "named another origin than the broker's record, which decides": done.overruled,
        "were in another queue, too, and were removed there"
        if not done.dry_run
        else "are in another queue, too, and would be removed there": done.doubles,
        "stay: their bodies do not arrive whole over this protocol (use AMQP), or cannot be read": done.partial,
        "stay: they came from a topic, whose subscribers would all get them (give --yes)": done.topics,
    }
    report(done, output, lines, left)


def report_resend(done: Resent, file: str, output: str) -> None:
    """Print what was sent of an export, and a sentence for each line that was not. Raises Failure if there is one."""
    if output == "table":
        click.echo(f"{done.resent:,} {'would be resent' if done.dry_run else 'resent'}")
        for where, count in done.destinations.items():
            click.echo(clean(f"  {count:,} to {where}"))
    else:
        click.echo(to_json(asdict(done), indent=2 if output == "json" else None))
    if done.before:
        note(f"{done.before:,} were sent before, as {file}{SUFFIX} says; remove that file to send them again")
    if done.skipped:
        note(f"{done.skipped:,} did not match your filters")
    for one in done.problems[:PROBLEMS]:
        note(clean(f"{file}, line {one.line}: {one.text}"))
    if done.refused:
        more = "" if done.refused <= PROBLEMS else f"; the first {PROBLEMS} are named above"
        lines = "1 line was" if done.refused == 1 else f"{done.refused:,} lines were"
        raise Failure(
            f"{lines} not sent{more}; correct {'it' if done.refused == 1 else 'them'} and run it again",
            PARTLY,
        )
    if not (done.matched or done.dry_run):
        raise Failure(f"no line of {file} matched" if done.skipped else f"{file} has no dead letters", PARTLY)


def report(done: Redriven | Purged, output: str, lines: list[str], left: dict[str, int]) -> None:
    """Print what was done, and why some stay. Raises Failure if some of them matched."""
    if output == "table":
        for line in lines:
            click.echo(line)
        if done.skipped:
            matched = done.matched if isinstance(done, Redriven) else done.purged
            note(f"{matched:,} matched, {done.skipped:,} did not match your filters and stay")
        for why, count in left.items():
            if count:
                note(f"{count:,} {why}")
    else:
        click.echo(to_json(asdict(done), indent=2 if output == "json" else None))
    if not done.complete:
        why = done.incomplete or "some dead letters that matched stay"
        raise Failure(why, PARTLY)
