"""The next step after the result of a delivery, as the log names it, from the engine's commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from redelivery.core.commands import (
    Accept,
    AcceptUnseen,
    BreakerChanged,
    Bury,
    Clear,
    Credit,
    Dispatch,
    Dropped,
    Forward,
    Hold,
    LookUp,
    LossesCounted,
    Mark,
    PoisonAck,
    PolicyFault,
    Postponed,
    Refused,
    Release,
    Reschedule,
    SetAside,
    StillAside,
    Stop,
    TookBack,
    Unanswered,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.core.commands import Command
    from redelivery.events import NextStep

__all__ = ["next_step"]


def next_step(  # noqa: C901, PLR0911, PLR0912 - the table of commands
    commands: Sequence[Command],
) -> tuple[NextStep, float | None, str | None]:
    """Return the next step after a result, its delay in seconds, and the destination of a dead-letter copy."""
    for command in commands:
        match command:
            case Hold():
                return "redelivery", command.delay, None
            case Forward() if command.delayed:
                return "delayed copy", command.copy.delay, None
            case Reschedule():
                return "delayed by the broker", command.delay, None
            case Forward():
                return "dead-letter copy", None, command.copy.destination
            case PoisonAck():
                return "poison acknowledgement", None, None
            case Accept():
                return "drop", None, None
            case Postponed():
                return next_step([command.command])
            case Stop():
                return "stop", None, None
            case SetAside():
                return "set aside", None, None
            case (
                AcceptUnseen() | Dispatch() | Credit() | Release() | Dropped() | Unanswered() | PolicyFault()
            ):
                pass
            case (
                LookUp()
                | Mark()
                | Clear()
                | Bury()
                | StillAside()
                | BreakerChanged()
                | TookBack()
                | LossesCounted()
                | Refused()
            ):
                pass
            case _:
                assert_never(command)
    return "none", None, None
