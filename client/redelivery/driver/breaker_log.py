"""Log lines about the breaker of a consumer: it opens, tries a message, closes, or charges failures again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery.events import BreakerChanged

__all__ = ["breaker_line"]


def breaker_line(change: BreakerChanged) -> tuple[int, str]:
    """Return the level and the text of the line about a change of the breaker."""
    cause = "unknown" if change.cause is None else change.cause
    match change.old, change.new:
        case "closed", "open":
            level, text = logging.WARNING, _opened(change, cause)
        case _, "open" if change.reminds:
            level = logging.WARNING
            text = (
                f"the breaker has been open for {change.seconds:.0f} s ({cause}); {change.spared} failures were not "
                f"charged; the next try is in {change.delay:.1f} s"
            )
        case "ramp", "open":
            level = logging.WARNING
            text = f"failures again ({cause}): handling pauses, the next try is in {change.delay:.1f} s"
        case _, "open" if change.delay <= 0:
            level, text = (
                logging.DEBUG,
                "the handlers of the messages that were tried have decided, or were lost; others are tried",
            )
        case _, "open":
            level, text = (
                logging.INFO,
                f"what was tried has failed ({cause}); the next try is in {change.delay:.1f} s",
            )
        case _, "ramp":
            level = logging.INFO
            text = f"a message has succeeded after {change.seconds:.0f} s; handling goes on, slowly at first"
        case _, "closed" if change.charging:
            level = logging.WARNING
            text = (
                f"the breaker has been open for too long, {change.seconds:.0f} s now ({cause}): failures are charged "
                "as the policy says (redelivery.breakerMaximumOpen; 10 minutes if most are no exceptions of trip)"
            )
        case _, "closed":
            # A warning, as its opening: a log without INFO shows the end, too.
            level = logging.WARNING
            text = f"the breaker has closed after {change.seconds:.0f} s; {change.spared} failures were not charged"
        case _:
            level, text = logging.DEBUG, "a message is tried"
    return level, f"{change.destination}: {text}"


def _opened(change: BreakerChanged, cause: str) -> str:
    if change.named:
        return (
            f"{change.failures} failures in a row ({cause}): handling pauses, growing numbers of messages are "
            "tried at growing intervals, nothing is charged"
        )
    name = cause.partition(":")[0]
    other = f"errors=Classifier().retry({name}, outage=False) or " if name.isidentifier() else ""
    return (
        f"{change.failures} failures in a row, of {change.messages} messages ({cause}): handling pauses, growing "
        "numbers of messages are tried at growing intervals, nothing is charged; if the messages are the cause and "
        "not a service, use "
        f"{other}redelivery.breaker=off"
    )
