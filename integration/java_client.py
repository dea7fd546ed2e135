"""A real Java JMS client, in a process of its own, called from Python."""

from __future__ import annotations

import base64
import itertools
import json
import queue
import subprocess
import tempfile
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.children import for_all_tests

from integration.brokers import ActiveMQ
from integration.brokers.toolchain import BrokerError, Distribution, classes, missing
from integration.eventually import gathered
from integration.running import Running

if TYPE_CHECKING:
    from collections.abc import Mapping

    from integration.brokers import Broker

Property = bool | int | float | str | tuple[str, object]

_CORE = Distribution(
    "artemis-client-2.40.0",
    (
        "org.apache.activemq:artemis-jakarta-client:2.40.0",
        "org.apache.logging.log4j:log4j-slf4j2-impl:2.24.3",
    ),
)
QPID_JMS = Distribution(
    "qpid-jms-2.7.0",
    (
        "org.apache.qpid:qpid-jms-client:2.7.0",
        "org.apache.logging.log4j:log4j-slf4j2-impl:2.24.3",
    ),
)
_KINDS = {
    "openwire": (ActiveMQ.jms_client, "org.apache.activemq.ActiveMQConnectionFactory"),
    "core": (_CORE, "org.apache.activemq.artemis.jms.client.ActiveMQJMSConnectionFactory"),
    "qpid": (QPID_JMS, "org.apache.qpid.jms.JmsConnectionFactory"),
}


@dataclass(frozen=True, slots=True)
class JmsMessage:
    """A message as Java code gets it; `kind` is text, bytes, map, stream, object or empty."""

    kind: str
    body: bytes | None  # of text (UTF-8) and bytes; None for the others and for a text that is null
    value: Any  # of map (dict), stream (list) and object
    properties: dict[str, Any]
    property_types: dict[str, str]  # Java's: string, int, long, boolean, double, ...
    message_id: str
    persistent: bool
    redelivered: bool
    correlation_id: str | None
    correlation_bytes: bytes | None
    destination: str
    reply_to: str | None
    type: str | None
    priority: int
    timestamp: int
    expiration: int


class JavaClient(Running):
    """A Java program that sends, browses, moves and drains; it outlives restarts of its broker.

    `kind` is "openwire" (the ActiveMQ client), "core" (Artemis' own) or "qpid" (Qpid JMS, over AMQP 1.0);
    default: the broker's own.
    """

    jvm: tuple[str, ...] = ()  # options of Java

    def __init__(
        self, broker: Broker, kind: str | None = None, timeout: float = 60.0, *, options: str = ""
    ) -> None:
        """Start the program (about a second). Raises BrokerError if it does not start within `timeout`.

        `options`: behind the URL of its client, `?jms.useCompression=true`.
        """
        self.kind = kind or broker.java_clients[0]
        if self.kind not in broker.java_clients:
            raise BrokerError(f"{broker.name} talks to {broker.java_clients}, not to {self.kind}")
        self._broker = broker
        distribution, factory = _KINDS[self.kind]
        url = f"{getattr(broker, f'{self.kind}_url')}{options}"
        argv = [
            "java",
            "-Xmx256m",
            *self.jvm,
            "-Dlog4j2.level=ERROR",
            "-cp",
            classes(distribution, "JmsTool"),
            "JmsTool",
        ]
        self._timeout = timeout
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 -- closed in close()
        # It ends with its stdin: any end of the test run ends it.
        self._process = subprocess.Popen(
            [*argv, factory, url, broker.user, broker.password],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=for_all_tests(),
            start_new_session=True,
        )
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="java-client", daemon=True)
        self._reader.start()
        self._answer(timeout)

    @staticmethod
    def unavailable(kind: str) -> str | None:
        """Return why this kind of client cannot run on this machine, or None."""
        return missing(_KINDS[kind][0])

    @staticmethod
    def prepare(kind: str) -> None:
        """Fetch and compile this kind of client. It starts at once after that."""
        classes(_KINDS[kind][0], "JmsTool")

    def send(
        self,
        queue: str | None,
        body: bytes = b"",
        *,
        kind: str = "text",
        topic: str | None = None,
        persistent: bool = True,
        properties: Mapping[str, Property] | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        correlation_bytes: bytes | None = None,
        reply_to: str | None = None,
        ttl: int | None = None,
        type: str | None = None,  # noqa: A002 -- the JMS name
        group: str | None = None,
        entries: int | None = None,
        copies: int = 1,
    ) -> str:
        """Send (`ttl` in milliseconds) and return the JMSMessageID; with `copies` > 1, that of the last one.

        `kind` is text, null-text, bytes, map, stream, object or empty; a property is a Python value or
        `("short", 3)`; with `copies` each message has an int property `number`, from 0. A map has four
        entries of different types, or `entries` strings.
        """
        typed = {name: _typed(value) for name, value in (properties or {}).items()}
        optional = {
            "priority": priority,
            "correlationId": correlation_id,
            "correlationBytes": None if correlation_bytes is None else _encode(correlation_bytes),
            "replyTo": reply_to,
            "ttl": ttl,
            "type": type,
            "group": group,
            "entries": entries,
        }
        return str(
            self._call(
                "send",
                queue=self._name(queue),
                topic=topic,
                kind=kind,
                body=_encode(body),
                persistent=persistent,
                properties=typed,
                copies=copies,
                **optional,
            )
        )

    def browse(self, queue: str, selector: str | None = None) -> list[JmsMessage]:
        """Browse all messages that no consumer has; they stay on the queue."""
        return [_message(item) for item in self._look("browse", queue, selector)]

    def drain(
        self,
        queue: str,
        *,
        timeout: float = 1.0,
        selector: str | None = None,
        limit: int | None = None,
        expected: int = 0,
        to_the_end: bool = False,
    ) -> list[JmsMessage]:
        """Receive until no message arrives for `timeout` seconds (0: the queue is empty), or `limit` have arrived.

        Where fewer than `expected` have arrived, more are waited for: the broker or this client may stand still for
        longer than `timeout`. Also then it ends with a silence of `timeout`: one too many is found, too. `to_the_end`
        sends a message, and receives all before it without a limit of time, however short `timeout` is.
        """
        wait = int(timeout * 1000)
        name = self._name(queue)
        if not wait and self.kind == "openwire" and name is not None:
            name += "?consumer.prefetchSize=0"  # else 0 s would return prefetched messages only

        def take() -> list[JmsMessage]:
            end = uuid.uuid4().hex if to_the_end else None
            found = self._call("drain", queue=name, timeout=wait, selector=selector, limit=limit, end=end)
            return [_message(item) for item in found]

        return gathered(take, expected)

    def move(self, queue: str, target: str, *, limit: int = 1, timeout: float = 10.0) -> int:
        """Move `limit` messages to `target`, with all properties; return the number that arrived in time."""
        wait = int(timeout * 1000)
        names = {"queue": self._name(queue), "target": self._name(target)}
        return int(self._call("move", timeout=wait, limit=limit, **names))

    def count(self, queue: str, selector: str | None = None) -> int:
        """Return the number of messages that `browse` would return."""
        return int(self._look("count", queue, selector))

    def close(self) -> None:
        """End the program."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10.0)
        self._reader.join(10.0)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in itertools.chain(self._process.stdout, [b""]):
            self._answers.put(line)

    def _name(self, queue: str | None) -> str | None:
        return None if queue is None else self._broker.jms_name(queue)

    def _look(self, command: str, queue: str, selector: str | None) -> Any:
        if not self._broker.browsable:
            raise BrokerError(f"{self._broker.name} shows no message that is not taken: drain instead")
        return self._call(command, queue=self._name(queue), selector=selector)

    def _call(self, command: str, **arguments: object) -> Any:
        line = json.dumps({"command": command, **{k: v for k, v in arguments.items() if v is not None}})
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(line.encode("ascii") + b"\n")
            self._process.stdin.flush()
            answer = self._answer(self._timeout)
        if "error" in answer:
            raise BrokerError(f"Java client, {command}: {answer['error']}")
        return answer["result"]

    def _answer(self, timeout: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise BrokerError(f"Java client: no answer in {timeout:g} s") from None
        if not line:
            self._log.seek(0)
            raise BrokerError(f"Java client ended: {self._log.read().decode(errors='replace')[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _typed(value: Property) -> list[object]:
    match value:
        case tuple():
            return list(value)
        case bool():
            return ["boolean", value]
        case int():
            return ["int" if -(2**31) <= value < 2**31 else "long", value]
        case float():
            return ["double", value]
        case str():
            return ["string", value]


def _message(item: dict[str, Any]) -> JmsMessage:
    properties: dict[str, list[Any]] = item["properties"]
    correlation = item["correlationBytes"]
    return JmsMessage(
        kind=item["kind"],
        body=None if item["body"] is None else base64.b64decode(item["body"]),
        value=item.get("value"),
        properties={name: value for name, (_, value) in properties.items()},
        property_types={name: kind for name, (kind, _) in properties.items()},
        message_id=item["messageId"],
        persistent=item["persistent"],
        redelivered=item["redelivered"],
        correlation_id=item["correlationId"],
        correlation_bytes=None if correlation is None else base64.b64decode(correlation),
        destination=item["destination"],
        reply_to=item["replyTo"],
        type=item["type"],
        priority=item["priority"],
        timestamp=item["timestamp"],
        expiration=item["expiration"],
    )
