"""Four processes that consume, each with a connection of its own: `python process_pool.py URL`."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import sys
import threading
from multiprocessing.connection import wait

import redelivery

logger = logging.getLogger("orders")


def handle(message: redelivery.Message) -> None:
    """Handle one order."""
    logger.info("handled %s", message.text)


def work(url: str) -> None:
    """Consume until SIGTERM, then drain: the main function of each process."""
    logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s")
    with redelivery.connect(url) as connection:
        connection.listen("orders", handle, workers=2)
        threading.Thread(target=follow_parent, args=(connection,), daemon=True).start()
        connection.run(drain_timeout=25)


def follow_parent(connection: redelivery.Connection) -> None:
    """Drain if the parent process has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    connection.stop()


def main(url: str) -> int:
    """Run the pool until SIGTERM, or until one of its processes ends: a supervisor may start it again."""
    # Not fork: a child would share the open files and sockets of its parent.
    context = multiprocessing.get_context("spawn")
    pool = [context.Process(target=work, args=(url,)) for _ in range(4)]

    def stop(*_: object) -> None:
        # Only once: a second SIGTERM ends a process that drains.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for process in pool:
            process.terminate()

    # On a terminal, Ctrl-C reaches each process directly.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for process in pool:
        process.start()
    signal.signal(signal.SIGTERM, stop)
    wait([process.sentinel for process in pool])
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
        stop()
    for process in pool:
        process.join()
    # A process that SIGTERM ended had not begun to consume.
    return int(any(process.exitcode not in (0, -signal.SIGTERM) for process in pool))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
