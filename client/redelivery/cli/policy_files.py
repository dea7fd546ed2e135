"""Policy files on the command line: all their schedules at a glance, and `policy convert`."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from redelivery.cli.common_options import verbose_option
from redelivery.cli.exit_codes import OK, PARTLY
from redelivery.cli.formatting import duration, note, print_table, to_json
from redelivery.cli.param_types import one_of

if TYPE_CHECKING:
    from redelivery.cli.explain import Explanation
    from redelivery.importers import Imported
    from redelivery.settings import Settings

__all__ = ["convert", "is_file", "read_file", "settings_of", "show_file"]

_FILES = (".xml", ".toml", ".json", ".yaml", ".yml")
# Different delays that a row of the table shows.
_FIRST = 8


def is_file(word: str) -> bool:
    """Whether an argument is a file rather than a URI."""
    return "://" not in word and (Path(word).suffix.lower() in _FILES or Path(word).exists())


def read_file(name: str) -> Imported:
    """Read a policy file, and write its notes to stderr."""
    from redelivery.importers import read  # noqa: PLC0415 - parsers are for those who have files

    imported = read(name)
    for line in imported.notes:
        note(f"note: {line}")
    return imported


def settings_of(imported: Imported) -> Settings:
    """Return what a connection would have by the file."""
    from redelivery.uri.joining import option_text  # noqa: PLC0415
    from redelivery.uri.parser import parse_uri  # noqa: PLC0415

    options = option_text(imported.dead_letters)
    settings = parse_uri(f"memory://file?{options}" if options else "memory://file")
    return replace(settings, policies=imported.policies)


def show_file(imported: Imported, redeliveries: int | None, output: str) -> None:
    """Show the schedule of every pattern of a file, and that of what none matches."""
    from redelivery.cli.explain import explain_all  # noqa: PLC0415

    explanations = explain_all(settings_of(imported), imported.file, redeliveries)
    if output == "json":
        document: dict[str, Any] = {
            "file": imported.file,
            "kind": imported.kind,
            "policies": [explanation.fields("file") for explanation in explanations],
            "dead_letters": dict(imported.dead_letters),
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


@click.command(
    short_help="Write a broker's policies as URI options or TOML.",
    epilog="""\b
Examples:
  redelivery policy convert activemq.xml --to toml >policies.toml
  redelivery policy convert broker.xml --to uri

\b
A file is ActiveMQ Classic's or Artemis' XML, Broker-J's JSON, or TOML; which
of them is told by its content. What cannot be carried over is named on
stderr, with its line. Exit code 3: a URI cannot say one of the schedules.""",
)
@click.argument("file", metavar="FILE")
@click.option(
    "--to", "form", required=True, type=one_of("uri", "toml"), metavar="uri|toml", help="What to write."
)
@verbose_option
def convert(file: str, form: str) -> int:
    """Convert a policy file to the options of a connection URI, which go behind its ?, or to TOML."""
    imported = read_file(file)
    if form == "toml":
        from redelivery.importers.toml_writer import to_toml  # noqa: PLC0415

        click.echo(to_toml(imported.policies, imported.dead_letters), nl=False)
        return OK
    from redelivery.importers.uri_writer import to_uri_options  # noqa: PLC0415

    written = to_uri_options(imported.policies, imported.dead_letters)
    click.echo(written.text)
    for line in (*written.differences, *written.notes):
        note(f"note: {imported.file}: {line}")
    return PARTLY if written.differences else OK
