"""Options of `consume` on failures of its handler: `--poison-on`, `--discard-on`, `--trip-on`, `--trip`."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from redelivery.classifier import Classifier
from redelivery.cli.param_types import statuses
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FailureOptions", "failure_options"]

Command = TypeVar("Command", bound="Callable[..., Any]")

# Option and the argument that it is.
_STATUSES = {"--poison-on": "poison_on", "--discard-on": "discard_on", "--trip-on": "trip_on"}


def failure_options(command: Command) -> Command:
    """Add the options, of which `FailureOptions.of` makes one value."""
    for option in (
        click.option(
            "--trip", multiple=True, metavar="MODULE:EXCEPTION",
            help="An exception of the function that says that a service is down: 3 in a row pause handling, and no "
            "redelivery is used up. May be repeated.",
        ),
        click.option(
            "--trip-on", type=statuses, metavar="STATUS,...",
            help="Exit statuses of the command that say that a service is down: 3 in a row pause handling, and no "
            "redelivery is used up.",
        ),
        click.option(
            "--discard-on", type=statuses, metavar="STATUS,...",
            help="Exit statuses of the command that accept and drop the message.",
        ),
        click.option(
            "--poison-on", type=statuses, metavar="STATUS,...",
            help="Exit statuses of the command that dead-letter the message at once.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


class FailureOptions(NamedTuple):
    """What exit statuses of a command, and exceptions of a function, mean."""

    poison_on: frozenset[int]
    discard_on: frozenset[int]
    trip_on: frozenset[int]
    errors: Classifier | None
    """What the listener is given; None: nothing is named."""

    @classmethod
    def of(cls, given: dict[str, Any], handler: str | None, command: str | None) -> FailureOptions:
        """Take the options out of what a command was given.

        Raises:
            UsageError: they make no sense together.
            ConfigurationError: an exception is not there, or is none.
        """
        trip = given.pop("trip")
        found: dict[str, frozenset[int] | None] = {name: given.pop(key) for name, key in _STATUSES.items()}
        for name, each in found.items():
            if each is not None and command is None:
                raise click.UsageError(f"{name} is about the exit status of a command: it needs --exec")
        if trip and handler is None:
            raise click.UsageError("--trip is about what a function raises: it needs --handler")
        named = {name: each or frozenset[int]() for name, each in found.items()}
        for one, other in combinations(named, 2):
            if both := named[one] & named[other]:
                raise click.UsageError(f"{one} and {other} both name exit status {min(both)}")
        trip_on = named["--trip-on"]
        return cls(named["--poison-on"], named["--discard-on"], trip_on, _errors(trip, trip_on))


def _errors(trip: tuple[str, ...], trip_on: frozenset[int]) -> Classifier | None:
    """Return the classifier. Raises ConfigurationError if an exception is not there, or is none."""
    if trip_on:
        from redelivery.cli.shell_handler import ServiceDown  # noqa: PLC0415 - for --exec alone

        return Classifier().trip(ServiceDown)
    return Classifier().trip(*(_exception(name) for name in trip)) if trip else None


def _exception(name: str) -> type[Exception]:
    from redelivery.cli.handler_lookup import load_named  # noqa: PLC0415 - for --handler alone

    found = load_named(name, "--trip", "exception")
    if not isinstance(found, type) or not issubclass(found, Exception):
        raise ConfigurationError(f"--trip {name}: it is no exception", option="--trip")
    return found
