"""Page of errors: each exception and each exit code, what happened to the message, what to do."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, NamedTuple

from docs._generate.parts import table
from docs._generate.public import public_names

from redelivery import errors, handler_exceptions
from redelivery.cli import exit_codes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CODES", "EXCEPTIONS", "errors_page", "raisers"]


class Help(NamedTuple):
    """Cause of an error, what happened to the message, and what to do."""

    cause: str
    message: str
    do: str


EXCEPTIONS = {
    "ConfigurationError": Help(
        "An option, a policy or an argument cannot be honoured.",
        "No message was received. Over a running connection: the call had no effect.",
        "Read the text: it names the option, the values that it takes, and a near miss. `error.option` has the option.",
    ),
    "TransportError": Help(
        "No broker could be reached, or the connection was lost and was not restored in time.",
        "Received messages stay on the broker, unacknowledged; it redelivers them. A message that was being sent may be on the queue.",
        "Check address and network with `redelivery doctor URI`. Send again, if a duplicate does no harm.",
    ),
    "TransactionRolledBack": Help(
        "A transaction was rolled back before the broker carried it out.",
        "Nothing of the transaction was done: what was received is redelivered, what was sent is not on any queue.",
        "Handle the messages again when they are redelivered.",
    ),
    "AdapterError": Help(
        "The broker answered, and refused: log-in, access right, address, a full queue.",
        "A message that was to be sent is not on the queue. Received messages stay on the broker.",
        "Read the broker's text in the error, and its log. Change the rights or the queue; the same call fails again.",
    ),
    "LedgerError": Help(
        "The ledger cannot be read or written: locked, full disk, a broken file.",
        "It stays on the broker, unacknowledged. Nothing is handled while attempts cannot be counted.",
        "End the program that locks the file, or free the disk; then start the consumer again.",
    ),
    "HandlerTimeout": Help(
        "A handler ran longer than its `timeout=`.",
        "The delivery has failed, and the policy decides. After twice the time consuming stops; the message stays on the broker.",
        "Look at the stack of the handler in the log. Give its own calls a time-out that is shorter.",
    ),
    "BreakerOpen": Help(
        "No message succeeded for longer than `redelivery.breakerMaximumOpen`, and `breakerAtMaximum` is `stop`.",
        "It stays on the broker. No redelivery was charged since the breaker opened.",
        "Repair the service that the handler needs, then start the consumer again.",
    ),
    "AlreadySettled": Help(
        "A message was settled a second time.",
        "The first settlement holds; the second one had no effect.",
        "Settle each message once: by the return of the handler, by `with message`, or by `accept()` or `fail()`.",
    ),
    "Poison": Help(
        "Your handler raises it.",
        "It is dead-lettered now.",
        "Use it for a message that no redelivery can help.",
    ),
    "Discard": Help(
        "Your handler raises it.",
        "It is accepted and dropped.",
        "Use it for a message that no consumer needs any longer.",
    ),
    "Defer": Help(
        "Your handler raises it.",
        "It is parked for the given delay. No redelivery is charged, up to `redelivery.maximumDeferrals`.",
        "Use it for a message that is too early.",
    ),
}  # fmt: skip
# Raisers whose docstrings do not name the exception.
_RAISERS = {
    "BreakerOpen": ("Connection.run", "Connection.wait"),
    "AlreadySettled": ("Message.accept", "Message.fail"),
    "Poison": ("your handler",),
    "Discard": ("your handler",),
    "Defer": ("your handler",),
}
CODES = {
    "OK": ("All was done.", "Handled, or as the command says.", "-"),
    "FAILED": (
        "The broker refused, the ledger failed, a handler ended the program, or a file cannot be written.",
        "Unhandled messages stay on the broker.",
        "Read the line on stderr.",
    ),
    "USAGE": ("A command, option or value that does not exist.", "Untouched.", "`redelivery COMMAND --help`."),
    "PARTLY": (
        "A part was done: handlers still ran at the deadline, dead letters were not confirmed, or a selection matched nothing.",
        "What was not done stays on the broker.",
        "Run the same command again; it continues.",
    ),
    "UNREACHABLE": ("No broker answers.", "Untouched.", "`redelivery doctor URI`."),
    "INTERNAL": (
        "A handler did not end within twice its timeout, or a check of `doctor` failed itself.",
        "The message stays on the broker, and is redelivered.",
        "Look at the stack in the log; report a failed check.",
    ),
    "HELD_UP": (
        "The breaker was open for too long.",
        "Messages stay on the broker, uncharged.",
        "Repair the service that the handler needs.",
    ),
    "REFUSED": ("The broker refused the log-in.", "Untouched.", "Check user, password and rights."),
    "MISCONFIGURED": (
        "A URI, a handler or an installation that cannot work.",
        "Untouched.",
        "Read the line on stderr: it names the option or the package.",
    ),
    "INTERRUPTED": (
        "Ctrl-C before the first connection. SIGTERM: 143.",
        "Untouched, or left on the broker.",
        "-",
    ),
}  # fmt: skip


def errors_page() -> str:
    """Return the tables of exceptions and of exit codes."""
    names = [
        name
        for module in (errors, handler_exceptions)
        for name, value in vars(module).items()
        if name in module.__all__ and inspect.isclass(value)
    ]
    raised = raisers()
    codes = [[str(getattr(exit_codes, name)), *help_] for name, help_ in CODES.items()]
    return "\n\n".join(
        (
            "## Exceptions",
            "All are subclasses of `redelivery.RedeliveryError`.",
            *(_section(name, raised[name]) for name in names if name != "RedeliveryError"),
            "## Exit codes",
            table(["code", "cause", "what happened to messages", "what to do"], codes),
        )
    )


def _section(name: str, raised: tuple[str, ...]) -> str:
    page = "messages" if name in handler_exceptions.__all__ else "errors"
    help_ = EXCEPTIONS[name]
    return "\n".join(
        (
            f"### `{name}`\n",
            f"- **Cause**: {help_.cause}",
            f"- **The message**: {help_.message}",
            f"- **What to do**: {help_.do}",
            f"- **Raised by**: {_listed(raised)}. [Reference](api/{page}.md)",
        )
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" if name != "your handler" else name for name in names)


def raisers() -> dict[str, tuple[str, ...]]:
    """Return the public calls whose docstrings name an exception, by the exception."""
    found: dict[str, set[str]] = {error: set(names) for error, names in _RAISERS.items()}
    for name, text in _docstrings():
        _, _, raises = text.partition("Raises:\n")
        for error in re.findall(r"^\s+(?:redelivery\.)?(\w+):", raises, re.MULTILINE):
            found.setdefault(error, set()).add(name)
    return {error: tuple(sorted(names)) for error, names in found.items()}


def _docstrings() -> Iterator[tuple[str, str]]:
    """Go through the docstrings of the public calls that applications make."""
    for name, (page, full) in public_names().items():
        if name != full or page in ("api/adapter", "api/testing"):
            continue
        value = _value(full)
        short = full.removeprefix("redelivery.")
        if inspect.isclass(value):
            for member, method in inspect.getmembers(value, inspect.isroutine):
                if not member.startswith("_"):
                    yield f"{short}.{member}", inspect.getdoc(method) or ""
        yield short, inspect.getdoc(value) or ""


def _value(full: str) -> object:
    module, _, name = full.rpartition(".")
    return getattr(__import__(module, fromlist=[name]), name)
