"""A consumer with a ledger, and messages that kill its process (SIGKILL).

`python -m integration.crashing_client LOG WORKERS MAXIMUM URI QUEUE [SECONDS]` A message whose text begins with
"killer" kills the process. Each line of LOG is `start TEXT COUNT`, `done TEXT` or `failed TEXT`. The process ends
when no message has arrived for 2 s; with SECONDS, the longest time of a handler, only by a signal.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import random
import signal
import sys
import time

import redelivery
from integration.killed_client import Log

IDLE = 5.0  # seconds: a broker may stand still for two


def main(log_path: str, workers: int, maximum: int, uri: str, queue: str, seconds: float = 0.0) -> None:
    """Consume until the process is killed, or until no more messages arrive."""
    faulthandler.register(signal.SIGUSR1)  # shows the stacks if it hangs
    logging.basicConfig(level=logging.INFO)
    log = Log(log_path)
    dice = random.Random(os.getpid())
    policy = redelivery.RedeliveryPolicy(
        maximum_redeliveries=maximum, initial_redelivery_delay=0.02, redelivery_delay=0.02
    )

    def handle(message: redelivery.Message) -> None:
        text = message.text
        log.line(f"start {text} {message.redelivery_count}")
        if text.startswith("killer"):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(dice.random() * (seconds or 0.002))
        if text.startswith("bad"):
            log.line(f"failed {text}")
            raise ValueError(text)
        log.line(f"done {text}")

    with redelivery.connect(uri, policies=redelivery.RedeliveryPolicyMap(default=policy)) as connection:
        connection.listen(queue, handle, workers=workers)
        print(connection.run(until_idle=None if seconds else IDLE))


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0], int(given[1]), int(given[2]), given[3], given[4], *map(float, given[5:]))
