"""Reference of the command line: each command with its arguments, options and examples, as click has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
from docs._generate.parts import table

from redelivery.cli.app import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["all_commands", "commands_reference"]


def all_commands() -> list[tuple[str, click.Command, click.Context]]:
    """Return each command that does something, with its whole name, in the order of `--help`."""
    return list(_below(cli, click.Context(cli, info_name="redelivery", **cli.context_settings)))


def _below(
    command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    if not isinstance(command, click.Group):
        yield context.command_path, command, context
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _below(below, click.Context(below, info_name=name, parent=context))


def commands_reference() -> str:
    """Return a section for each command."""
    return "\n\n".join(_section(*each) for each in all_commands())


def _section(name: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    parts = [
        f"### `{name}`",
        f"```text\n{usage}\n```",
        *_paragraphs(command.help or ""),
        _options(command, context),
    ]
    return "\n\n".join([*parts, *_paragraphs(command.epilog or "")])


def _options(command: click.Command, context: click.Context) -> str:
    rows: list[list[str]] = []
    for each in command.get_params(context):
        record = each.get_help_record(context)
        if record is None or not isinstance(each, click.Option):
            continue
        text, default = _default(record[1])
        rows.append([f"`{record[0]}`", text or "-", default])
    return table(["option", "meaning", "default"], rows)


def _default(text: str) -> tuple[str, str]:
    """Take click's notes in brackets out of a help text."""
    found = re.search(r"\s*\[(?:default: (?P<default>[^\]]*)|(?P<plain>\d+|required)[^\]]*)\]\s*$", text)
    if found is None:
        return text.strip(), "-"
    return text[: found.start()].strip(), found["default"] or found["plain"]


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a help text; one that click does not wrap is shown as it is."""
    made: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if paragraph.lstrip().startswith("\b"):
            lines = paragraph.partition("\b")[2].strip("\n").split("\n")
            title = lines.pop(0) if lines and lines[0].rstrip().endswith(":") else ""
            if lines and all(line.startswith(" ") for line in lines):
                made += [each for each in (title, _block(lines)) if each]
            else:
                made.append(_escaped(" ".join([title, *lines])))
        elif paragraph.strip():
            made.append(_escaped(paragraph))
    return made


def _block(lines: list[str]) -> str:
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "```text\n" + "\n".join(line[indent:] for line in lines) + "\n```"


def _escaped(text: str) -> str:
    """Return a paragraph on one line, without what Markdown would read as markup."""
    plain = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"(?<![`\w])(--[\w-]+|<\w+>|_[A-Z_]+|[A-Z]+_[A-Z_]*(?:<name>)?)(?![`\w])", r"`\1`", plain)
