"""100,000 messages parked at once: the memory of each beyond the message, and the lateness of their redeliveries.

    python -m benchmarks.parked [--messages 100000] [--seconds 60]

Engine and driver on the embedded broker. Each message fails once; their due times are spread evenly over the given
seconds, from 5 s after the last failure on. Memory is the growth of this process between "all have arrived, none has
been handled" and "all are parked".
"""

from __future__ import annotations

import argparse
import array
import gc
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import redelivery
from redelivery.events import Finished

if TYPE_CHECKING:
    from redelivery import Consumer
    from redelivery.events import Event


class Spread:
    """A policy of one redelivery; its delays spread the due times of the messages evenly."""

    maximum_redeliveries = 1

    def __init__(self, messages: int, seconds: float) -> None:
        self._step = seconds / messages
        self._turn = 0
        self._start = 0.0

    def redelivery_delay_ms(self, redelivery: int, random: object = None) -> int:
        """Return the delay to the next due time; the first is 20 s after the first failure."""
        now = time.monotonic()
        self._start = self._start or now + 20
        self._turn += 1
        return round((self._start + self._turn * self._step - now) * 1000)

    def delays_ms(self, n: int, random: object = None) -> list[int]:
        """Not used here."""
        return [0] * n

    def worst_case_ms(self) -> int | None:
        """Not used here."""
        return None


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def park(consumer: Consumer, messages: int) -> float:
    """Fail each message once; return the memory of a parked one, in bytes."""
    before = resident()
    for _ in range(messages):
        message = consumer.receive(10)
        assert message is not None
        message.fail("once")
    del message
    return (resident() - before) / messages


def lateness(consumer: Consumer, messages: int, due: array.array[float]) -> list[float]:
    """Receive each redelivery; return their lateness in seconds, sorted."""
    late: list[float] = []
    for _ in range(messages):
        message = consumer.receive(120)
        now = time.monotonic()
        assert message is not None
        late.append(now - due[int(message.body)])
        message.accept()
    return sorted(late)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    count = arguments.messages
    logging.getLogger("redelivery").setLevel(logging.ERROR)
    due = array.array("d", bytes(8 * count))

    def observe(event: Event) -> None:
        if isinstance(event, Finished) and event.outcome == "redelivered":
            record = event.delivery.record
            assert record is not None and record.due is not None, "it is parked"  # noqa: PT018
            due[int(event.delivery.body)] = record.due

    policies = redelivery.RedeliveryPolicyMap(default=Spread(count, arguments.seconds))
    uri = f"memory://parked?redelivery.credit={count}&redelivery.maxParked={count}"
    with redelivery.connect(uri, policies=policies, observers=[observe]) as connection:
        for i in range(count):
            connection.send("orders", str(i))
        with connection.consumer("orders") as consumer:
            print(f"{count:,} parked: {park(consumer, count):,.0f} B each", flush=True)
            late = lateness(consumer, count, due)
    print(
        f"late: median {late[count // 2] * 1e3:.2f} ms, p99 {late[int(count * 0.99)] * 1e3:.2f} ms, "
        f"max {late[-1] * 1e3:.2f} ms; earliest {late[0] * 1e3:.3f} ms"
    )


if __name__ == "__main__":
    main()
