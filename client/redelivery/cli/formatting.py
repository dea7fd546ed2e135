"""Output helpers: tables, JSON, durations; safe on any terminal, plain in a pipe.

A message can contain terminal escapes: its texts are written through `clean` or JSON's escapes only.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from redelivery.core.printable import printable as clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

__all__ = [
    "body_fields",
    "clean",
    "console",
    "duration",
    "note",
    "print_table",
    "sparkline",
    "speaks",
    "to_json",
]

_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# Columns without a terminal: in a pipe each row is one line.
_WIDE = 10_000
# Columns: the least width of a column that may wrap, if its texts are longer.
_FOLDED = 20
_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-=+*%#"


def to_json(value: object, *, indent: int | None = None) -> str:
    """Return JSON without characters that control a terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def note(text: str) -> None:
    """Write one line to stderr."""
    click.echo(clean(text), err=True)


def speaks(stream: TextIO, characters: str) -> bool:
    """True if the stream's encoding has all the characters."""
    try:
        characters.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def console(*, err: bool = False, wide: bool = False) -> Console:
    """Return a console on stdout or stderr that shows text as it is, without markup. `wide`: as in a pipe."""
    from rich.console import Console  # noqa: PLC0415 - 60 ms that JSON does not need

    stream = sys.stderr if err else sys.stdout
    width = None if (stream.isatty() or "COLUMNS" in os.environ) and not wide else _WIDE
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def _least_width(rows: Sequence[Sequence[str]], headers: Sequence[str], fold: Sequence[str]) -> int:
    """Return the width of a table in which a column of `fold` is as narrow as can be read."""
    from rich.cells import cell_len  # noqa: PLC0415

    columns = zip(headers, *rows, strict=True)
    widths = [max(map(cell_len, column)) for column in columns]
    least = (min(each, _FOLDED) if name in fold else each for name, each in zip(headers, widths, strict=True))
    return sum(least) + 2 * (len(headers) - 1)


def print_table(
    rows: Iterable[Sequence[str]],
    headers: Sequence[str],
    *,
    right: Sequence[str] = (),
    fold: Sequence[str] = (),
) -> None:
    """Print a table without lines. `right`: headers of columns with numbers; `fold`: of those that may wrap.

    On a terminal that is too narrow each row is one line, which the terminal wraps: a cut id could not be copied.
    """
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(
            header,
            justify="right" if header in right else "left",
            no_wrap=header not in fold,
            overflow="fold" if header in fold else "ellipsis",
        )
    cleaned = [[clean(cell) for cell in row] for row in rows]
    for row in cleaned:
        table.add_row(*row)
    out = console()
    if _least_width(cleaned, headers, fold) > out.width:
        out = console(wide=True)
    with out.capture() as captured:
        out.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()), color=out.is_terminal)


def duration(ms: float) -> str:
    """Return a duration for people: `400 ms`, `1.6 s`, `2 min 5 s`, `1 d 3 h`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds, parts = ms / 1000, list[str]()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count:.0f} {unit}")
    if seconds >= 0.0005:
        parts.append(f"{seconds:.3f}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts)


def sparkline(values: Sequence[float]) -> str:
    """Return one bar for each value, as high as its share of the greatest."""
    bars = _BARS if speaks(sys.stdout, _BARS) else _PLAIN_BARS
    top = max(values, default=0)
    if top <= 0:
        return bars[0] * len(values)
    return "".join(bars[min(len(bars) - 1, int(value / top * len(bars)))] for value in values)


def body_fields(body: bytes) -> dict[str, Any]:
    """Return a body for JSON: `body` where it is text, else `body_base64`."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        import base64  # noqa: PLC0415

        return {"body_base64": base64.b64encode(body).decode()}
