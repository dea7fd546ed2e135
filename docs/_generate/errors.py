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
    from collections.abc import Iterator, Mapping

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
        "Read the text: it names the option, the values that it takes, and a near miss. `error.option` has the option, `error.errors` all mistakes, `error.suggestion` a URI that works.",
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
        "The broker answered, and refused: log-in, access right, address, a full queue, a frame that is too large. Or a consumer had to stop: more messages were set aside than `redelivery.maximumSetAside`.",
        "A message that was to be sent is not on the queue. Received messages stay on the broker.",
        "Read the broker's text in the error, and its log. Change the rights or the queue; the same call fails again. Messages set aside: consume the queue over AMQP.",
    ),
    "LedgerError": Help(
        "The ledger cannot be read or written: locked, full disk, a broken file.",
        "It stays on the broker, unacknowledged. Nothing is handled while attempts cannot be counted.",
        "End the program that locks the file, or free the disk; then start the consumer again.",
    ),
    "HandlerTimeout": Help(
        "A handler ran longer than its `timeout=`.",
        "An `async def` handler is cancelled, and the delivery has failed; the policy decides. A plain function cannot be cancelled: the delivery fails when it ends. After twice the time `run()` drains and raises this error; without `run()`, the other messages go on, and `health().live` is False. The message stays on the broker until the handler or its process ends.",
        "Look at the stack of the handler in the log. Give its own calls a time-out that is shorter.",
    ),
    "BreakerOpen": Help(
        "No message succeeded for the longest time that the breaker may be open, and its `at_maximum` is `stop`. Or a run "
        "with `until_idle` found the breaker open over a named failure for a minute, or open at its end.",
        "It stays on the broker. No redelivery was charged since the breaker opened.",
        "Repair the service that the handler needs, then start the consumer again.",
    ),
    "BrokerUnavailable": Help(
        "A node of the broker starts or stops, or has no majority: it refuses a message for its queue, or the log-in.",
        "It was not sent.",
        "Send it, or connect, again after some seconds.",
    ),
    "AlreadySettled": Help(
        "A message was settled a second time.",
        "The first settlement holds; the second one had no effect.",
        "Settle each message once: by the return of the handler, by `with message`, or by one of `accept()`, `fail()`, `poison()` and `release()`.",
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
    "Poison": ("your handler",),
    "Discard": ("your handler",),
    "Defer": ("your handler",),
}
# Context managers, and how their errors are listed.
_ENTERED = {"Connection.__enter__": "with connect(…)"}
ASYNC = "Asynchronous calls raise the errors of their synchronous forms."
CODES = {
    "OK": ("All was done.", "Handled, or as the command says.", "-"),
    "FAILED": (
        "The broker refused something other than the log-in, the ledger failed, a handler ended the program, or a file cannot be written.",
        "Unhandled messages stay on the broker.",
        "Read the line on stderr.",
    ),
    "USAGE": ("A command, option or value that does not exist.", "Untouched.", "`redelivery COMMAND --help`."),
    "PARTLY": (
        "A part was done. `consume`: handlers still ran at the deadline, dead letters were not confirmed, or a message was set aside. `send`: only some were sent. `dlq`: it was interrupted, some that matched stay, or nothing matched. `policy convert`: not all was carried over. `doctor --strict`: a warning.",
        "The rest stays on the broker, or was not sent.",
        "Read the lines on stderr. A `dlq` command continues when it is run again.",
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
    "REFUSED": (
        "The broker refused the log-in of `consume`, `send`, `dlq` or `doctor`.",
        "Untouched.",
        "Check user, password and rights.",
    ),
    "MISCONFIGURED": (
        "A URI, a handler, a port or an installation that cannot work.",
        "Untouched.",
        "Read the line on stderr: it names the option or the package.",
    ),
    "INTERRUPTED": (
        "Ctrl-C before the first connection, or while a command only reads. SIGTERM: 143.",
        "Untouched.",
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
            "All are subclasses of `redelivery.RedeliveryError`. " + ASYNC,
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
    """Return the raisers in words; calls of one class stand together."""
    calls: dict[str, list[str]] = {}
    for name in names:
        owner, _, call = name.rpartition(".")
        if owner[:1].isupper():
            calls.setdefault(owner, []).append(f"`{call}`")
        else:
            calls.setdefault(name, [])
    return "; ".join(
        _owner(name) + (f": {', '.join(found)}" if found else "") for name, found in calls.items()
    )


def _owner(name: str) -> str:
    return name if name == "your handler" else f"`{name}`"


def raisers() -> dict[str, tuple[str, ...]]:
    """Return the public calls whose docstrings name an exception, by the exception."""
    found: dict[str, set[str]] = {error: set(names) for error, names in _RAISERS.items()}
    texts = dict(_docstrings())
    for name in texts:
        for error in _raised(texts, name):
            found.setdefault(error, set()).add(_ENTERED.get(name, name))
    return {error: tuple(sorted(_without_async(names))) for error, names in found.items()}


def _raised(texts: Mapping[str, str], name: str) -> set[str]:
    """Return the errors that a docstring names, and those of the call of its class to which it refers (`As …`)."""
    _, _, raises = texts.get(name, "").partition("Raises:\n")
    errors_ = set(re.findall(r"^\s+(?:redelivery\.)?(\w+):", raises, re.MULTILINE))
    owner, _, own = name.rpartition(".")
    for other in re.findall(r"\b[Aa]s `(\w+)`", raises):
        if other != own:
            errors_ |= _raised(texts, f"{owner}.{other}")
    return errors_


def _without_async(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("Async") or name.removeprefix("Async") not in names}


def _docstrings() -> Iterator[tuple[str, str]]:
    """Go through the docstrings of the public calls that applications make."""
    for name, (page, full) in public_names().items():
        if name != full or page in ("api/adapter", "api/testing"):
            continue
        value = _value(full)
        short = full.removeprefix("redelivery.")
        if inspect.isclass(value):
            for member, method in inspect.getmembers(value, inspect.isroutine):
                if not member.startswith("_") or f"{short}.{member}" in _ENTERED:
                    yield f"{short}.{member}", inspect.getdoc(method) or ""
        yield short, inspect.getdoc(value) or ""


def _value(full: str) -> object:
    module, _, name = full.rpartition(".")
    return getattr(__import__(module, fromlist=[name]), name)
