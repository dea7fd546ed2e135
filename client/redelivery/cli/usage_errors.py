"""Sentences about wrong usage of the command line, in this project's words instead of click's."""

from __future__ import annotations

import click

from redelivery.errors import near_miss

__all__ = ["SuggestingGroup", "WrongValue", "sentence"]


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
