"""Qpid Broker-J."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from integration.brokers import tls
from integration.brokers.base import Broker
from integration.brokers.toolchain import Distribution
from integration.brokers.versions import version
from integration.raw_amqp import amqp_answers

if TYPE_CHECKING:
    from integration.brokers.base import Place

_VERSION = version("brokerj")

_RULES = """ACL DENY-LOG ALL CONSUME QUEUE name="denied.*"
ACL DENY-LOG ALL PUBLISH EXCHANGE name="" routingkey="denied.*"
ACL ALLOW stranger ACCESS VIRTUALHOST
ACL DENY-LOG stranger ALL ALL
ACL ALLOW ALL ALL
"""


class BrokerJ(Broker):
    """Broker-J with a persistent store, AMQP 1.0 only, log-in required.

    A link creates the queue that it names, durable. Queues have no delivery limit and no dead-letter queue, except
    those below `max3.` (to DLQ after 3 deliveries), `drop3.` (3 deliveries, and no dead-letter queue) and `alt.` (DLQ,
    but no limit). Queues below `nohold.` accept no delayed message. No user may use `denied.*`. Links create no queue
    below `absent.`. The user `stranger`, with the same password, may only enter the virtual host.
    """

    name = "brokerj"
    version = _VERSION
    distribution = Distribution(
        f"qpid-broker-j-{_VERSION}",
        (f"org.apache.qpid:apache-qpid-broker-j:{_VERSION}:tar.gz:bin",),
        archive=True,
    )
    image = f"redelivery-test/brokerj:{_VERSION}"  # none is published: integration/images builds it
    image_home = "/opt/qpid-broker-j"
    ready = "BRK-1004"
    services = ("amqp", "amqp+ssl")
    dead_letter_queue = "DLQ"
    largest = 32 << 20
    java_clients = ("qpid",)
    stranger = "stranger"

    def answers(self) -> bool:
        """True if a connection opens: ports accept connections even if the virtual host has failed."""
        return super().answers() and amqp_answers(self)

    def files(self, place: Place) -> dict[str, bytes]:
        """Return the configuration from which the broker makes its own at its first start."""
        return {
            "config.json": json.dumps(self._config(place), indent=1).encode(),
            "rules.acl": _RULES.encode(),
            tls.KEY_STORE: tls.certificate().key_store.read_bytes(),
        }

    def command(self, place: Place) -> list[str]:
        """Return the command of the broker's main class, as in its own script."""
        properties = {
            "QPID_HOME": place.home,
            "QPID_WORK": place.folder,
            "qpid.work_dir": place.folder,
            "derby.stream.error.file": f"{place.folder}/derby.log",
            "qpid.max_message_size": str(self.largest),
            "qpid.port.heartbeatDelay": str(self.idle or 0),  # seconds; 0 is its default: never
        }
        argv = ["java", *self.jvm, "-XX:MaxDirectMemorySize=256m", "-cp", f"{place.home}/lib/*"]
        argv += [f"-D{name}={value}" for name, value in properties.items()]
        argv += ["org.apache.qpid.server.Main", "-icp", f"{place.folder}/config.json"]
        return [*argv, "-sp", f"{place.folder}/broker.json"]

    def _config(self, place: Place) -> dict[str, Any]:
        plain = self._port(place, "amqp", {"transports": ["TCP"]})
        secure = self._port(place, "amqp+ssl", {"transports": ["SSL"], "keyStore": "store"})
        return {
            "name": "integration",
            "modelVersion": "9.0",
            "authenticationproviders": [
                {
                    "name": "login",
                    "type": "Plain",
                    "secureOnlyMechanisms": [],  # else a password goes over TLS only
                    "users": [
                        {"name": name, "type": "managed", "password": self.password}
                        for name in (self.user, self.stranger)
                    ],
                }
            ],
            "accesscontrolproviders": [
                {"name": "rules", "type": "AclFile", "path": f"{place.folder}/rules.acl", "priority": 1}
            ],
            "keystores": [
                {
                    "name": "store",
                    "type": "FileKeyStore",
                    "keyStoreType": "pkcs12",
                    "storeUrl": f"{place.folder}/{tls.KEY_STORE}",
                    "password": tls.STORE_PASSWORD,
                }
            ],
            "brokerloggers": [_LOGGER],
            "ports": [plain, secure],
            "virtualhostnodes": [
                {
                    "name": "default",
                    "type": "JSON",
                    "defaultVirtualHostNode": "true",
                    "virtualHostInitialConfiguration": json.dumps(_VIRTUAL_HOST),
                }
            ],
        }

    def _port(self, place: Place, service: str, more: dict[str, Any]) -> dict[str, Any]:
        # Accept any host in an open: a client of a container cannot know the broker's own name.
        anything = {
            "name": "any",
            "type": "patternMatchingAlias",
            "pattern": ".*",
            "virtualHostNode": "default",
        }
        return {
            "name": service,
            "port": place.ports[service],
            "bindingAddress": place.bind,
            "authenticationProvider": "login",
            "protocols": ["AMQP_1_0"],
            "virtualhostaliases": [{"name": "none", "type": "defaultAlias"}, anything],
            **more,
        }


_LOGGER = {
    "name": "console",
    "type": "Console",
    "brokerloginclusionrules": [
        {"name": "root", "type": "NameAndLevel", "level": "WARN", "loggerName": "ROOT"},
        {
            "name": "operations",
            "type": "NameAndLevel",
            "level": "INFO",
            "loggerName": "qpid.message.broker.*",
        },
    ],
}


def _queues(pattern: str, **attributes: object) -> dict[str, Any]:
    return {
        "pattern": pattern,
        "createdOnPublish": True,
        "createdOnConsume": True,
        "nodeType": "queue",
        "attributes": {"durable": True, "holdOnPublishEnabled": True} | attributes,
    }


_DEAD_LETTERS = {"destination": "DLQ", "attributes": {}}
_VIRTUAL_HOST = {
    "type": "DERBY",
    "storePath": "${qpid.work_dir}/messages",
    "housekeepingCheckPeriod": 1000,  # how exact expiry and delayed delivery are; 30000 by default
    "nodeAutoCreationPolicies": [
        _queues(r"max3\..*", maximumDeliveryAttempts=3, alternateBinding=_DEAD_LETTERS),
        _queues(r"drop3\..*", maximumDeliveryAttempts=3),
        _queues(r"alt\..*", alternateBinding=_DEAD_LETTERS),
        _queues(r"nohold\..*", holdOnPublishEnabled=False),
        _queues(r"(?!absent\.).*"),
    ],
    "queues": [{"name": "DLQ", "type": "standard", "durable": True}],
}
