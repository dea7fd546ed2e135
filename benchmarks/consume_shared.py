"""One of several processes that share a queue: URI QUEUE WORKERS WORK_MS.

Prints "ready" when it is connected, starts when a line arrives on its input, and prints JSON at the end.
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from typing import TYPE_CHECKING

import redelivery

if TYPE_CHECKING:
    from redelivery import Message

# Seconds without a message after which the queue counts as empty.
IDLE = 1.5


def main() -> None:
    """Connect, wait for a line, and consume until the queue is empty."""
    uri, queue, workers, work = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) / 1000
    # Seconds of the machine's monotonic clock, which its processes share.
    times = array("d")

    def handle(message: Message) -> None:
        if len(message.body) != 256:
            raise ValueError("wrong message")
        if work:
            time.sleep(work)
        times.append(time.monotonic())

    with redelivery.connect(uri) as connection:
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        connection.listen(queue, handle, workers=workers)
        connection.run(until_idle=IDLE)
    print(json.dumps({"began": began, "times": times.tolist()}))


if __name__ == "__main__":
    main()
