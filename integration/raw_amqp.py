"""A plain blocking AMQP connection of proton, to examine brokers, not to test the library."""

from __future__ import annotations

import importlib
import itertools
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from integration.running import Running

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from integration.brokers import Broker

# Imported by name: the type stubs of proton have only the parts that the adapter uses, and others are needed here.
try:
    proton: Any = importlib.import_module("proton")
    reactor: Any = importlib.import_module("proton.reactor")
    utils: Any = importlib.import_module("proton.utils")
    AmqpError: type[Exception] = proton.ProtonException
except ModuleNotFoundError:  # for example without a compiler: tests that need it are skipped
    proton = reactor = utils = None
    AmqpError = ConnectionError

_names = itertools.count(1)
_NULL = b"\x00\x53\x77\x40"
"""Body of a message: the value null."""
_QUEUE = {"durable": True, "exclusive": False, "auto_delete": False}


class Received(NamedTuple):
    """The parts of one message that tests check."""

    body: object
    delivery_count: int
    first_acquirer: bool
    properties: dict[str, object]


class RawAmqp(Running):
    """One connection. Each call opens a link of its own, with a new name."""

    def __init__(
        self,
        broker: Broker,
        user: str | None = None,
        password: str | None = None,
        *,
        mechanism: str = "PLAIN",
        port: int | None = None,
        ca: Path | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Connect; over TLS with `ca`, the certificate to trust. Raises AmqpError if the broker refuses."""
        need_proton(broker.name)
        self.broker = broker
        login = {
            "user": broker.user if user is None else user,
            "password": broker.password if password is None else password,
        }
        domain = None
        if ca is not None:
            domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(str(ca))
            domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER_NAME)
        service, scheme = ("amqp", "amqp") if ca is None else ("amqp+ssl", "amqps")
        # By name over TLS: proton does not accept an address that the certificate lists as an address.
        url = f"{scheme}://{broker.host if ca is None else 'localhost'}:{port or broker.ports[service]}"
        self.connection = utils.BlockingConnection(
            url, timeout=timeout, ssl_domain=domain, allowed_mechs=mechanism, **login, **_host(broker)
        )

    def send(self, queue: str, body: object = b"x", **fields: Any) -> None:
        """Send a durable message and wait until it is accepted."""
        fields = {"durable": True, **fields}
        self.declare(queue).send(proton.Message(body=body, **fields))

    def declare(self, queue: str, arguments: Mapping[str, object] | None = None) -> Any:
        """Return a sender to this queue, which exists from then on; `arguments` of a new queue are for RabbitMQ 4."""
        if self.broker.declares:
            own = self.broker.queue_arguments if arguments is None else arguments
            self.manage_rabbitmq("PUT", self.broker.address(queue), {**_QUEUE, "arguments": dict(own)})
        address = self.broker.address(queue)
        return self.connection.create_sender(address, name=_name(), options=self._options("target"))

    def receive(
        self, queue: str, limit: int = 1, timeout: float = 60.0, *, expected: int = 0
    ) -> list[Received]:
        """Receive and accept messages until `limit` have arrived, or none has for `timeout` seconds.

        The first `expected` ones may take a minute each: a large message on a busy machine needs seconds.
        """
        receiver = self.connection.create_receiver(
            self.broker.address(queue), credit=limit, name=_name(), options=self._options("source")
        )
        found: list[Received] = []
        with suppress(proton.Timeout):
            while len(found) < limit:
                found.append(_received(receiver.receive(60.0 if len(found) < expected else timeout)))
                receiver.accept()
        if self.broker.declares or self.broker.name != "rabbitmq":
            # Otherwise it would get, and keep, messages that come later. RabbitMQ 4.3 forgets an acceptance that the
            # end of the connection follows at once; it answers the end of the link after it has taken the acceptance.
            # The answer of 3.10.8 is no end, and `close` would wait.
            receiver.close()
        return found

    def fail(self, queue: str, limit: int, timeout: float = 2.0, *, expected: int = 1) -> list[int]:
        """Return a message as failed until its `limit`-th delivery, or until none follows; return the counts.

        The first `expected` deliveries may take a minute each.
        """
        receiver = self.connection.create_receiver(
            self.broker.address(queue), credit=1, name=_name(), options=self._options("source")
        )
        counts: list[int] = []
        with suppress(proton.Timeout):
            while len(counts) < limit:
                received = receiver.receive(60.0 if len(counts) < expected else timeout)
                counts.append(received.delivery_count)
                receiver.fetcher.unsettled[0].local.failed = True
                receiver.release(delivered=True)
        return counts

    def send_encoded(self, queue: str, message: bytes) -> bool:
        """Send any bytes as a message; True if the broker accepted it at once."""
        link = self.declare(queue).link
        delivery = link.delivery(_name())
        link.stream(message)
        link.advance()
        try:
            self.connection.wait(lambda: delivery.remote_state, timeout=20.0)
        except AmqpError:  # the broker ends the link or the connection, or does not answer
            return False
        return bool(delivery.remote_state == proton.Delivery.ACCEPTED)

    def manage(self, resource: str, operation: str, *arguments: object) -> object:
        """Run a management operation of Artemis; return its answer."""
        answers = self.connection.create_receiver(None, credit=1, dynamic=True, name=_name())
        request = proton.Message(
            body=json.dumps(arguments),
            reply_to=answers.link.remote_source.address,
            properties={"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation},
        )
        self.connection.create_sender("activemq.management", name=_name()).send(request)
        found = answers.receive(10.0)
        answers.accept()
        assert found.properties.get("_AMQ_OperationSucceeded"), found.body
        # An operation without a result has no body.
        (result,) = json.loads(found.body or "[null]")
        return result

    def manage_rabbitmq(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request to the management node of RabbitMQ 4; return status and body of the answer."""

        class Paired(reactor.LinkOption):  # type: ignore[misc]  # proton has no types
            def apply(self, link: Any) -> None:
                link.properties = {proton.symbol("paired"): True}
                link.snd_settle_mode = proton.Link.SND_SETTLED
                ours = link.source if link.is_sender else link.target
                ours.address = "test"

        name = _name()
        sender = self.connection.create_sender("/management", name=name, options=Paired())
        receiver = self.connection.create_receiver("/management", credit=1, name=name, options=Paired())
        request = proton.Message(id=name, subject=method, address=path, reply_to="$me", body=body)
        # A request without a body ends the session, and proton writes none for None.
        data = request.encode() + (_NULL if body is None else b"")
        delivery = sender.link.delivery(name)
        sender.link.stream(data)
        sender.link.advance()
        delivery.settle()
        found = receiver.receive(10.0)
        return int(found.subject), found.body

    def manage_brokerj(self, queue: str, *, actuals: bool = False) -> tuple[int, Any]:
        """Return status and body of the answer of Broker-J's management node to a question about a queue."""
        answers = _name()

        class Answers(reactor.LinkOption):  # type: ignore[misc]  # proton has no types
            def apply(self, link: Any) -> None:
                link.target.address = answers

        receiver = self.connection.create_receiver("$management", credit=1, name=answers, options=Answers())
        asked = {
            "operation": "READ", "type": "org.apache.qpid.Queue", "index": "object-path", "key": queue,
            "actuals": actuals,
        }  # fmt: skip
        request = proton.Message(reply_to=answers, correlation_id=answers, properties=asked, body={})
        self.connection.create_sender("$management", name=_name()).send(request)
        found = receiver.receive(10.0)
        assert found.correlation_id == answers
        return int(found.properties["statusCode"]), found.body

    def close(self) -> None:
        """Close."""
        self.connection.close()

    def _options(self, end: str) -> list[Any]:
        broker = self.broker

        class ToQueue(reactor.LinkOption):  # type: ignore[misc]  # proton has no types
            def apply(self, link: Any) -> None:
                terminus = getattr(link, end)
                for capability in broker.link_capabilities:
                    terminus.capabilities.put_symbol(proton.symbol(capability))
                if broker.durable_links:
                    terminus.durability = proton.Terminus.DELIVERIES

        return [ToQueue()]


def need_proton(name: str) -> None:
    """Skip without proton; fail once if REDELIVERY_REQUIRE_BROKERS requires this broker."""
    from integration.availability import had  # noqa: PLC0415 - the brokers import this module
    from integration.brokers.toolchain import BrokerError  # noqa: PLC0415

    def get() -> None:
        if proton is None:
            raise BrokerError("python-qpid-proton is not installed (the extra amqp)")

    if proton is None:
        had(name, f"{name} over AMQP", get)


def _host(broker: Broker) -> dict[str, str]:
    virtual_host = getattr(broker, "virtual_host", "")
    return {"virtual_host": f"vhost:{virtual_host}"} if virtual_host else {}


def amqp_answers(broker: Broker) -> bool:
    """True if a connection opens."""
    with suppress(AmqpError, OSError):
        RawAmqp(broker, timeout=3.0).close()
        return True
    return False


def _name() -> str:
    return f"raw-{next(_names)}"


def _received(message: Any) -> Received:
    body = message.body.tobytes() if isinstance(message.body, memoryview) else message.body
    properties = dict(message.properties or {})
    return Received(body, message.delivery_count, message.first_acquirer, properties)
