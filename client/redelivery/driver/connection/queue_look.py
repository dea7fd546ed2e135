"""Look at a queue before its consumer begins: the capabilities that the broker reports for it. No message is taken."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

from redelivery.core.commands import Unsubscribe
from redelivery.driver.connection.subscribe_request import SUBSCRIBE_TIMEOUT, not_subscribed
from redelivery.errors import another

if TYPE_CHECKING:
    from redelivery.adapter import Browsed
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import Subscribe
    from redelivery.core.events import Arrived
    from redelivery.driver.connection.connection_driver import ConnectionDriver
    from redelivery.errors import RedeliveryError

__all__ = ["capabilities_of"]


def capabilities_of(driver: ConnectionDriver, subscribe: Subscribe) -> Capabilities | None:
    """Return what the broker reports for the queue of a subscription; None: nothing.

    The subscription gets no credit: only where there is flow.

    Raises:
        AdapterError: The broker refuses the subscription, or a dead-letter place of it.
        TransportError: The connection was lost, or the broker did not answer in time.
    """
    look = _Look()
    driver.browsers[subscribe.consumer] = look
    try:
        driver.write((replace(subscribe, window=0, room=0, subscription=None),))
        return look.answer.result(SUBSCRIBE_TIMEOUT)
    except TimeoutError:
        raise not_subscribed(subscribe) from None
    finally:
        driver.write((Unsubscribe(subscribe.consumer),))
        del driver.browsers[subscribe.consumer]


class _Look:
    """Receiver of the answer; see `Looks`."""

    def __init__(self) -> None:
        self.answer: Future[Capabilities | None] = Future()

    def feed(self, event: Arrived | Browsed) -> None:
        """Do nothing: without credit no message arrives."""

    def begun(self, able: Capabilities | None) -> None:
        """Keep what the broker reports."""
        if not self.answer.done():
            self.answer.set_result(able)

    def fail(self, error: RedeliveryError) -> None:
        """End the wait with the error."""
        if not self.answer.done():
            self.answer.set_exception(another(error))
