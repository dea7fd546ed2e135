"""Measures whether a pattern of queues can be looked at: `python -m integration.measure_places [BROKER ...]`.

The source of "A pattern of dead-letter queues" in docs/measured/activemq-stomp.md.
"""

from __future__ import annotations

import sys
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import redelivery
from integration.brokers import BROKERS, STOMP_BROKERS

if TYPE_CHECKING:
    from integration.brokers import Broker


def measure(broker: Broker, protocol: str) -> None:
    """Print what is shown, taken and redriven by a pattern of two queues of three messages each."""
    uri, first = broker.uri(protocol=protocol), f"places{uuid.uuid4().hex[:6]}"
    with redelivery.connect(uri) as connection:
        for name in ("a", "b.c"):
            for number in range(3):
                origin = {"redeliveryOriginalDestination": f"queue://{first}-back"}
                connection.send(f"{first}.{name}", str(number), headers=origin)
    for what, take in (("shown", False), ("taken", True)):
        try:
            with redelivery.dead_letters(uri, f"{first}.>", take=take, idle=1.0) as dead:
                found = Counter(letter.queue for letter in dead)
            print(f"{broker.name} {protocol} {what}: {dict(found)}", flush=True)
        except redelivery.RedeliveryError as error:
            print(f"{broker.name} {protocol} {what}: {type(error).__name__}: {error}", flush=True)
    try:
        with redelivery.dead_letters(uri, f"{first}.>", idle=1.0) as dead:
            print(f"{broker.name} {protocol} redriven: {dead.redrive()}", flush=True)
    except redelivery.RedeliveryError as error:
        print(f"{broker.name} {protocol} redriven: {type(error).__name__}: {error}", flush=True)


def main(names: list[str]) -> None:
    """Measure each broker, or the named ones."""
    for name in names or sorted(BROKERS):
        with BROKERS[name]() as broker:
            for protocol in ("stomp", "amqp") if name in STOMP_BROKERS else ("amqp",):
                measure(broker, protocol)


if __name__ == "__main__":
    main(sys.argv[1:])
