"""Messages that Artemis has lost sight of when it ended a cut link: docs/measured/stomp.md, n.

They come again only when it is restarted. So a test that misses one asks management, and restarts Artemis if, and only
if, it counts a message as being delivered that no consumer has. Any other silence stays a failure.
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

# Seconds: Artemis stands still for ten after a cut link, now and then (l), also twice in a row.
STANDSTILL = 30.0
QUIET = 2.0  # seconds without a change


def deadlocked(broker: Broker) -> bool:
    """Whether Artemis has locked itself up, as it may over a link that breaks while DISCONNECT is answered.

    Then no connection of that thread is answered any more (docs/measured/stomp.md, o).
    """
    tool = shutil.which("jstack")
    if tool is None or broker.name != "artemis" or broker.containerised:
        return False
    said = subprocess.run([tool, str(broker.pid)], capture_output=True, text=True, timeout=60, check=False)
    return "Java-level deadlock" in said.stdout


def stranded(broker: Broker, queue: str) -> int:
    """How many messages of a queue Artemis counts as being delivered, although none of its consumers has them."""
    if broker.name != "artemis":
        return 0
    # With a content-length the request would be bytes, and no request.
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
    """Restart Artemis if it has stranded messages of this queue; return how many. What is persistent comes again."""
    count = stranded(broker, queue)
    if count:
        print(f"\nArtemis has stranded {count} of {queue}, and is restarted (docs/measured/stomp.md, n)")
        broker.restart()
    return count


def eventually_given_back(
    predicate: Callable[[int], object], broker: Broker, queue: str, interval: float = 0.05, message: str = ""
) -> int:
    """Wait as `eventually` does, for twice 30 s; in between Artemis gives back what it has stranded: how many.

    The predicate is given that number: what is not persistent does not come again.
    """
    try:
        eventually(lambda: predicate(0), STANDSTILL, interval, message)
    except AssertionError:
        count = give_back(broker, queue)
        told = f"{message} ({count} were stranded)"
        eventually(lambda: predicate(count), STANDSTILL, interval, told)
        return count
    return 0
