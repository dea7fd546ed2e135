"""Messages that Artemis has stranded when it ended a cut connection: docs/measured/artemis-stomp-cuts.md.

Only a restart redelivers them. A test that misses a message asks management, and restarts Artemis if, and only if,
Artemis counts a message as being delivered that no consumer has. Any other missing message stays a failure.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from typing import TYPE_CHECKING, Any

from integration.eventually import eventually, settled
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker

__all__ = ["deadlocked", "eventually_given_back", "give_back", "stranded"]

# Seconds. Artemis sometimes stands still for ten after a cut connection (l), also twice in a row.
STANDSTILL = 30.0
QUIET = 2.0  # seconds without a change


def deadlocked(broker: Broker) -> bool:
    """True if Artemis is in a deadlock, which happens if a connection breaks while DISCONNECT is answered.

    No connection of that thread gets an answer any more then (docs/measured/artemis-stomp-cuts.md, "Deadlocks").
    """
    tool = shutil.which("jstack")
    if tool is None or broker.name != "artemis" or broker.containerised:
        return False
    said = subprocess.run([tool, str(broker.pid)], capture_output=True, text=True, timeout=60, check=False)
    return "Java-level deadlock" in said.stdout


def stranded(broker: Broker, queue: str) -> int:
    """Return the number of messages that Artemis counts as being delivered, although no consumer has them."""
    if broker.name != "artemis":
        return 0
    # With a content-length the request would be a BytesMessage, which is not a request.
    with RawStomp(broker, auto_content_length=False) as raw:
        answers = f"management.{uuid.uuid4().hex}"
        raw.subscribe(answers)

        def ask(kind: str, name: str, body: str) -> Any:
            headers = {"_AMQ_ResourceName": f"queue.{queue}", kind: name, "reply-to": answers}
            raw.connection.send("activemq.management", body, headers=headers)
            answer = raw.next(20.0)
            assert answer is not None, f"management says nothing of {queue}"
            assert answer.headers.get("_AMQ_OperationSucceeded") == "true", answer
            raw.ack(answer)
            (value,) = json.loads(answer.body)
            return value

        def missing() -> int:
            consumers = json.loads(ask("_AMQ_OperationName", "listConsumersAsJSON", "[]"))
            held: int = sum(consumer["messagesInTransit"] for consumer in consumers)
            return int(ask("_AMQ_Attribute", "deliveringCount", "")) - held

        count: int = settled(missing, QUIET, interval=0.5)
        return count


def give_back(broker: Broker, queue: str) -> int:
    """Restart Artemis if it has stranded messages of this queue; return their number. It redelivers persistent ones."""
    count = stranded(broker, queue)
    if count:
        print(
            f"\nArtemis has stranded {count} of {queue}, and is restarted (docs/measured/artemis-stomp-cuts.md)"
        )
        broker.restart()
    return count


def eventually_given_back(
    predicate: Callable[[int], object],
    broker: Broker,
    queue: str,
    interval: float = 0.05,
    message: str = "",
    timeout: float = STANDSTILL,
) -> int:
    """Wait as `eventually` does, for twice `timeout`; in between, restart Artemis if it has stranded messages.

    Return their number. The predicate gets it, too: non-persistent messages are not redelivered.
    """
    try:
        eventually(lambda: predicate(0), timeout, interval, message)
    except AssertionError:
        count = give_back(broker, queue)
        eventually(lambda: predicate(count), timeout, interval, f"{message} ({count} were stranded)")
        return count
    return 0
