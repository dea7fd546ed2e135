"""ActiveMQ Classic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from integration.brokers import tls
from integration.brokers.base import Broker
from integration.brokers.ports import HOST
from integration.brokers.toolchain import Distribution, compiled, missing
from integration.brokers.versions import present, version

if TYPE_CHECKING:
    from integration.brokers.base import Place

_VERSION = version("activemq")
# Bytes. The default of the STOMP connector without a configured limit, as before 6.2.8.
MAX_FRAME = 100 * 1024 * 1024
_MODULES = ("broker", "client", "stomp", "amqp", "kahadb-store")


def _jars(version: str) -> Distribution:
    return Distribution(
        f"activemq-{version}-amqp",
        (
            *(f"org.apache.activemq:activemq-{module}:{version}" for module in _MODULES),
            "org.apache.logging.log4j:log4j-slf4j2-impl:2.24.3",
        ),
    )


class ActiveMQ(Broker):
    """Classic, embedded in a small Java program of these tests (its archive is not in Maven, its jars are).

    Default policies (shared dead-letter queue, 200 messages paged in); log-in required; no user may use `denied.>`.
    Queues below `ind.` have a dead-letter queue each, which also gets non-persistent messages; queues below `wide.`
    page in 100,000 messages. Its plug-ins drop dead letters of queues such as `drop.042.x`, and redeliver those below
    `again.` twice. AMQP messages are stored as JMS messages, which the other protocols can read. In a container the
    program uses the jars of the image.
    """

    name = "activemq"
    version = _VERSION
    distribution = _jars(_VERSION)
    # The client of 5.x has the package names before Jakarta: another version is used, with the same protocol.
    jms_client = _jars(present("activemq") if _VERSION.startswith("5.") else _VERSION)
    image = f"apache/activemq-classic:{_VERSION}"
    image_home = "/opt/apache-activemq"
    ready = "READY"
    services = ("stomp", "stomp+ssl", "amqp", "amqp+ssl", "openwire")
    dead_letter_queue = "ActiveMQ.DLQ"
    java_clients = ("openwire", "qpid")

    data = ""
    """Folder of its store; empty: in its own folder."""
    lock_every_ms = 0
    """Interval of its tries to get the lock of the store, and of its looks if it still has it; 0: the default."""

    def __init__(
        self, *, containerised: bool | None = None, scheduler: bool = True, stomp_frames: int = MAX_FRAME
    ) -> None:
        """Set `schedulerSupport`, whose default is off. `stomp_frames`: most bytes of a frame."""
        super().__init__(containerised=containerised)
        self.scheduler = scheduler
        self.stomp_frames = stomp_frames

    @classmethod
    def lacks(cls) -> str | None:
        """Return the missing tools and jars to compile the program, or None."""
        return missing(cls.distribution)

    def destination(self, queue: str) -> str:
        """Return the address with the prefix of queues."""
        return f"/queue/{queue}"

    @property
    def openwire_url(self) -> str:
        """URL of the ActiveMQ client."""
        return f"tcp://{HOST}:{self.ports['openwire']}"

    def files(self, place: Place) -> dict[str, bytes]:
        """Return the program and its settings."""
        values = {
            "bind": place.bind,
            "data": self.data or f"{place.folder}/data",
            "lockEvery": self.lock_every_ms,
            "stomp": place.ports["stomp"],
            "stomps": place.ports["stomp+ssl"],
            "amqp": place.ports["amqp"],
            "amqps": place.ports["amqp+ssl"],
            "openwire": place.ports["openwire"],
            "stompFrames": self.stomp_frames,
            "amqpIdle": 30_000 if self.idle is None else self.idle * 1000,  # the broker's own default
            "scheduler": str(self.scheduler).lower(),
            "user": self.user,
            "password": self.password,
            "keyStore": f"{place.folder}/{tls.KEY_STORE}",
            "keyStorePassword": tls.STORE_PASSWORD,
        }
        program = compiled(self.distribution, "ClassicBroker")
        return {
            "broker.properties": "".join(f"{key}={value}\n" for key, value in values.items()).encode(),
            tls.KEY_STORE: tls.certificate().key_store.read_bytes(),
            **{f"classes/{Path(file).name}": file.read_bytes() for file in program.glob("*.class")},
        }

    def command(self, place: Place) -> list[str]:
        """Return the command that runs the program with the jars of the distribution."""
        jars = (f"{place.home}/*", f"{place.home}/lib/*", f"{place.home}/lib/optional/*")
        path = ":".join((f"{place.folder}/classes", *jars))
        settings = f"{place.folder}/broker.properties"
        return ["java", *self.jvm, "-Dlog4j2.level=WARN", "-cp", path, "ClassicBroker", settings]
