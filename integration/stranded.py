"""Messages that Artemis has stranded when it ended a cut connection: docs/measured/artemis-stomp-cuts.md.

Only a restart redelivers them. A test that misses a message asks management, and restarts Artemis if, and only if,
Artemis counts a message as being delivered that no consumer has. Any other missing message stays a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from integration.eventually import eventually, settled
from integration.raw_stomp import RawStomp

if TYPE_CHECKING:
    from collections.abc import Callable

    from integration.brokers import Broker

__all__ = ["eventually_given_back", "give_back", "stranded", "stuck"]

# Seconds. Artemis sometimes stands still for ten after a cut connection (l), also twice in a row.
STANDSTILL = 30.0
QUIET = 2.0  # seconds without a change
_MANY = 6 * (os.cpu_count() or 1)  # twice its network threads for STOMP


def stuck(broker: Broker) -> str:
    """Return why Artemis does not answer some STOMP connections any more; empty: it does.

    It can deadlock when a connection breaks while DISCONNECT is answered (docs/measured/artemis-stomp-cuts.md,
    "Deadlocks"). The stacks of its network threads show other causes.
    """
    tool = shutil.which("jstack")
    if tool is None or broker.name != "artemis" or broker.containerised or not broker.running:
        return ""
    said = subprocess.run(
        [tool, str(broker.pid)], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    if "Java-level deadlock" in said:
        return "a deadlock"
    silent = _silent(broker)
    if not silent:
        return ""
    stacks = "\n\n".join(each for each in said.split("\n\n") if "BLOCKED" in each or "artemis" in each)
    return f"{silent} of {_MANY} connections were not answered within {STANDSTILL:g} s:\n{stacks}"


def _silent(broker: Broker) -> int:
    """Return how many of several connections get no answer. Artemis deals them out to its network threads in turn."""
    hello = b"CONNECT\naccept-version:1.2\nhost:x\nlogin:nobody\npasscode:none\n\n\0"
    deadline = time.monotonic() + STANDSTILL
    silent = 0
    with ExitStack() as stack:
        opened = [
            stack.enter_context(socket.create_connection((broker.host, broker.stomp_port), STANDSTILL))
            for _ in range(_MANY)
        ]
        for each in opened:
            each.sendall(hello)
        for each in opened:
            each.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                each.recv(1)
            except TimeoutError:
                silent += 1
            except OSError:
                # A refusal is an answer.
                continue
    return silent


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
