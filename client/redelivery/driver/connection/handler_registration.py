"""A handler that `listen` has registered, before and after its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from redelivery.driver.connection.drain_watch import RunnerT

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery.driver.arguments import ConsumerOptions
    from redelivery.driver.consumer.dispatcher import Dispatcher
    from redelivery.driver.consumer.handler_timeout import HandlerDeadline
    from redelivery.driver.session.session_state import SessionState
    from redelivery.message import Message

__all__ = ["HandlerRegistration", "RunnerT"]


@dataclass(slots=True)
class HandlerRegistration(Generic[RunnerT]):
    """A handler that is registered; once it is started, its dispatcher and the threads or tasks that run it."""

    destination: str
    handler: Callable[[Message], Any]
    workers: int
    options: ConsumerOptions
    deadline: HandlerDeadline | None = None
    session_state: SessionState | None = None
    """State of the session that the listener belongs to; None: of no session."""
    ended: bool = False
    """True if its session was closed."""
    dispatcher: Dispatcher | None = None
    runners: list[RunnerT] = field(default_factory=list[RunnerT])
