"""Public names of the library: which modules have them, and on which page each one is documented."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from typing import NamedTuple

from docs._generate.missing import replaced

__all__ = ["PAGES", "ApiPage", "Name", "names_of", "public_modules", "public_names"]


class ApiPage(NamedTuple):
    """A page of the API reference."""

    file: str
    title: str
    about: str
    """One sentence: what the reader finds here."""
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    """Modules in order, each with the names that stand here; no names: those that stand on no other page."""


class Name(NamedTuple):
    """A public name: where it is imported from."""

    module: str
    name: str

    @property
    def full(self) -> str:
        """The dotted name."""
        return f"{self.module}.{self.name}"

    @property
    def value(self) -> object:
        """The object."""
        with replaced():
            return getattr(import_module(self.module), self.name)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


PAGES = (
    ApiPage(
        "connect",
        "Connections, consumers and sessions",
        "Connect to a broker, register handlers, pull messages, send, and end in order.",
        (
            (
                "redelivery",
                _words("""connect Connection Consumer Session connect_async AsyncConnection AsyncConsumer AsyncSession
                    Report Rate Breaker parse_uri Settings"""),
            ),
            ("redelivery.settings", ()),
            ("redelivery.clock", ()),
        ),
    ),
    ApiPage(
        "messages",
        "Messages and what a handler may raise",
        "Read a message, settle it, and steer what becomes of it by an exception.",
        (("redelivery", _words("Message Classifier Poison Discard Defer Destination")),),
    ),
    ApiPage(
        "policies",
        "Policies",
        "Compute redelivery delays, choose a policy by destination, and read policies from the files of brokers.",
        (
            ("redelivery", _words("RedeliveryPolicy ArtemisRedeliveryPolicy RedeliveryPolicyMap")),
            ("redelivery.importers", ()),
        ),
    ),
    ApiPage(
        "errors",
        "Exceptions",
        "Every exception that the library raises; what to do about each one is on the page of errors.",
        (
            (
                "redelivery",
                _words("""RedeliveryError ConfigurationError TransportError TransactionRolledBack AdapterError
                    LedgerError HandlerTimeout BreakerOpen AlreadySettled"""),
            ),
            ("redelivery.errors", ()),
        ),
    ),
    ApiPage(
        "dead-letters",
        "Dead letters",
        "List, redrive, purge and export dead letters.",
        (("redelivery", _words("DeadLetterMap DeadLetterStrategy dead_letters DeadLetterQueue DeadLetter")),),
    ),
    ApiPage(
        "ledger",
        "Ledger",
        "Keep attempt counts over restarts of a process.",
        (("redelivery", _words("Ledger SqliteLedger")), ("redelivery.ledger", ())),
    ),
    ApiPage(
        "observe",
        "Events, health, metrics and traces",
        "See what a connection does: observers, health probes, Prometheus, OpenTelemetry, structured logs.",
        (
            ("redelivery.events", ()),
            ("redelivery.health", ()),
            ("redelivery.prometheus", ()),
            ("redelivery.otel", ()),
            ("redelivery.logs", ()),
        ),
    ),
    ApiPage(
        "testing",
        "Testing",
        "Test handlers with a clock that the test moves, and adapters with the conformance suite.",
        (
            ("redelivery.testing", ()),
            ("redelivery_memory", ()),
            ("redelivery.testing.conformance", ()),
        ),
    ),
    ApiPage(
        "adapter",
        "Adapter interface",
        "Write an adapter: its interface, and the values that it exchanges with the engine.",
        (
            ("redelivery.adapter", ()),
            ("redelivery.registry", ()),
            ("redelivery.core.capabilities", ()),
            ("redelivery.core.commands", ()),
            ("redelivery.core.events", ()),
            ("redelivery.core.delivery", ()),
            ("redelivery.core.destination", ()),
            ("redelivery.core.outgoing", ()),
            ("redelivery_stomp", ()),
            ("redelivery_amqp", ()),
        ),
    ),
    ApiPage(
        "spark",
        "Spark",
        "Process a queue as a stream in Spark, and send its dead letters.",
        (("redelivery_spark", ()),),
    ),
)


def names_of(page: ApiPage) -> list[tuple[str, list[Name]]]:
    """Return the names that stand on a page, by module, in the order of the page."""
    return _all_names()[page.file]


@cache
def _all_names() -> dict[str, list[tuple[str, list[Name]]]]:
    """Names of all pages. An object that has several names stands where a page names it, or at its first module."""
    named = [Name(module, name) for page in PAGES for module, names in page.sections for name in names]
    taken = {id(each.value) for each in named}
    found: dict[str, list[tuple[str, list[Name]]]] = {page.file: [] for page in PAGES}
    for page in PAGES:
        for module, names in page.sections:
            own = [Name(module, name) for name in names or _listed(module)]
            if not names:
                own = [each for each in own if not (_is_own(each.value) and id(each.value) in taken)]
            taken |= {id(each.value) for each in own}
            found[page.file].append((module, own))
    return found


def _listed(module: str) -> list[str]:
    with replaced():
        names: list[str] = import_module(module).__all__
    return names


def _is_own(value: object) -> bool:
    """True if the object has an identity: a class or a function, not a number or a text."""
    return inspect.isclass(value) or inspect.isroutine(value)


def public_modules() -> list[str]:
    """Return the modules whose `__all__` is public, in the order of the pages."""
    return list(dict.fromkeys(module for page in PAGES for module, _ in page.sections))


@cache
def public_names() -> dict[str, tuple[str, str]]:
    """Return page and dotted name of each documented object, by each dotted name that it has."""
    found: dict[str, tuple[str, str]] = {}
    for page in PAGES:
        for _, names in names_of(page):
            for each in names:
                here = (f"api/{page.file}", each.full)
                found[each.full] = here
                value = each.value
                if _is_own(value):
                    home = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
                    found.setdefault(home, here)
    return found
