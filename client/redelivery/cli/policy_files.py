"""Policy files on the command line: the schedules of all their destinations."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from redelivery.cli.formatting import duration, note, print_table, to_json

if TYPE_CHECKING:
    from redelivery.cli.explain import Explanation
    from redelivery.importers import Imported
    from redelivery.settings import Settings

__all__ = ["is_file", "read_file", "settings_of", "show_file"]

_FILES = (".xml", ".toml", ".json", ".yaml", ".yml")
# Different delays in a row of the table, at most.
_FIRST = 8


def is_file(word: str) -> bool:
    """True if an argument is a file and no URI."""
    return bool(word) and "://" not in word and (Path(word).suffix.lower() in _FILES or Path(word).exists())


def read_file(name: str, *, quiet: bool = False) -> Imported:
    """Read a policy file, and write its notes to stderr, unless `quiet`."""
    from redelivery.importers import read  # noqa: PLC0415 - parsers are for files alone

    imported = read(name)
    for line in () if quiet else imported.notes:
        note(f"note: {line}")
    return imported


def settings_of(imported: Imported) -> Settings:
    """Return the settings of a connection with the policies and dead-letter options of the file."""
    from redelivery.uri.joining import option_text  # noqa: PLC0415
    from redelivery.uri.parser import parse_uri  # noqa: PLC0415

    options = option_text(imported.dead_letters)
    settings = parse_uri(f"memory://file?{options}" if options else "memory://file")
    return replace(settings, policies=imported.policies)


def show_file(imported: Imported, redeliveries: int | None, output: str) -> None:
    """Show the schedule of every pattern of a file, and that of all other destinations."""
    from redelivery.cli.explain import explain_all, explain_places  # noqa: PLC0415

    settings = settings_of(imported)
    explanations = explain_all(settings, imported.file, redeliveries)
    places = explain_places(settings)
    if output == "json":
        document: dict[str, Any] = {
            "file": imported.file,
            "kind": imported.kind,
            "policies": [explanation.fields("file") for explanation in explanations],
            "dead_letters": dict(imported.dead_letters),
            "dead_letter_map": [{"pattern": pattern, "then": then} for pattern, then in places],
            "notes": [{"line": found.line, "what": found.what, "why": found.why} for found in imported.notes],
        }
        click.echo(to_json(document, indent=2))
    elif output == "jsonl":
        for explanation in explanations:
            click.echo(to_json(explanation.fields("file")))
    else:
        click.echo(f"{imported.file}: {imported.kind}\n")
        headers = ["pattern", "deliveries", "delays", "total"]
        print_table([_row(explanation) for explanation in explanations], headers, fold=["pattern", "delays"])
        if places:
            click.echo()
            rows = [*places, ("(any other)", explanations[-1].then)]
            print_table(rows, ["dead letters of", "then"], fold=["dead letters of", "then"])
        else:
            click.echo(f"\nthen         {explanations[-1].then}")


def _row(explanation: Explanation) -> tuple[str, str, str, str]:
    pattern = explanation.pattern or "(any other)"
    rows = explanation.rows
    runs = [(ms, len(list(run))) for ms, run in groupby(row.delay for row in rows)]
    shown = [duration(ms) if count == 1 else f"{count} x {duration(ms)}" for ms, count in runs[:_FIRST]]
    delays = ", ".join(shown)
    more = not explanation.complete or len(runs) > _FIRST
    varied = " (varied)" if rows and rows[-1].varies else ""
    total = duration(rows[-1].elapsed) if rows else "0 ms"
    return (
        pattern,
        _deliveries(explanation),
        (delays or "none") + (", ..." if more else "") + varied,
        total if explanation.complete else f"over {total}",
    )


def _deliveries(explanation: Explanation) -> str:
    limit = explanation.limit_ms
    if explanation.deliveries is not None:
        return str(explanation.deliveries)
    return "no limit" if limit is None else f"for {duration(limit)}"
