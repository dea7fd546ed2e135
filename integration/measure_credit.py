"""Measures credit over AMQP 1.0: `python -m integration.measure_credit [--broker NAME]`.

The source of docs/measured/windows.md, section f: is credit N exactly N messages, does a settlement renew it, and what
does more or less credit do at once?
"""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from typing import Any

from integration.brokers import BROKERS, Broker
from integration.raw_amqp import AmqpError, RawAmqp, proton

MESSAGES = 600
# Seconds without a message after which none is expected.
QUIET = 1.0


class Link:
    """One receiving link with manual credit."""

    def __init__(self, amqp: RawAmqp, queue: str) -> None:
        self._connection = amqp.connection
        options = amqp._options("source")
        self._receiver = amqp.connection.create_receiver(
            amqp.broker.address(queue), credit=0, name=f"credit-{time.monotonic()}", options=options
        )
        self.link: Any = self._receiver.link
        self._fetcher: Any = self._receiver.fetcher

    @property
    def here(self) -> int:
        """Number of messages that have arrived and are not accepted."""
        return len(self._fetcher.incoming)

    def give(self, credit: int) -> int:
        """Add or remove credit; return the number of messages that arrive."""
        self.link.flow(credit)
        return self.come()

    def come(self) -> int:
        """Return the number of messages that arrive."""
        before, quiet = len(self._fetcher.incoming), time.monotonic() + QUIET
        seen = before
        with suppress(AmqpError):
            while time.monotonic() < quiet:
                with suppress(proton.Timeout):
                    self._connection.wait(lambda: False, timeout=0.2)
                if self.here > seen:
                    seen, quiet = self.here, time.monotonic() + QUIET
        return seen - before

    def settle(self, count: int) -> int:
        """Accept this number of messages; return the number that arrives after that."""
        for _ in range(count):
            self._fetcher.pop()
            self._receiver.accept()
        return self.come()


def measure(broker: Broker) -> None:
    """Print the effects of credit."""
    queue = "credit.one"
    with RawAmqp(broker) as amqp:
        sender = amqp.declare(queue)
        for number in range(MESSAGES):
            sender.send(proton.Message(body=str(number), durable=True))
        one = Link(amqp, queue)
        found = [f"credit 16: {one.give(16)}", f"5 accepted: +{one.settle(5)}", f"5 more: +{one.give(5)}"]
        found += [
            f"100 more: +{one.give(100)}",
            f"16 accepted and 16 more: +{one.settle(16)} +{one.give(16)}",
        ]
        other = Link(amqp, queue)
        found.append(f"a second link of 10: {other.give(10)}")
    print(f"{broker.name}: {'; '.join(found)}", flush=True)
    with RawAmqp(broker) as amqp:
        one, other = Link(amqp, "credit.two"), Link(amqp, "credit.two")
        one.give(50)
        one.give(-40)
        other.give(5)
        sender = amqp.declare("credit.two")
        for number in range(100):
            sender.send(proton.Message(body=str(number), durable=True))
        one.come()
        other.come()
        print(
            f"{broker.name}: of 100 one with 50, of which 40 taken back, has {one.here}, one with 5 has {other.here}",
            flush=True,
        )


def main() -> None:
    """Measure each broker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=sorted(BROKERS), action="append")
    for name in parser.parse_args().broker or sorted(BROKERS):
        with BROKERS[name]() as broker:
            measure(broker)


if __name__ == "__main__":
    main()
