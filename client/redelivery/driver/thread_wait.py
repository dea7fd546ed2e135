"""Waiting on the calling thread for a future, a subscription or a connection, by the connection's clock."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from redelivery.driver.connection.send_request import unconfirmed, unsent
from redelivery.driver.connection.subscribe_request import not_subscribed

if TYPE_CHECKING:
    from concurrent.futures import Future

    from redelivery.clock import Clock
    from redelivery.driver.connection.connection_driver import ConnectionDriver
    from redelivery.driver.consumer.dispatcher import Dispatcher

__all__ = ["answer_by", "await_confirmed", "await_connected", "await_subscription"]


def answer_by(deadline: float, future: Future[None], clock: Clock) -> None:
    """Wait on this thread until the future ends, and raise its error. Raises TimeoutError at the deadline."""
    if not future.done():
        ended = threading.Condition()

        def wake(_: Future[None]) -> None:
            with ended:
                clock.notify(ended)

        future.add_done_callback(wake)
        with ended:
            while not future.done() and (left := deadline - clock.monotonic()) > 0:
                clock.wait(ended, left)
    if not future.done() and future.cancel():  # no thread waits for it
        raise TimeoutError
    future.result()


def await_subscription(driver: ConnectionDriver, dispatcher: Dispatcher, clock: Clock) -> None:
    """Start a consumer and wait until the broker has confirmed the subscription; end the consumer on any error.

    Raises:
        AdapterError: The broker refused the subscription.
        TransportError: The broker did not confirm it in time.
    """
    deadline = clock.monotonic() + driver.subscribe_timeout
    try:
        answer_by(deadline, driver.subscribe(dispatcher), clock)
    except BaseException as error:
        driver.unsubscribe(dispatcher)
        if isinstance(error, TimeoutError):
            raise not_subscribed(dispatcher.subscribe) from None
        raise


def await_connected(driver: ConnectionDriver, destination: str, limit: float, clock: Clock) -> None:
    """Wait `limit` seconds at most until the connection is up, for a message to `destination`.

    Raises:
        TransportError: It is not up in time, or was given up.
    """
    if not driver.up:
        try:
            answer_by(clock.monotonic() + limit, driver.standing(), clock)
        except TimeoutError:
            raise unsent(destination, limit) from None


def await_confirmed(
    future: Future[None], destination: str, deadline: float, timeout: float, clock: Clock
) -> None:
    """Wait until the broker has confirmed a message to `destination`, which had `timeout` seconds for that.

    Raises:
        AdapterError: The broker refused the message.
        TransportError: The connection was lost, or the broker did not confirm in time.
    """
    try:
        answer_by(deadline, future, clock)
    except TimeoutError:
        raise unconfirmed(destination, timeout) from None
