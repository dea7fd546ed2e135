"""Command group, whose commands are loaded when they are used, and exit codes of errors."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from redelivery.cli.exit_codes import (
    FAILED,
    HELD_UP,
    INTERNAL,
    INTERRUPTED,
    MISCONFIGURED,
    OK,
    UNREACHABLE,
    USAGE,
    Failure,
)
from redelivery.core.shown_values import printable
from redelivery.errors import (
    BreakerOpen,
    ConfigurationError,
    HandlerTimeout,
    RedeliveryError,
    TransportError,
    near_miss,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SuggestingGroup", "WrongValue", "cli", "run"]


# ---- Usage errors ----------------------------------------------------------------------------------------
# Sentences about wrong usage of the command line, in this project's words instead of click's.

# Names of other tools for an option, none of which is near it in spelling.
_SYNONYMS = {
    "--since": "--younger-than",
    "--after": "--younger-than",
    "--newer-than": "--younger-than",
    "--max-age": "--younger-than",
    "--until": "--older-than",
    "--before": "--older-than",
    "--min-age": "--older-than",
    "--queue": "--destination",
    "--from": "--destination",
    "--error": "--cause",
    "--overwrite": "--force",
}


class WrongValue(click.BadParameter):
    """A value that an option does not allow. The message continues the option's name: "must be …"."""


def sentence(error: click.ClickException) -> str:
    """Return the mistake, and the right usage where it is known."""
    # click 8 distinguishes these by their text only.
    match error:
        case click.NoSuchOption():
            return f"no option {error.option_name!r}{_near_option(error)}"
        case click.BadOptionUsage() if "requires" in error.message:
            return f"{error.option_name} needs a value"
        case click.BadOptionUsage() if "not take" in error.message:
            return f"{error.option_name} takes no value"
        case click.BadParameter():
            return _parameter(error)
        case click.UsageError() if "unexpected extra argument" in error.message:
            return f"takes no argument {error.message.partition('(')[2].rstrip(').')!r}"
        case _:
            return error.format_message()


class SuggestingGroup(click.Group):
    """Group of commands; an unknown one is answered with the nearest, or with the list."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in (known := self.list_commands(ctx)):
            near = near_miss(args[0], known) or f"; there are {', '.join(known)}"
            raise click.UsageError(f"no command {args[0]!r}{near}", ctx)
        return super().resolve_command(ctx, args)


def _near_option(error: click.NoSuchOption) -> str:
    params = [] if error.ctx is None else error.ctx.command.get_params(error.ctx)
    known = [name for param in params for name in param.opts if name.startswith("--")]
    if (meant := _SYNONYMS.get(error.option_name)) in known:
        return f"; did you mean {meant!r}?"
    if error.option_name in ("--json", "--jsonl") and "--output" in known:
        return f"; did you mean '--output {error.option_name.removeprefix('--')}'?"
    return near_miss(error.option_name, known)


def _parameter(error: click.BadParameter) -> str:
    if not isinstance(error, click.MissingParameter):
        between = " " if isinstance(error, WrongValue) else ": "
        return f"{_name(error)}{between}{_lower(error.message)}"
    if error.param is not None and error.param.param_type_name == "argument":
        return f"needs {error.param.metavar}"
    return f"needs {_name(error)}"


def _name(error: click.BadParameter) -> str:
    if isinstance(error.param_hint, str):
        return error.param_hint
    return max(error.param.opts, key=len) if error.param is not None else "a value"


def _lower(text: str) -> str:
    text = text.rstrip(".")
    # Click's own on files: 'name': No such file or directory.
    head, quote, tail = text.partition("': ")
    return f"{head}{quote}{tail[:1].lower()}{tail[1:]}" if quote else text


# ---- App -------------------------------------------------------------------------------------------------

_HOMES = {
    "demo": "demo:demo",
    "consume": "consume:consume",
    "send": "send:send",
    "policy": "policy:policy",
    "dlq": "dlq:dlq",
    "doctor": "doctor:doctor",
}
_EXTRAS = {"click": "cli", "rich": "cli", "matplotlib": "plot"}


class _PipeClosed(Exception):
    """The reader of our output has closed the pipe. Not a BrokenPipeError: click makes exit code 1 of that."""


class _Commands(SuggestingGroup):
    """Group of commands whose modules are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _HOMES:
            return None
        module, _, name = _HOMES[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"redelivery.cli.{module}"), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise _PipeClosed from None
        return result


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from redelivery import __version__  # noqa: PLC0415

        click.echo(f"redelivery {__version__}")
        ctx.exit()


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Exit codes: 0 ok, 1 failed, 2 usage, 3 partly done, 69 broker unreachable,
70 a handler is stuck, 75 the breaker was open for too long,
77 log-in refused, 78 bad configuration, 130 and 143 interrupted.
Environment: REDELIVERY_URL is the connection URI where none is given;
NO_COLOR switches colours off.""",
)
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_print_version,
    help="Show the version and exit.",
)  # fmt: skip
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Consumer-side message redelivery: policies, back-off and dead letters.

    Start with `redelivery demo`: it needs no broker.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. A mistake is one line on stderr."""
    # None if the shell has closed it (`>&-`): the work is done, and its output is lost.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A terminal without a character must not end the command.
            reconfigure(errors="backslashreplace")
    try:
        result = cli.main(
            args=None if args is None else list(args), prog_name="redelivery", standalone_mode=False
        )
    except _PipeClosed:
        # The interpreter flushes once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except click.Abort:
        return INTERRUPTED
    except (click.ClickException, Failure, RedeliveryError, ModuleNotFoundError, OSError) as error:
        message, code = _line_for(error)
        click.echo(message, err=True)
        return code
    return result if isinstance(result, int) else OK


def _line_for(error: Exception) -> tuple[str, int]:
    """Return the line for an error, and its exit code. An error that is no mistake of the user is raised again."""
    where, hint, code = "redelivery", "", FAILED
    text = str(error)
    match error:
        case click.UsageError():
            text, code = sentence(error).rstrip("."), USAGE
            if error.ctx is not None:
                where, hint = error.ctx.command_path, f" (see {error.ctx.command_path} --help)"
        case click.ClickException():
            text, code = error.format_message(), error.exit_code
        case Failure():
            code = error.code
        case ConfigurationError():
            code = MISCONFIGURED
        case BreakerOpen():
            code = HELD_UP
        case HandlerTimeout():
            code = INTERNAL
        case TransportError():
            code = UNREACHABLE
        case ModuleNotFoundError():
            package = (error.name or "").partition(".")[0]
            if package not in _EXTRAS:
                raise error
            text, code = f"needs {package}: pip install 'redelivery[{_EXTRAS[package]}]'", MISCONFIGURED
        case _:
            pass
    if isinstance(error, ConfigurationError) and len(error.errors) > 1:
        return "\n".join(_lines(where, text)), code
    text = " ".join(part.strip() for part in text.splitlines() if part.strip())
    return f"{where}: {printable(text[:1].lower() + text[1:] if _is_click(error) else text)}{hint}", code


def _lines(where: str, text: str) -> list[str]:
    """Return the lines of several mistakes: a head, and each mistake on a line of its own."""
    head, *mistakes = text.splitlines()
    return [f"{where}: {printable(head)}", *(f"  {printable(line)}" for line in mistakes)]


def _is_click(error: Exception) -> bool:
    return isinstance(error, click.ClickException)
