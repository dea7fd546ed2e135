"""ActiveMQ Artemis."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from integration.brokers import tls
from integration.brokers.base import Broker
from integration.brokers.ports import HOST
from integration.brokers.toolchain import Distribution
from integration.brokers.versions import version
from redelivery.brokers.facts import numbers

if TYPE_CHECKING:
    from integration.brokers.base import Place

_VERSION = version("artemis")
# Artemis is a project of its own since 2.50, with another group in Maven and another folder in its image. The folder
# was looked up, but not tried.
_OWN = numbers(_VERSION) >= (2, 50)
_GROUP = "org.apache.artemis" if _OWN else "org.apache.activemq"

_DENIED = '<security-setting match="denied.#"><permission type="manage" roles="nobody"/></security-setting>'

_INDIVIDUAL = (
    '<address-setting match="ind.#">'
    "<dead-letter-address>DLQ</dead-letter-address>"
    "<expiry-address>ExpiryQueue</expiry-address>"
    "<auto-create-dead-letter-resources>true</auto-create-dead-letter-resources>"
    "<dead-letter-queue-prefix>DLQ.</dead-letter-queue-prefix>"
    "<dead-letter-queue-suffix></dead-letter-queue-suffix>"
    "<max-delivery-attempts>3</max-delivery-attempts>"
    "<redelivery-delay>0</redelivery-delay>"
    "</address-setting>"
)

# AMQP settings of the default configuration.
_AMQP = "protocols=AMQP;amqpCredits=1000;amqpLowCredits=300;amqpMinLargeMessageSize=102400;amqpDuplicateDetection=true"

# The installed version creates the instance: the rest of the configuration is the default of that version.
_START = """set -e
cd {folder}
if [ ! -f adapted ]; then
  {create}
  sed -i -f edits.sed instance/etc/broker.xml
  touch adapted
fi
exec instance/bin/artemis run
"""


class Artemis(Broker):
    """Artemis with its default configuration, log-in required; STOMP and AMQP acceptors with and without TLS.

    No user may use addresses below `denied.`; those below `ind.` have a dead-letter queue each.
    """

    name = "artemis"
    version = _VERSION
    distribution = Distribution(
        f"artemis-{_VERSION}", (f"{_GROUP}:apache-artemis:{_VERSION}:tar.gz:bin",), archive=True
    )
    image = f"apache/activemq-artemis:{_VERSION}"
    image_home = "/opt/artemis" if _OWN else "/opt/activemq-artemis"
    ready = "AMQ221007"
    services = ("stomp", "stomp+ssl", "amqp", "amqp+ssl", "core")
    dead_letter_queue = "DLQ"
    # Without these Artemis creates a MULTICAST address: a topic.
    send_headers = {"destination-type": "ANYCAST"}  # noqa: RUF012 -- a ClassVar in the base class
    subscribe_headers = {"subscription-type": "ANYCAST"}  # noqa: RUF012
    link_capabilities = ("queue",)
    java_clients = ("core", "openwire", "qpid")

    @property
    def openwire_url(self) -> str:
        """URL of the ActiveMQ client."""
        return f"tcp://{HOST}:{self.ports['core']}"

    @property
    def core_url(self) -> str:
        """URL of Artemis' own client."""
        return f"tcp://{HOST}:{self.ports['core']}"

    def files(self, place: Place) -> dict[str, bytes]:
        """Return a script that creates the instance once and starts it, and its changes of broker.xml."""
        create = [f"{place.home}/bin/artemis", "create", "instance", "--silent", "--require-login"]
        create += ["--user", self.user, "--password", self.password, "--role", "amq", "--host", place.bind]
        create += [
            "--default-port",
            str(place.ports["core"]),
            "--no-web",
            "--no-autotune",
            "--nio",
            "--no-fsync",
        ]
        create += [f"--no-{kind}-acceptor" for kind in ("hornetq", "mqtt", "stomp", "amqp")]
        create += self.creation(place)
        return {
            "start.sh": _START.format(folder=shlex.quote(place.folder), create=shlex.join(create)).encode(),
            "edits.sed": "".join(f"{line}\n" for line in self.edits(place)).encode(),
            tls.KEY_STORE: tls.certificate().key_store.read_bytes(),
        }

    def creation(self, place: Place) -> list[str]:
        """Return further options of `artemis create`."""
        return []

    def edits(self, place: Place) -> list[str]:
        """Return the changes of broker.xml, for sed."""
        return _edits(place, self.idle)

    def command(self, place: Place) -> list[str]:
        """Return the command that runs the script."""
        return ["sh", f"{place.folder}/start.sh"]

    def environment(self, place: Place) -> dict[str, str]:
        """Return the variables for `artemis create` and `artemis run`."""
        return {"JAVA_ARGS": " ".join(self.jvm), "HAWTIO_ROLE": "amq"}


def _edits(place: Place, idle: int | None) -> list[str]:
    amqp = _AMQP if idle is None else f"{_AMQP};amqpIdleTimeout={idle * 1000}"
    secure = (
        f"sslEnabled=true;keyStorePath={place.folder}/{tls.KEY_STORE};keyStorePassword={tls.STORE_PASSWORD}"
    )
    protocols = {
        "stomp": "protocols=STOMP",
        "stomp+ssl": f"protocols=STOMP;{secure}",
        "amqp": amqp,
        "amqp+ssl": f"{amqp};{secure}",
    }
    acceptors = "".join(
        f'<acceptor name="{name}">tcp://{place.bind}:{place.ports[name]}?{options}</acceptor>'
        for name, options in protocols.items()
    )
    scan = "<message-expiry-scan-period>1000</message-expiry-scan-period>"
    before = {
        "</acceptors>": acceptors,
        "<acceptors>": scan,
        '<address-setting match="#">': _INDIVIDUAL,
        '<security-setting match="#">': _DENIED,
    }
    lines = [f"s|{mark}|{text}{mark}|" for mark, text in before.items()]
    # A machine whose disk is over 90 % full would block every producer.
    lines.append("s|<max-disk-usage>[0-9]*<|<max-disk-usage>99<|")
    return lines
