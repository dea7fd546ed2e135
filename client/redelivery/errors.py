"""Every exception that this library raises.

RedeliveryError
├── ConfigurationError   yours: raised before any I/O; names the option, what is allowed, a near miss
├── TransportError       the link's: no broker reached, or the link broke; trying again may help
│   └── TransactionRolledBack   nothing of a transaction was done, for sure: it may be done again
├── AdapterError         the broker's: it answered, and refused
├── LedgerError          the ledger's: attempts cannot be counted safely, so nothing is dispatched
├── HandlerTimeout       yours: a handler did not end within its timeout
├── BreakerOpen          a service's: no message has succeeded for too long, so the consumer has stopped
├── AlreadySettled       yours: a message was settled a second time
└── Poison, Discard, Defer   raised by a handler to steer; see `redelivery.handler_exceptions`
"""

from __future__ import annotations

from copy import copy
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "AdapterError",
    "AlreadySettled",
    "BreakerOpen",
    "ConfigurationError",
    "HandlerTimeout",
    "LedgerError",
    "RedeliveryError",
    "TransactionRolledBack",
    "TransportError",
    "another",
    "near_miss",
]


class RedeliveryError(Exception):
    """Root of every exception of this library."""


class ConfigurationError(RedeliveryError, ValueError):
    """An option, policy or argument cannot be honoured. Raised before any I/O where that is possible.

    Attributes:
        option: Full name of the option, of the first mistake if there are several; None: it is about no single option.
        errors: Texts of all mistakes of the input, most important first; one of them if there is one mistake.
        suggestion: Connection URI that would work, without credentials; None: none is known.
    """

    def __init__(
        self,
        message: str,
        *,
        option: str | None = None,
        errors: Iterable[str] = (),
        suggestion: str | None = None,
    ) -> None:
        super().__init__(message)
        self.option = option
        self.errors = list(errors) or [message]
        self.suggestion = suggestion


class TransportError(RedeliveryError, ConnectionError):
    """No broker could be reached, or the link to it broke. Trying again may help."""


class TransactionRolledBack(TransportError):
    """Nothing of a transaction was done: it was rolled back before it reached the broker. It may be done again."""


class AdapterError(RedeliveryError):
    """The broker answered, and refused what was asked of it. Trying the same again will not help."""


class LedgerError(RedeliveryError):
    """The ledger of attempts cannot be read or written; dispatching has stopped."""


class HandlerTimeout(RedeliveryError, TimeoutError):
    """A handler took longer than its `timeout=`: the cause of a failure; after twice as long, the end of `run`."""


class BreakerOpen(RedeliveryError):
    """No message has succeeded for too long. The consumer has stopped; its messages stay on the broker, uncharged."""


class AlreadySettled(RedeliveryError):
    """The message was settled before: each delivery is settled at most once."""


E = TypeVar("E", bound=RedeliveryError)


def another(error: E) -> E:
    """Return the same error for one more who is to raise it: an exception has one traceback, and one thread."""
    other = copy(error)
    other.__cause__ = error.__cause__
    return other


def near_miss(word: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the nearest of the `known` words, or an empty text."""
    by_folded = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[found[0]]!r}?" if found else ""
