"""Probe with one message to the doctor's own queue and back: do messages pass, and do the clocks agree."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from redelivery.cli.checks.destination_check import OWN_QUEUE
from redelivery.cli.checks.finding import fail, note, ok, warn
from redelivery.cli.exit_codes import UNREACHABLE
from redelivery.cli.formatting import duration
from redelivery.core.commands import Subscribe
from redelivery.core.outgoing import Outgoing
from redelivery.errors import AdapterError, TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.cli.checks.finding import Finding
    from redelivery.cli.checks.visit import Visit
    from redelivery.clock import Clock
    from redelivery.core.capabilities import Capabilities
    from redelivery.errors import RedeliveryError

__all__ = ["clock_of", "message_and_back"]

# Seconds until the message expires, if it is not taken.
LIVES = 60.0
MARK = "redeliveryDoctor"
# Seconds of difference from which on clocks matter: expirations and delayed copies are times of day.
APART = 2.0
BACK = 10.0


def message_and_back(able: Capabilities, visit: Visit, clock: Clock) -> Iterator[Finding]:
    """Yield whether a message passes through the doctor's queue, and how far the broker's clock is off."""
    name = uuid.uuid4().hex
    own = Subscribe(4, OWN_QUEUE, window=1, selector=f"{MARK} = '{name}'", private=True)
    error = visit.subscribe(own) if able.selectors else None
    # `memory://` reports only here that it has no selectors.
    if not able.selectors or isinstance(error, AdapterError):
        # No other message may arrive on this queue.
        own = Subscribe(5, f"{OWN_QUEUE}.{name}", window=1, private=True)
        error = visit.subscribe(own)
    queue, consumer = own.destination, own.consumer
    if error is not None:
        yield _refused(f"{queue} cannot be consumed: {error}", error)
        return
    if able.flow:
        visit.ask_for_one(consumer)
    sent_at, began = clock.time(), time.monotonic()
    message = Outgoing(
        queue, b"", headers={MARK: name}, expires_at=sent_at + LIVES, persistent=False, private=True
    )
    error = visit.send(message)
    if error is not None:
        yield _refused(f"a message to {queue} was not confirmed: {error}", error)
        visit.unsubscribe(consumer)
        return
    confirmed = time.monotonic() - began
    delivery = visit.arrival(BACK)
    visit.unsubscribe(consumer)
    took = duration(confirmed * 1000)
    if delivery is None:
        late = f"{queue} confirmed a message after {took}, and did not deliver it within {BACK:g} s"
        yield warn("send", f"{late}: look at the other consumers of that queue")
        return
    yield ok("send", f"a message to {queue} was confirmed after {took}, and came back")
    # Over AMQP, and on RabbitMQ, the time is the one that we have written.
    theirs = None if able.flow or not able.selectors else delivery.timestamp
    at = None if theirs is None else theirs.timestamp()
    yield clock_of(at, sent_at, clock.time())


def _refused(text: str, error: RedeliveryError) -> Finding:
    if isinstance(error, TransportError):
        return fail("send", f"{text}: look at the broker's log", UNREACHABLE)
    return fail("send", f"{text}: let this user use redelivery.doctor, or leave --send out")


def clock_of(stamped: float | None, before: float, after: float) -> Finding:
    """Return how far the broker's clock differs from ours. `stamped`: its time between the others; None: unknown."""
    if stamped is None:
        return note("clock", "the broker puts no time of its own on messages: compare its clock by NTP")
    apart = stamped - after if stamped > after else min(0.0, stamped - before)
    if abs(apart) < APART:
        return ok("clock", "the broker's clock agrees with that of this machine")
    which = "ahead of" if apart > 0 else "behind"
    by = duration(abs(apart) * 1000)
    return warn(
        "clock",
        f"the broker's clock is {by} {which} that of this machine: messages expire too early or too late; set both "
        "by NTP",
    )
