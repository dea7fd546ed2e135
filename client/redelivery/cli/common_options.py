"""Options of several commands, and the set-up of logging."""

from __future__ import annotations

import logging
import os
import re
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from redelivery.cli.formatting import clean
from redelivery.cli.param_types import one_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ENVIRONMENT", "output_option", "uri_and_rest", "verbose_option"]

ENVIRONMENT = "REDELIVERY_URL"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PLACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*:[0-9]{1,5}")
_DESTINATIONS = ("queue", "topic", "temp-queue", "temp-topic", "native")

Command = TypeVar("Command", bound="Callable[..., Any]")


def output_option(command: Command) -> Command:
    """Add `--output`."""
    return click.option(
        "--output", type=one_of("table", "json", "jsonl"), default="table", show_default=True,
        metavar="table|json|jsonl",
        help="How data is written to stdout.",
    )(command)  # fmt: skip


def verbose_option(command: Command) -> Command:
    """Add `-v`; it sets up logging whether it is given or not."""
    return click.option(
        "-v", "--verbose", count=True, expose_value=False, callback=_set_up_logging,
        help="Log to stderr what happens, with tracebacks; -vv: also the frames on the wire, without credentials.",
    )(command)  # fmt: skip


def uri_and_rest(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the connection URI and the other arguments.

    The first argument is the URI if it starts with the scheme of one. Without `REDELIVERY_URL` it must be one.
    """
    from redelivery.registry import schemes  # noqa: PLC0415
    from redelivery.uri.option_table import JAVA_PORTS, SCHEMES, SPELLINGS  # noqa: PLC0415

    fallback = os.environ.get(ENVIRONMENT, "").strip()
    first = words[0] if words else ""
    found = _SCHEME.match(first)
    scheme = found[1].lower() if found else ""
    listed = first.startswith("(") or first[: len("failover:")].lower() == "failover:"
    if listed or scheme in (*SCHEMES, *SPELLINGS, *JAVA_PORTS) or (scheme and scheme in schemes()):
        return first, words[1:]
    if _PLACE.fullmatch(first):
        raise click.UsageError(f"{first!r} is no URI: write stomp://{first}")
    if fallback:
        return fallback, words
    if scheme and scheme not in _DESTINATIONS:
        # Reading it raises an error that explains it.
        return first, words[1:]
    raise click.UsageError(
        f"no connection URI: give one as the first argument, such as stomp://localhost:61613, or set {ENVIRONMENT}"
    )


class _OneLine(logging.Handler):
    """Writes records to stderr: one line each, with a traceback only if that was asked for."""

    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            detail = str(error)
            text += f": {type(error).__name__}" + (f": {detail}" if detail else "")
        fields: dict[str, Any] = getattr(record, "redelivery", {})
        stack = str(fields.get("stack") or "")
        if stack:
            text = text.removesuffix(stack)
        lines = [f"{record.levelname.lower()}: {clean(' '.join(text.split()))}", *stack.splitlines()]
        if self._tracebacks and record.exc_info:
            lines += logging.Formatter().formatException(record.exc_info).splitlines()
        try:
            sys.stderr.write("\n".join(map(clean, lines)) + "\n")
        except (OSError, ValueError):
            # The reader of stderr has gone: that must not stop the work.
            return


def _set_up_logging(ctx: click.Context, _: click.Parameter, verbosity: int) -> None:
    ctx.meta["verbosity"] = verbosity
    root = logging.getLogger()
    for handler in [*root.handlers]:
        if isinstance(handler, _OneLine):
            root.removeHandler(handler)
    root.addHandler(_OneLine(tracebacks=verbosity > 0))
    levels = {
        "redelivery": (logging.WARNING, logging.DEBUG, logging.DEBUG),
        "redelivery.wire": (logging.INFO, logging.INFO, logging.DEBUG),
        # It logs tracebacks for what our errors say in one line, and whole frames with credentials.
        "stomp.py": (logging.CRITICAL, logging.CRITICAL, logging.CRITICAL),
    }
    for name, by_verbosity in levels.items():
        logging.getLogger(name).setLevel(by_verbosity[min(verbosity, 2)])
