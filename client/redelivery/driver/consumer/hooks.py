"""Differences of an internal consumer (dead-letter tools, the Spark source) from an application's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redelivery.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.core.events import Confirmed
    from redelivery.driver.consumer.bulk_intake import BulkIntake

__all__ = ["APPLICATION", "ConsumerHooks"]


@dataclass(frozen=True, slots=True)
class ConsumerHooks:
    """Behaviour of one consumer. The defaults are those of an application's consumer."""

    shares_history: bool = True
    """True: the history of messages is shared with other consumers of the connection."""
    keeps_history: bool = True
    """True: a message is recognized by its key after a reconnect. False: the caller removes duplicates itself."""
    logs_results: bool = True
    """True: each failed delivery is logged."""
    expires: bool = True
    """True: a message that has expired is dead-lettered instead of dispatched."""
    confirmed: Callable[[Confirmed], None] | None = None
    """Called with the broker's answer to each poison acknowledgement, on the adapter's thread.

    It is called before the engine gets the answer: when a thread that waits for the engine goes on, the call is done.
    An exception that it raises is logged, and changes nothing.
    """

    bulk: BulkIntake | None = None
    """Intake for deliveries that bypass the engine, of one consumer. Only for consumers of a `ConnectionPort`."""

    def answered(self, event: Confirmed) -> None:
        """Call `confirmed`."""
        if self.confirmed is not None:
            try:
                self.confirmed(event)
            except Exception:
                logger.exception("a consumer's hook failed; the broker's answer is processed as usual")


APPLICATION = ConsumerHooks()
