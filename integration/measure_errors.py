"""Measures ERROR frames, and whether the connection survives them: `python -m integration.measure_errors`.

The source of "ERROR frames" in docs/measured/activemq-stomp.md, artemis-stomp.md and rabbitmq-stomp-errors.md.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from integration.brokers import STOMP_BROKERS
from integration.eventually import settled
from integration.raw_stomp import ConnectFailed, RawStomp

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker

R = {"receipt": "R"}


def frame(command: str, body: bytes = b"", **headers: str) -> Callable[[RawStomp], None]:
    """Return a request with exactly these headers and a receipt."""
    return lambda raw: raw.connection.send_frame(command, {**headers, **R}, body)


def subscribe(queue: str, **headers: str) -> Callable[[RawStomp], None]:
    """Return a SUBSCRIBE with a receipt."""

    def act(raw: RawStomp) -> None:
        extra = {**raw.broker.subscribe_headers, **headers, **R}
        raw.connection.subscribe(raw.broker.destination(queue), "1", "client-individual", extra)

    return act


def send(queue: str, **headers: str) -> Callable[[RawStomp], None]:
    """Return a SEND with a receipt."""
    return lambda raw: raw.connection.send(
        raw.broker.destination(queue), b"x", headers={**raw.broker.send_headers, **headers, **R}
    )


def held(queue: str, act: Callable[[RawStomp, str], None]) -> Callable[[RawStomp], None]:
    """Return a request about an unsettled message of this connection, by its ack handle."""

    def run(raw: RawStomp) -> None:
        raw.send(queue)
        raw.subscribe(queue)
        message = raw.next()
        assert message is not None
        act(raw, message.headers["ack"])

    return run


def ack_twice(raw: RawStomp, handle: str) -> None:
    """Acknowledge a message twice; the second ACK has the receipt."""
    raw.connection.ack(handle)
    raw.connection.ack(handle, receipt="R")


def ack_after_unsubscribe(raw: RawStomp, handle: str) -> None:
    """Acknowledge a message after the end of its subscription."""
    raw.connection.unsubscribe("1")
    raw.connection.ack(handle, receipt="R")


def nack_in_transaction(raw: RawStomp, handle: str) -> None:
    """NACK a message in a transaction."""
    raw.connection.begin("t")
    raw.connection.nack(handle, transaction="t", receipt="R")


def begin_twice(raw: RawStomp) -> None:
    """Begin two transactions with the same name."""
    raw.connection.begin("t")
    raw.connection.begin("t", headers=R)


def subscribe_twice(raw: RawStomp) -> None:
    """Begin two subscriptions with the same id."""
    raw.subscribe("twice")
    subscribe("twice")(raw)


PROBES: dict[str, Callable[[RawStomp], None]] = {
    "SUBSCRIBE without permission": subscribe("denied.a"),
    "SEND without permission": send("denied.a"),
    "SUBSCRIBE with a wrong selector": subscribe("selector", selector="a = = 'x"),
    "SEND without destination": frame("SEND", b"x"),
    "SEND to an empty destination": frame("SEND", b"x", destination=""),
    "SEND to /foo/bar": frame("SEND", b"x", destination="/foo/bar"),
    "SUBSCRIBE without id": frame("SUBSCRIBE", destination="/queue/a"),
    "SUBSCRIBE twice": subscribe_twice,
    "UNSUBSCRIBE of an unknown id": frame("UNSUBSCRIBE", id="77"),
    "ACK of an unknown id": frame("ACK", id="nonsense"),
    "ACK twice": held("q.twice", ack_twice),
    "ACK after UNSUBSCRIBE": held("q.unsubscribed", ack_after_unsubscribe),
    "NACK of an unknown id": frame("NACK", id="nonsense"),
    "NACK in a transaction": held("q.transaction", nack_in_transaction),
    "COMMIT of an unknown transaction": frame("COMMIT", transaction="nope"),
    "ABORT of an unknown transaction": frame("ABORT", transaction="nope"),
    "SEND in a transaction never begun": send("q.unknown", transaction="nope"),
    "BEGIN twice": begin_twice,
    "unknown command": frame("FOO"),
    "SEND with priority 99": send("q.priority", priority="99"),
}


def probe(broker: Broker, name: str, act: Callable[[RawStomp], None]) -> None:
    """Send one request on a new connection; print the answers, and whether the connection survived."""
    raw = RawStomp(broker).connect()
    act(raw)
    error = raw.next(1.0)
    closed = settled(lambda: raw.closed, 1.0)
    receipt = "RECEIPT" if "R" in raw.receipts else "no RECEIPT"
    said = "no ERROR" if error is None else f"{error.headers} body={error.body[:80]!r}"
    print(f"{broker.name} {name}: {said}; {receipt}; {'closed' if closed else 'open'}")
    if not closed:
        raw.close()


def main() -> None:
    """Run every probe on every broker."""
    for kind in STOMP_BROKERS.values():
        with kind() as broker:
            for login in ((broker.user, "wrong"), ("", "")):
                raw = RawStomp(broker)
                with suppress(ConnectFailed):
                    raw.connect(*login)
                print(f"{broker.name} login {login}: {[e.headers for e in raw.errors]}; closed={raw.closed}")
            for name, act in PROBES.items():
                probe(broker, name, act)


if __name__ == "__main__":
    main()
