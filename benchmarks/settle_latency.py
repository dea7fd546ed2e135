"""Time of a settlement from its handler's return to the socket, at full load, and with slow handlers.

    python -m benchmarks.settle_latency [--broker artemis] [--messages 50000]

One worker. The times are measured inside this process, around the transport's write. In "slow" every 500th handler
takes 100 ms: the settlements of messages before it must not wait for it.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from integration.brokers import STOMP_BROKERS, Broker

import redelivery
from benchmarks.fill import fill
from redelivery_stomp.transport import ScanningTransport

if TYPE_CHECKING:
    from redelivery import Message

SLOW_EVERY, SLOW = 500, 0.1


def run(broker: Broker, queue: str, messages: int, *, slow: bool) -> list[float]:
    """Consume a filled queue; return the latencies in seconds, sorted."""
    returned: deque[float] = deque()
    latencies: list[float] = []
    write = ScanningTransport.write
    seen, pause = 0, threading.Event()

    def timed(transport: ScanningTransport, data: bytes) -> None:
        write(transport, data)
        now = time.perf_counter()
        latencies.extend(now - returned.popleft() for _ in range(data.count(b"ACK\nid:")))

    def handle(message: Message) -> None:
        nonlocal seen
        seen += 1
        if len(message.body) != 256:
            raise ValueError("wrong message")
        if slow and seen % SLOW_EVERY == 0:
            pause.wait(SLOW)
        if seen == messages:
            connection.stop()
        returned.append(time.perf_counter())

    ScanningTransport.write = timed  # type: ignore[assignment, method-assign]
    try:
        with redelivery.connect(broker.uri(redelivery__credit=1000)) as connection:
            connection.listen(queue, handle)
            connection.run()
    finally:
        ScanningTransport.write = write  # type: ignore[method-assign]
    assert len(latencies) == messages, f"{len(latencies)} settlements of {messages}"
    return sorted(latencies)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--broker", choices=sorted(STOMP_BROKERS), action="append")
    parser.add_argument("--messages", type=int, default=50_000)
    arguments = parser.parse_args()
    for name in arguments.broker or sorted(STOMP_BROKERS):
        with STOMP_BROKERS[name]() as broker:
            for turn, slow in enumerate((False, False, True)):  # the first warms up, and does not count
                count = arguments.messages // 5 if slow else arguments.messages
                fill(broker, f"latency.{turn}", count)
                found = run(broker, f"latency.{turn}", count, slow=slow)
                if turn:
                    p50, p99 = found[len(found) // 2] * 1e3, found[int(len(found) * 0.99)] * 1e3
                    what = "beside slow handlers" if slow else "full load"
                    print(
                        f"{name:9} {what:21} p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {found[-1] * 1e3:.2f} ms"
                    )


if __name__ == "__main__":
    main()
