"""Options of several commands, and the set-up of logging."""

from __future__ import annotations

import logging
import os
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from redelivery.cli.app import WrongValue
from redelivery.cli.formatting import clean
from redelivery.driver.port import check_handler
from redelivery.errors import ConfigurationError, near_miss

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "load_handler",
    "load_named",
    "milliseconds",
    "number",
    "one_of",
    "output_option",
    "rate",
    "seconds",
    "statuses",
    "uri_and_rest",
    "verbose_option",
]


# ---- Param types -----------------------------------------------------------------------------------------
# Readers of option values: each refuses a wrong value with the same form of sentence.

LAST_STATUS = 255


def number(low: int, high: int | None = None) -> Callable[[object], int]:
    """Return what reads a whole number from `low` to `high` (None: no bound)."""
    bounds = f"of {low} or more" if high is None else f"from {low} to {high}"

    def read(value: object) -> int:
        text = str(value)
        digits = text.removeprefix("-")
        found = int(text) if digits.isascii() and digits.isdigit() else None
        if found is None or found < low or (high is not None and found > high):
            raise WrongValue(f"must be a whole number {bounds}, not {text!r}")
        return found

    return read


# Seconds of each unit.
_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]+)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,3})?|\.[0-9]+")


def _duration(text: str, bare: float) -> float | None:
    """Return the seconds of `90`, `1.5h` or `1h30m`; None if it is no duration. `bare`: seconds of a number alone."""
    text = text.strip().lower()
    if _NUMBER.fullmatch(text):
        found = float(text) * bare
    else:
        parts = _PART.findall(text)
        if not parts or _PART.sub("", text).strip() or any(unit not in _UNITS for _, unit in parts):
            return None
        found = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return found if found < float("inf") else None


def seconds(*, positive: bool = False) -> Callable[[object], float]:
    """Return what reads a duration as seconds: 0 or more, or, with `positive`, more than 0. A bare number: seconds."""
    least = "more than 0" if positive else "0 or more"

    def read(value: object) -> float:
        found = _duration(str(value), 1.0)
        if found is None or (positive and not found):
            raise WrongValue(
                f"must be a duration, {least}: 30s, 15m, 2h, 30d or a number of seconds, not {str(value)!r}"
            )
        return found

    return read


def milliseconds(low: int) -> Callable[[object], int]:
    """Return what reads a duration as whole milliseconds, from `low` on. A bare number: milliseconds."""

    def read(value: object) -> int:
        found = _duration(str(value), 0.001)
        ms = None if found is None else found * 1000
        if ms is None or round(ms) < low or abs(ms - round(ms)) > 0.001:
            raise WrongValue(
                f"must be a duration of {low} ms or more: 30s, 2h or a whole number of milliseconds, not {str(value)!r}"
            )
        return round(ms)

    return read


def rate(value: object) -> float:
    """Read a number of messages a second of more than 0."""
    text = str(value).strip()
    found = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0 < found < float("inf"):
        raise WrongValue(f"must be a number of messages a second, more than 0, not {str(value)!r}")
    return found


def one_of(*words: str) -> Callable[[object], str]:
    """Return what reads one of some words."""
    allowed = f"{', '.join(words[:-1])} or {words[-1]}"

    def read(value: object) -> str:
        if value not in words:
            raise WrongValue(f"must be {allowed}, not {value!r}{near_miss(str(value), words)}")
        return str(value)

    return read


def statuses(value: object) -> frozenset[int]:
    """Read exit statuses, separated by commas."""
    parts = [part.strip() for part in str(value).split(",")]
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= LAST_STATUS for part in parts):
        raise WrongValue(f"must be exit statuses from 1 to 255, as in 65,78, not {str(value)!r}")
    return frozenset(int(part) for part in parts)


# ---- Common options --------------------------------------------------------------------------------------

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
    from redelivery.uri.schemes import JAVA_PORTS, SCHEMES, SPELLINGS  # noqa: PLC0415

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


# ---- Handler lookup --------------------------------------------------------------------------------------
# Look-up of `module:name`: the function of `--handler`, the exceptions of `--trip`.


def load_handler(name: str) -> Callable[..., Any]:
    """Return the callable that `module:function` names. Raises ConfigurationError as `load_named` does."""
    found = load_named(name, "--handler", "function")
    if not callable(found):
        path = name.partition(":")[2]
        raise ConfigurationError(
            f"--handler {name}: {path} is no function but {type(found).__name__}", option="--handler"
        )
    handler: Callable[..., Any] = found
    check_handler(handler, "--handler")
    return handler


def load_named(name: str, option: str, what: str) -> Any:
    """Return the object that `module:name` names; the current directory is importable.

    Raises ConfigurationError with the name that is missing, also for any exception of the module's import. `what`: the
    word for such an object.
    """
    module_name, colon, path = name.partition(":")
    if not colon or not module_name.strip() or not path.strip():
        raise ConfigurationError(f"{option} is written module:{what}, not {name!r}", option=option)
    here = os.getcwd()
    if here not in sys.path:
        # As with `python -m`.
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"{option} {name}: cannot import {module_name}: {type(error).__name__}: {error}",
            option=option,
        ) from error
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ConfigurationError(
                f"{option} {name}: {module_name} has no {path!r}{near_miss(path, dir(found))}",
                option=option,
            ) from None
    return found
