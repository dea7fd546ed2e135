"""Options of `consume` on failures of its handler: `--poison-on`, `--discard-on`, `--trip-on`, `--trip`."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from redelivery.classifier import Classifier
from redelivery.cli.param_types import statuses
from redelivery.core.breaker import Breaker
from redelivery.core.program_end import is_failure_type
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FailureOptions", "failure_options"]

Command = TypeVar("Command", bound="Callable[..., Any]")

# Argument of each option.
_STATUSES = {"--poison-on": "poison_on", "--discard-on": "discard_on", "--trip-on": "trip_on"}


def failure_options(command: Command) -> Command:
    """Add the options, which `FailureOptions.of` reads."""
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
            help="Exit statuses of the command that discard the message.",
        ),
        click.option(
            "--poison-on", type=statuses, metavar="STATUS,...",
            help="Exit statuses of the command that dead-letter the message at once.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


class FailureOptions(NamedTuple):
    """Meaning of exit statuses of a command, and of exceptions of a function."""

    poison_on: frozenset[int]
    discard_on: frozenset[int]
    trip_on: frozenset[int]
    errors: Classifier | None
    """Classifier of the listener; None: no exception is named."""

    def pauses(
        self, command: str | None, breaker: Breaker | None
    ) -> tuple[Classifier | None, Breaker | None]:
        """Return the classifier and the breaker of the listener. `breaker`: that of the URI, None: it is off.

        Off is about exit statuses. That the system starts no command is the fault of no message: handling pauses then.
        """
        if command is None or breaker is not None:
            return self.errors, breaker
        from redelivery.cli.shell_handler import NotStarted  # noqa: PLC0415 - for --exec alone

        return Classifier().trip(NotStarted), Breaker(failures=0)

    @classmethod
    def of(cls, given: dict[str, Any], handler: str | None, command: str | None) -> FailureOptions:
        """Remove the options from the arguments of a command, and return their meaning.

        Raises:
            UsageError: They make no sense together.
            ConfigurationError: A named exception does not exist, or is no exception.
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
        errors = _errors(trip, of_command=command is not None)
        return cls(named["--poison-on"], named["--discard-on"], named["--trip-on"], errors)


def _errors(trip: tuple[str, ...], *, of_command: bool) -> Classifier | None:
    """Return the classifier. Raises ConfigurationError if a named exception does not exist, or is no exception."""
    if of_command:
        from redelivery.cli.shell_handler import ServiceDown  # noqa: PLC0415 - for --exec alone

        return Classifier().trip(ServiceDown)
    return Classifier().trip(*(_exception(name) for name in trip)) if trip else None


def _exception(name: str) -> type[BaseException]:
    from redelivery.cli.handler_lookup import load_named  # noqa: PLC0415 - for --handler alone

    found = load_named(name, "--trip", "exception")
    if not is_failure_type(found):
        raise ConfigurationError(
            f"--trip {name}: not an exception; name a class of exceptions", option="--trip"
        )
    return found
