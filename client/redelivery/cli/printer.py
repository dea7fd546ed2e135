"""Printer of messages on stdout: a growing table, or JSON."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from redelivery.cli.formatting import body_fields, clean, note, to_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.report import Report
    from redelivery.message import Message

__all__ = ["Printer", "message_fields", "report_line"]

# Characters of a body where there is no terminal.
PREVIEW = 60
COLUMNS = f"{'TIME':<12}  {'DELIVERY':>8}  {'MESSAGE':<36}  BODY"


def message_fields(message: Message) -> dict[str, Any]:
    """Return a message for JSON, without fields that it does not have."""
    fields: dict[str, Any] = {
        "message_id": message.message_id,
        "destination": message.destination,
        "delivery_count": message.delivery_count,
        "redelivered": message.redelivered,
        "timestamp": message.timestamp.isoformat() if message.timestamp else None,
        "expiration": message.expiration.isoformat() if message.expiration else None,
        "content_type": message.content_type,
        "correlation_id": message.correlation_id,
        "reply_to": message.reply_to,
        "group": message.group,
        "priority": message.priority,
        "persistent": message.persistent,
        "headers": dict(message.headers),
    }
    return {k: v for k, v in fields.items() if v is not None} | body_fields(message.body)


def report_line(report: Report) -> str:
    """Return the report as text: counts that are not 0, and always `accepted`."""
    counts = asdict(report)
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count or name == "accepted")


class Printer:
    """A handler that writes each message, flushed before it is accepted."""

    def __init__(self, output: str, enough: Callable[[], None]) -> None:
        """`enough` is called when the reader of stdout has gone."""
        self._output = output
        self._enough = enough
        self._written = 0
        self.closed = False

    def __call__(self, message: Message) -> None:
        """Write a message; release it if it cannot be written."""
        try:
            click.echo(self._text(message))
            sys.stdout.flush()
        except BrokenPipeError:
            self.closed = True
            message.release()
            self._enough()
            return
        self._written += 1

    def _text(self, message: Message) -> str:
        if self._output == "table":
            row = self._row(message)
            return row if self._written else f"{COLUMNS}\n{row}"
        line = to_json(message_fields(message))
        if self._output == "jsonl":
            return line
        return ('{"messages": [\n' if not self._written else ",\n") + line

    @staticmethod
    def _row(message: Message) -> str:
        import shutil  # noqa: PLC0415

        at = f"{message.timestamp.astimezone():%H:%M:%S.%f}"[:-3] if message.timestamp else "-"
        head = f"{at:<12}  {message.delivery_count:>8}  {clean(message.message_id or '-'):<36}  "
        room = PREVIEW
        if sys.stdout.isatty():
            room = max(10, shutil.get_terminal_size().columns - len(head))
        text = clean(message.body[: room * 4].decode("utf-8", "replace"))
        return head + (text if len(text) <= room else text[: room - 1] + "…")

    def finish(self, report: Report) -> None:
        """End the JSON, or write the report to stderr."""
        if self._output == "json" and not self.closed:
            start = '{"messages": [' if not self._written else ""
            click.echo(f'{start}\n], "report": {to_json(asdict(report))}}}')
        else:
            note(f"report: {report_line(report)}")
