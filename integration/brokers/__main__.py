"""One broker by hand: `python -m integration.brokers artemis` prints its URIs and runs until Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import sys
import threading
from argparse import ArgumentParser
from contextlib import closing
from typing import TYPE_CHECKING

from integration.brokers import ALL_BROKERS, BrokerError

if TYPE_CHECKING:
    from integration.brokers import Broker

__all__ = ["main", "uris"]


def uris(broker: Broker) -> list[str]:
    """Return a connection URI with log-in for each protocol of the library on this broker, without TLS."""
    return [broker.uri(protocol=each) for each in ("stomp", "amqp") if each in broker.services]


def main(arguments: list[str] | None = None) -> int:
    """Run a broker; return 0 when it has ended, 1 if it cannot run here."""
    parser = ArgumentParser(prog="python -m integration.brokers", description=__doc__)
    parser.add_argument("name", choices=sorted(ALL_BROKERS), help="which broker")
    kind = ALL_BROKERS[parser.parse_args(arguments).name]
    if (why := kind.unavailable()) is not None:
        print(why, file=sys.stderr)
        return 1
    ended = threading.Event()
    # Before the start: a signal during the start also ends the broker.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    try:
        kind.obtain()
        with closing(kind()) as broker:
            broker.start()
            for uri in uris(broker):
                print(uri, flush=True)
            ended.wait()
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
