"""Measures how many unacknowledged messages arrive, and redeliveries: `python -m integration.measure_flow`.

The source of "Windows" and "Redelivery" in docs/measured/activemq-stomp.md, of "Redelivery" in artemis-stomp.md and
of "consumer-window-size" in artemis-stomp-windows.md.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from integration.brokers import ActiveMQ, Artemis
from integration.eventually import eventually, settled
from integration.java_client import JavaClient
from integration.proxy import LinkProxy
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker


def arrived(raw: RawStomp) -> int:
    """Return the number of frames that have arrived when no more do."""
    return settled(raw.frames.qsize, 1.0)


def windows(broker: Broker, java: JavaClient) -> None:
    """Print for Artemis: messages by bytes of window, a second subscription, and ACKs."""
    for size, count in ((256, 5000), (65536, 300)):
        for window in ("", "0", "1", "1024", "65536", "1048576", "-1"):
            queue = f"window.{size}.{window}"
            java.send(queue, b"a" * size, kind="bytes", persistent=False, copies=count)
            headers = {"consumer-window-size": window} if window else {}
            with RawStomp(broker) as raw:
                raw.subscribe(queue, "1", **headers)
                first = arrived(raw)
                raw.subscribe(queue, "2", **headers)
                second = arrived(raw) - first
                for _ in range(min(50, first)):
                    raw.ack(raw.frames.get(), wait=False)
                refill = arrived(raw) - first - second + min(50, first)
            print(f"window {window or 'none'}, {size} B, {count} there: {first}, +{second}, refill {refill}")


def prefetch(broker: Broker, java: JavaClient) -> None:
    """Print for Classic: how many messages arrive while the first `hold` are not acknowledged."""
    for first, persistent, hold in itertools.product((True, False), (True, False), (100, 199, 200, 900)):
        queue = f"prefetch.{first}.{persistent}.{hold}"
        with RawStomp(broker) as raw:
            if first:
                raw.subscribe(queue, activemq__prefetchSize="1000")
            java.send(queue, b"a" * 256, persistent=persistent, copies=2000)
            if not first:
                raw.subscribe(queue, activemq__prefetchSize="1000")
            delivered = flow(raw, hold)
            java.send(queue, b"a" * 256, persistent=persistent, copies=100)
            more = flow(raw, 0)
        when = "consumer first" if first else "messages first"
        print(f"{when}, persistent={persistent}, {hold} held: {delivered} of 2000; 100 more sent: +{more}")


def flow(raw: RawStomp, hold: int) -> int:
    """Receive messages until none arrives; acknowledge all except the first `hold`."""
    for count in itertools.count():
        frame = raw.next(1.5)
        if frame is None:
            return count
        if count >= hold:
            raw.ack(frame, wait=False)
    return 0


def again(broker: Broker) -> None:
    """Print the redelivered messages, with flag and id, by how the first consumer ended."""
    with LinkProxy(broker.stomp_port) as proxy:

        def kill() -> None:
            broker.kill()
            broker.start()

        ways: dict[str, Callable[[], object]] = {
            "RST": lambda: proxy.cut(reset=True),
            "FIN": lambda: proxy.cut(reset=False),
            "SIGKILL": kill,
        }
        for name in ("DISCONNECT", "UNSUBSCRIBE", *ways):
            queue = f"again.{name}"
            with RawStomp(broker) as producer:
                for body in (b"1", b"2", b"3"):
                    producer.send(queue, body)
            raw = RawStomp(broker, port=proxy.port).connect()
            raw.subscribe(queue)
            frames = [raw.next(), raw.next(), raw.next()]
            assert frames[1] is not None
            raw.ack(frames[1])
            if name == "DISCONNECT":
                raw.close()
            elif name == "UNSUBSCRIBE":
                raw.connection.unsubscribe("1", headers={"receipt": "gone"})
                raw.confirmed("gone")
            else:
                ways[name]()
                eventually(lambda raw=raw: raw.closed)  # type: ignore[misc]  # bound to this round
            with RawStomp(broker) as next_one:
                next_one.subscribe(queue)
                seen = [(f.body, f.headers.get("redelivered")) for f in next_one.messages(1.5)]
                ids = [f.headers["message-id"] for f in frames if f is not None]
            print(f"{broker.name} after {name}: {seen}; first ids {ids}")


def main() -> None:
    """Run each measurement on its broker."""
    with Artemis() as broker:
        again(broker)
        with JavaClient(broker) as java:
            windows(broker, java)
    with ActiveMQ() as broker:
        again(broker)
        with JavaClient(broker) as java:
            prefetch(broker, java)


if __name__ == "__main__":
    main()
