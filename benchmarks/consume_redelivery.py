"""One round of this library's consumer: BROKER URI QUEUE N [WORKERS [SIZE]]. Prints JSON."""

from __future__ import annotations

import itertools
import json
import resource
import sys
import time
from typing import TYPE_CHECKING

import redelivery

if TYPE_CHECKING:
    from redelivery import Message


def main() -> None:
    """Consume, and print the rate and the CPU time of this process per message."""
    uri, queue, messages = sys.argv[2], sys.argv[3], int(sys.argv[4])
    size = int(sys.argv[6]) if len(sys.argv) > 6 else 256
    turns, started = itertools.count(1), 0.0  # several workers may count at once

    def handle(message: Message) -> None:
        nonlocal started
        seen = next(turns)
        if seen == 1:
            started = time.perf_counter()
        if len(message.body) != size or message.headers["xid"] is None:
            raise ValueError("wrong message")
        if seen == messages:
            connection.stop()

    # The credit of the peers.
    options = "jms.redeliveryPolicy.maximumRedeliveries=4&redelivery.credit=1000"
    with redelivery.connect(f"{uri}&{options}") as connection:
        connection.listen(queue, handle, workers=int(sys.argv[5]) if len(sys.argv) > 5 else 1)
        before = resource.getrusage(resource.RUSAGE_SELF)
        report = connection.run()
        connection.close()  # the broker's answer to DISCONNECT: it has read every acknowledgement
        took = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_SELF)
    if report.accepted != messages:
        raise SystemExit(f"{report}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"rate": messages / took, "cpu_us": 1e6 * cpu / messages}))


if __name__ == "__main__":
    main()
