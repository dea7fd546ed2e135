"""Measures how JMS bodies arrive over STOMP: `python -m integration.measure_bodies`; results on stdout.

The source of docs/measured/activemq-stomp-messages.md and
docs/measured/artemis-stomp-messages.md. Run it again when a broker's version changes.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from integration.brokers import ActiveMQ, Artemis
from integration.java_client import JavaClient
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from integration.brokers import Broker
    from integration.raw_stomp import Frame

BODIES = [
    ("text", "Grüße\n".encode()),
    ("text", b"nul\x00inside"),
    ("text", b""),
    ("null-text", b""),
    ("bytes", b"\x00\xff\r\n:\\"),
    ("bytes", b""),
    ("map", b"in a map"),
    ("object", b"an object"),
    ("stream", b"in a stream"),
    ("empty", b""),
]
DULL = {"destination", "subscription", "ack", "timestamp", "priority", "expires", "persistent"}


def show(frame: Frame | None) -> str:
    """Return a frame without the headers that do not matter here."""
    if frame is None:
        return "nothing arrives"
    return f"{ ({k: v for k, v in frame.headers.items() if k not in DULL}) } body={frame.body[:60]!r}"


def arriving(broker: Broker, java: JavaClient, version: str) -> None:
    """Print the frame of each Java message for a STOMP consumer."""
    for (kind, body), persistent in itertools.product(BODIES, (True, False)):
        queue = f"arriving.{java.kind}.{version}.{kind}.{len(body)}.{persistent}"
        java.send(queue, body, kind=kind, persistent=persistent)
        with RawStomp(broker, version) as stomp:
            stomp.subscribe(queue)
            frame = stomp.next(2.0)
        verdict = "same bytes" if frame is not None and frame.body == body else "DIFFERENT"
        case = f"{broker.name} {java.kind} {version} {kind} {body!r} persistent={persistent}"
        print(f"{case}: {show(frame)} {verdict}")


def maps(broker: Broker, java: JavaClient) -> None:
    """Print the bytes of a map that arrive, which depend on its number of entries (Artemis)."""
    for entries in (0, 1, 2, 3, 8, 40):
        queue = f"maps.{entries}"
        java.send(queue, b"value", kind="map", entries=entries)
        with RawStomp(broker) as stomp:
            stomp.subscribe(queue)
            print(f"{broker.name} map of {entries}: {show(stomp.next(2.0))}")


def behind_a_stream(broker: Broker, java: JavaClient) -> None:
    """Print whether a stream message blocks the messages behind it."""
    for kind in ("text", "stream", "text"):
        java.send("behind", b"body", kind=kind)
    with RawStomp(broker) as stomp:
        stomp.subscribe("behind")
        for frame in stomp.messages(1.5):
            print(f"{broker.name} text, stream, text: {show(frame)}")
            stomp.ack(frame)
    print(f"{broker.name} left: {[(m.kind, m.value) for m in java.browse('behind')]}")


def nacked(broker: Broker, java: JavaClient) -> None:
    """Print the dead letter after a NACK."""
    for (kind, body), persistent, prefix in itertools.product(BODIES, (True, False), ("nack.", "ind.")):
        queue = f"{prefix}{kind}.{len(body)}.{persistent}"
        java.send(queue, body, kind=kind, persistent=persistent, properties={"i": 3}, correlation_id="c")
        with RawStomp(broker) as stomp:
            stomp.subscribe(queue)
            frame = stomp.next(2.0)
            if frame is not None:
                stomp.ack(frame, "nack")
        dead = java.drain(broker.dead_letter_queue if prefix == "nack." else f"DLQ.{queue}", timeout=0.5)
        seen = [(m.kind, m.body, m.value, m.persistent, m.properties, m.correlation_id) for m in dead]
        print(f"{broker.name} NACK of {kind} {body!r} persistent={persistent} on {prefix}*: {seen}")


def forwarded(broker: Broker, java: JavaClient) -> None:
    """Print the type of a SEND for Java, by the headers that may select it."""
    bodies = (b"abc", b"", b"\xff\x00\xfe", "ü\x00x".encode(), b"\r\nx\n")
    for length, kind, body in itertools.product((False, True), ("", "text", "bytes"), bodies):
        queue = f"forwarded.{length}.{kind}.{body.hex()}"
        headers = {"persistent": "true"}
        headers |= {"content-length": str(len(body))} if length else {}
        headers |= {"amq-msg-type": kind} if kind else {}
        with RawStomp(broker, auto_content_length=False) as stomp:
            if b"\0" in body and not length:
                continue  # not a valid frame: the first NUL ends it
            stomp.send_frame(queue, body, headers)
            found = java.browse(queue)
            stomp.subscribe(queue)
            again = stomp.next(2.0)
        seen = [(m.kind, m.body, "same" if m.body == body else "DIFFERENT", m.properties) for m in found]
        print(f"{broker.name} SEND {headers} {body!r} -> Java {seen}; STOMP {show(again)}")


def main() -> None:
    """Run all measurements on every broker, with every Java client except AMQP's."""
    for kind in (Artemis, ActiveMQ):
        with kind() as broker:
            native = [client for client in kind.java_clients if client != "qpid"]
            for client, version in itertools.product(native, ("1.2", "1.1")):
                with JavaClient(broker, client) as java:
                    arriving(broker, java, version)
            with JavaClient(broker) as java:
                maps(broker, java)
                behind_a_stream(broker, java)
                forwarded(broker, java)
                if broker.name == "activemq":
                    nacked(broker, java)


if __name__ == "__main__":
    main()
