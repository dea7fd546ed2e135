"""How a consumer that no application sees differs from an application's: dead-letter tools, the Spark source."""

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
    """What one consumer does otherwise. The defaults are an application's consumer."""

    shares_history: bool = True
    """What is known of a message passes to and from other consumers of the connection."""
    keeps_history: bool = True
    """A message is recognized by its key after a reconnect. False: the caller knows more of each than its key."""
    logs_results: bool = True
    """Each failed delivery is a line of the log."""
    expires: bool = True
    """A message that has expired is dead-lettered before its dispatch, not dispatched."""
    confirmed: Callable[[Confirmed], None] | None = None
    """Called with the broker's answer to each poison acknowledgement, on the adapter's thread.

    It is called before the engine has the answer, so a thread that waits for the engine finds the call done. What it
    raises is logged, and changes nothing.
    """

    bulk: BulkIntake | None = None
    """Takes deliveries that bypass the engine, of one consumer. Only for consumers of a `ConnectionPort`."""

    def answered(self, event: Confirmed) -> None:
        """Call `confirmed`."""
        if self.confirmed is not None:
            try:
                self.confirmed(event)
            except Exception:
                logger.exception("a consumer's hook failed; the broker's answer is taken all the same")


APPLICATION = ConsumerHooks()
