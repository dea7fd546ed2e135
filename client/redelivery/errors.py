"""Exceptions that this library raises.

.. code-block:: text

    RedeliveryError
    ├── ConfigurationError   a mistake of the caller, raised before any I/O; names the option and what is allowed
    ├── TransportError       no broker was reached, or the connection broke; trying again may help
    │   ├── TransactionRolledBack   certainly no part of a transaction was done: it may be done again
    │   └── BrokerUnavailable       a node of the broker starts, stops or has no majority, and refused for that reason
    ├── AdapterError         the broker answered, and refused
    ├── LedgerError          attempts cannot be counted safely; dispatching has stopped
    ├── HandlerTimeout       a handler did not end within its timeout
    ├── BreakerOpen          no message succeeded for too long; the consumer has stopped
    ├── AlreadySettled       a message was settled a second time
    └── Poison, Discard, Defer   raised by a handler to steer; see `redelivery.handler_exceptions`
"""

from __future__ import annotations

from copy import copy
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "AdapterError",
    "AlreadySettled",
    "BreakerOpen",
    "BrokerUnavailable",
    "ConfigurationError",
    "HandlerTimeout",
    "LedgerError",
    "RedeliveryError",
    "TransactionRolledBack",
    "TransportError",
    "another",
    "listed",
    "near_miss",
    "retold",
]


# Mistakes that the text of an error lists; `ConfigurationError.errors` has all of them.
_LISTED = 20


class RedeliveryError(Exception):
    """Root of every exception of this library."""


class ConfigurationError(RedeliveryError, ValueError):
    """An option, policy or argument cannot be honoured. Raised before any I/O where that is possible.

    Attributes:
        option: Full name of the option of the first mistake. None if it is about no single option.
        errors: Texts of all mistakes of the input, most important first. There is one if the input has one mistake.
        suggestion: Connection URI that would work, without credentials. None if none is known.
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
    """No broker was reached, or the connection to it broke. Trying again may help."""


class TransactionRolledBack(TransportError):
    """No part of a transaction was done. It may be done again.

    It was rolled back before it reached the broker: nothing was sent, and no message was acknowledged.
    """


class BrokerUnavailable(TransportError):
    """A node of the broker cannot serve a queue now: it starts or stops, or has no majority. Trying again helps.

    The broker has refused the request: nothing of it was done.
    """


class AdapterError(RedeliveryError):
    """The broker answered, and refused the request.

    Attributes:
        passes: True: the broker refuses for now, because a node starts or stops. False: it will refuse the same request
            again, since a right is missing or a queue has other arguments. None: not known.
    """

    def __init__(self, message: str, *, passes: bool | None = None) -> None:
        super().__init__(message)
        self.passes = passes


class LedgerError(RedeliveryError):
    """The ledger of attempts cannot be read or written. Dispatching has stopped."""


class HandlerTimeout(RedeliveryError, TimeoutError):
    """A handler took longer than its `timeout=`, which is a failure. After twice as long, it ends `run`."""


class BreakerOpen(RedeliveryError):
    """No message succeeded for too long, and the consumer has stopped.

    Its messages stay on the broker; no redelivery is charged.
    """


class AlreadySettled(RedeliveryError):
    """The message was settled before. Each delivery is settled at most once."""


E = TypeVar("E", bound=RedeliveryError)


def another(error: E) -> E:
    """Return a copy of an error for one more thread that raises it: an exception has one traceback."""
    other = copy(error)
    other.__cause__ = error.__cause__
    return other


def retold(error: AdapterError, text: str) -> AdapterError:
    """Return the same refusal in other words."""
    return AdapterError(text, passes=error.passes)


def listed(headline: str, texts: Sequence[str]) -> list[str]:
    """Return an error's lines over several mistakes: the headline, 20 texts at most, and how many more there are."""
    lines = [headline, *texts[:_LISTED]]
    if len(texts) > _LISTED:
        lines.append(f"and {len(texts) - _LISTED} more")
    return lines


def near_miss(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the nearest of the `known` words, or an empty text."""
    by_folded = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[found[0]]!r}?" if found else ""
