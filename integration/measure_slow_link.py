"""Messages per second over a slow link: with `redelivery.credit=auto`, and with a fixed credit of 200.

    python -m integration.measure_slow_link rabbitmq amqp
    python -m integration.measure_slow_link artemis stomp --delays 0,50,200

A proxy delays each direction. Two workers handle a message in 2 ms; the rate is that of the time after 10 s, or of the
second half of the messages, if they are handled sooner.
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
from contextlib import closing

import redelivery
from integration.brokers import ALL_BROKERS
from integration.eventually import eventually
from integration.peers import fill
from integration.proxy import LinkProxy

WORKERS, HANDLER, FIXED = 2, 0.002, 200
# Seconds: of the run, and of its first part, in which the credit grows.
LASTS, GROWS = 20.0, 10.0


def rate(uri: str, queue: str, messages: int) -> tuple[float, int]:
    """Consume for some seconds; return messages per second, and the credit at the end."""
    done: list[float] = []
    pause = threading.Event()

    def handle(_: redelivery.Message) -> None:
        pause.wait(HANDLER)
        done.append(time.monotonic())

    with redelivery.connect(uri) as connection:
        connection.listen(queue, handle, workers=WORKERS)
        connection.start()
        began = time.monotonic()
        eventually(lambda: len(done) >= messages or time.monotonic() - began > LASTS, LASTS + 30)
        (consumer,) = connection.health().consumers
    after = done[0] + GROWS
    times = [at for at in done if at >= after]
    if len(done) >= messages and len(times) < messages // 4:
        times = done[len(done) // 2 :]
    return (len(times) - 1) / (times[-1] - times[0]), consumer.credit


def main(arguments: list[str] | None = None) -> int:
    """Run one broker, and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.measure_slow_link", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("broker", choices=sorted(ALL_BROKERS))
    parser.add_argument("protocol", choices=("stomp", "amqp"))
    parser.add_argument("--delays", default="0,10,50,200", help="milliseconds each way")
    parser.add_argument("--messages", type=int, default=20_000)
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    kind = ALL_BROKERS[given.broker]
    kind.obtain()
    with closing(kind()) as broker:
        broker.start()
        for delay in map(float, given.delays.split(",")):
            for credit in ("auto", str(FIXED)):
                queue = f"slow.{given.protocol}.{delay:g}.{credit}"
                fill(broker, given.protocol, queue, [b"x" * 256] * given.messages)
                with LinkProxy(broker.ports[given.protocol], opaque=True) as proxy:
                    proxy.delay(delay / 1000)
                    uri = broker.uri(protocol=given.protocol, port=proxy.port, redelivery__credit=credit)
                    found, window = rate(uri, queue, given.messages)
                print(
                    f"{delay:g} ms each way, credit {credit}: {found:.0f}/s, credit at the end {window}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
