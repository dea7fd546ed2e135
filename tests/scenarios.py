"""Consumer scenarios recorded with the Java client, played with this library's sessions against any broker."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import redelivery

if TYPE_CHECKING:
    from collections.abc import Callable

    from redelivery import Consumer, Message
    from redelivery.clock import Clock

Vector = dict[str, Any]

# Seconds of each redelivery; LONG where the order matters: no machine stalls for so long.
DELAY, LONG = 0.02, 2.0
PER_MESSAGE = (
    "the limit is per message: the Java client decides on a batch by its newest message, and delivers message 1 five "
    "times although two redeliveries are allowed"
)
CAPPED = (
    "the count that is shown is the charged one: a broker's own count, which each closed connection raises, raises it "
    "up to the maximum only"
)
KEPT = (
    "processNonPersistent is true here: Classic's own default drops a poison message that is not persistent"
)


def deviation(vector: Vector) -> str | None:
    """Return why this library differs from the Java client in a scenario; None: it does not."""
    match vector["scenario"], vector["maximumRedeliveries"]:
        case "tx_first_rolled_back_alone_then_batch_with_fresh_last", 2:
            return PER_MESSAGE
        case "client_ack_close_connection_without_ack_loop", _:
            return CAPPED
        case "tx_abrupt_transport_drop_loop", _ if not vector["preDispatchCheck"]:
            return CAPPED
        case "tx_nonpersistent_poisoned", _:
            return KEPT
    return None


def expected(vector: Vector) -> tuple[list[Any], list[str]]:
    """Return the expected deliveries and the bodies of the dead letters: the Java client's, or those of `deviation`."""
    seen, dead = vector["deliveries"], sorted(letter["body"] for letter in vector["dlq"])
    reason = deviation(vector)
    if reason is PER_MESSAGE:
        one, two = (
            [{"body": body, "redelivered": n > 1, "delivery_count": n} for n in (1, 2, 3)] for body in "12"
        )
        seen = [[one[0]], [one[1]], [one[2], two[0]], [two[1]], [two[2]]]
    elif reason is CAPPED:
        most = vector["maximumRedeliveries"] + 1
        seen = [{**each, "delivery_count": min(each["delivery_count"], most)} for each in seen]
    elif reason is KEPT:
        dead = ["1"]
    return seen, dead


@dataclass
class Stage:
    """One queue of one broker, and the actions on it."""

    queue: str
    connect: Callable[[redelivery.RedeliveryPolicyMap, str], redelivery.Connection]
    """Makes a connection with policies and further URI options."""
    drop: Callable[[redelivery.Connection], None]
    """Ends a connection as a dying process does: nothing is sent, nothing is settled."""
    clock: Clock
    quiet: float = 1.0
    """Seconds without a message after which no more are expected."""
    patience: float = 60.0
    """Seconds to wait for a message that must arrive."""
    seen: list[Any] = field(default_factory=list[Any])

    def receive(self, consumer: Consumer, *, more: bool) -> Message | None:
        """Return the next message; `more`: there must be one."""
        return consumer.receive(self.patience if more else self.quiet)


def told(message: Message) -> dict[str, Any]:
    """Return a delivery in the form of the vectors."""
    return {
        "body": message.text,
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
    }


def messages(seen: list[Any]) -> int:
    """Return how many of a scenario's deliveries are messages; the others mark that none came."""
    return sum(isinstance(each, dict) for each in seen)


def policies_of(vector: Vector) -> redelivery.RedeliveryPolicyMap:
    """Return the scenario's policy, with short delays."""
    delay = LONG if "order" in vector["scenario"] else DELAY
    return redelivery.RedeliveryPolicyMap(
        default=redelivery.RedeliveryPolicy(
            maximum_redeliveries=vector["maximumRedeliveries"],
            initial_redelivery_delay=delay,
            redelivery_delay=delay,
            pre_dispatch_check=vector.get("preDispatchCheck", True),
        )
    )


def play(vector: Vector, stage: Stage) -> list[Any]:
    """Play a scenario; return its deliveries in the form of the vectors."""
    return PLAYS[vector["scenario"]](vector, stage)


def opened(vector: Vector, stage: Stage) -> redelivery.Connection:
    blocking = "" if vector.get("nonBlockingRedelivery", False) else "jms.nonBlockingRedelivery=false"
    return stage.connect(policies_of(vector), blocking)


def receive_loop(vector: Vector, stage: Stage) -> list[Any]:
    """Receive and roll back, or recover, until no message arrives or enough have."""
    transacted = vector["ack_mode"] == "transacted"
    with opened(vector, stage) as connection, connection.session(vector["ack_mode"]) as session:
        consumer = session.consumer(stage.queue)
        wanted = messages(expected(vector)[0])
        while (message := stage.receive(consumer, more=len(stage.seen) < wanted)) is not None:
            stage.seen.append(told(message))
            if len(stage.seen) == vector.get("stop_after_deliveries"):
                session.commit() if transacted else message.accept()
                break
            session.rollback() if transacted else session.recover()
        if len(stage.seen) < len(vector["deliveries"]):
            stage.seen.append("none")
    return stage.seen


def listener_throws(vector: Vector, stage: Stage) -> list[Any]:
    """Listener that throws at the first message, at each one, or until it was called often enough."""
    enough, heard = vector["stop_after_deliveries"], threading.Condition()
    with opened(vector, stage) as connection:
        session = connection.session(vector["ack_mode"])

        def handle(message: Message) -> None:
            with heard:
                stage.seen.append(told(message))
                stage.clock.notify(heard)
            if message.text == "1" and len(stage.seen) < enough:
                raise RuntimeError("boom")

        session.listen(stage.queue, handle)
        connection.start()
        deadline = stage.clock.monotonic() + 60
        with heard:
            while len(stage.seen) < len(vector["deliveries"]) and stage.clock.monotonic() < deadline:
                stage.clock.wait(heard, 60)
        connection.drain()
    return stage.seen


def connection_each(vector: Vector, stage: Stage) -> list[Any]:
    """Use a new connection for each delivery; close or drop it without settling the message."""
    for wanted in vector["deliveries"]:
        connection = opened(vector, stage)
        connection.__enter__()
        consumer = connection.session(vector["ack_mode"]).consumer(stage.queue)
        message = stage.receive(consumer, more=wanted != "none")
        stage.seen.append("none" if message is None else told(message))
        if "abrupt" in vector["scenario"]:
            stage.drop(connection)
        else:
            connection.close()
    return stage.seen


def batches(vector: Vector, stage: Stage) -> list[Any]:
    """Receive a batch, roll it back or recover; in the individual mode acknowledge the second message."""
    individual = vector["ack_mode"] == "individual"
    alone = vector["maximumRedeliveries"] if "alone" in vector["scenario"] else 0
    sizes = [len(batch) for batch in expected(vector)[0]]
    with opened(vector, stage) as connection, connection.session(vector["ack_mode"]) as session:
        consumer = session.consumer(stage.queue)
        while len(stage.seen) < 20:
            batch: list[Message] = []
            size = sizes[len(stage.seen)] if len(stage.seen) < len(sizes) else 0
            while (message := stage.receive(consumer, more=len(batch) < size)) is not None:
                batch.append(message)
                if len(stage.seen) < alone:
                    break
            if not batch:
                break
            stage.seen.append([told(message) for message in batch])
            for message in batch if individual else ():
                if message.text == "2":
                    message.accept()
            session.recover() if individual else session.rollback()
    return stage.seen


def order_after_rollback(vector: Vector, stage: Stage) -> list[Any]:
    """Roll the first message back, and commit all later ones."""
    with opened(vector, stage) as connection, connection.session("transacted") as session:
        consumer = session.consumer(stage.queue)
        wanted = messages(expected(vector)[0])
        first = stage.receive(consumer, more=True)
        assert first is not None
        stage.seen.append(told(first))
        session.rollback()
        if not vector.get("nonBlockingRedelivery", False):
            assert consumer.receive(0) is None
            stage.seen.append("none within 150ms")
        while (message := stage.receive(consumer, more=messages(stage.seen) < wanted)) is not None:
            stage.seen.append(told(message))
            session.commit()
    return stage.seen


PLAYS: dict[str, Callable[[Vector, Stage], list[Any]]] = {
    "tx_receive_rollback_loop": receive_loop,
    "client_ack_receive_recover_loop": receive_loop,
    "individual_ack_receive_recover_loop": receive_loop,
    "listener_throws_always": listener_throws,
    "tx_close_connection_without_commit_loop": connection_each,
    "client_ack_close_connection_without_ack_loop": connection_each,
    "tx_abrupt_transport_drop_loop": connection_each,
    "tx_batch_of_3_all_rolled_back": batches,
    "tx_first_rolled_back_alone_then_batch_with_fresh_last": batches,
    "individual_recover_one_acked_of_three": batches,
    "tx_nonpersistent_poisoned": receive_loop,
    "blocking_order_after_rollback": order_after_rollback,
    "nonblocking_order_after_rollback": order_after_rollback,
}
