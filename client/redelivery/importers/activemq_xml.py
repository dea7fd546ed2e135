"""Reader of ActiveMQ Classic's XML.

It reads a broker's `activemq.xml`, and a client's Spring, Blueprint or Camel file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redelivery.core.policy.policy_map import RedeliveryPolicyMap
from redelivery.core.policy.redelivery_policy import RedeliveryPolicy
from redelivery.errors import ConfigurationError, near_miss
from redelivery.importers.activemq_dead_letters import dead_letters
from redelivery.importers.activemq_policy import Policies, PolicyReader
from redelivery.importers.client_settings import CLIENTS, client_settings
from redelivery.importers.imported import Value
from redelivery.importers.setting_values import settled
from redelivery.importers.spring_beans import Beans

if TYPE_CHECKING:
    from redelivery.importers.imported import ClientSettings, Notes
    from redelivery.importers.spring_beans import Property
    from redelivery.importers.xml_positions import Element

__all__ = ["is_classic", "read_classic"]

_OURS = frozenset({
    "redeliveryPolicy", "redeliveryPolicyMap", "redeliveryPolicyEntries", "redeliveryPlugin", "broker",
    "destinationPolicy", "policyMap", "policyEntries", "policyEntry", "deadLetterStrategy", "plugins",
    "connectionFactory", "discardingDLQBrokerPlugin",
})  # fmt: skip
_SPRING = ("http://www.springframework.org/schema/beans", "http://www.osgi.org/xmlns/blueprint/")
_PLUGIN = ("fallbackToDeadLetter", "sendToDlqIfMaxRetriesExceeded")
_CAMEL = "camel.apache.org"
_ACTIVEMQ = ("activemq.apache.org", "activemq.org")


def is_classic(root: Element) -> bool:
    """True if this looks like a file for ActiveMQ Classic, or for its client."""
    return any(
        element.tag in _OURS
        or element.namespace.startswith(_SPRING)
        or any(host in element.namespace for host in _ACTIVEMQ)
        or (element.tag in ("beans", "bean") and not element.namespace)
        for element in root.walk()
        if "artemis" not in element.namespace
    )


def read_classic(root: Element, notes: Notes) -> tuple[RedeliveryPolicyMap, dict[str, str], ClientSettings]:
    """Return the policies of a file, its dead-letter options, and its clients' settings.

    Raises ConfigurationError, with the line.
    """
    beans = Beans(root)
    reader = PolicyReader(beans, notes)
    clients: list[Policies] = []
    plugins: list[Policies] = []
    for element in root.walk():
        kind = beans.type_of(element)
        if _CAMEL in element.namespace:
            _camel(element, notes)
        elif kind == "redeliveryPlugin":
            plugins.append(_plugin(element, beans, reader, notes))
        elif kind.lower().endswith(CLIENTS):
            clients.append(_client(element, beans, reader, notes))
        elif element.tag == "import":
            resource = element.attributes.get("resource", "")
            # Each distribution of Classic imports its web console.
            console = resource.rpartition("/")[2] == "jetty.xml"
            notes.add(element.line, f"import {resource}", "other files are not read", left_out=not console)
    clients += _loose(root, beans, reader)
    chosen = _chosen([found for found in clients if found.any], plugins, notes)
    policies = RedeliveryPolicyMap(chosen.entries, default=chosen.default)
    return policies, dead_letters(root, beans, reader, notes), client_settings(root, beans)


def _camel(element: Element, notes: Notes) -> None:
    if element.tag in ("redeliveryPolicy", "redeliveryPolicyProfile"):
        notes.add(element.line, element.tag, "Camel's own redelivery of exchanges, not of messages; left out")


def _plugin(element: Element, beans: Beans, reader: PolicyReader, notes: Notes) -> Policies:
    found = Policies(element.line)
    for name, item in beans.properties(element).items():
        if name == "redeliveryPolicyMap" and item.beans:
            found = reader.map(item.beans[0])
        elif name in _PLUGIN:
            continue  # read as dead-letter options
        else:
            hint = near_miss(name, _PLUGIN)
            notes.add(item.line, name, f"not known in a redeliveryPlugin; left out{hint}", left_out=True)
    found.line = element.line
    return found


def _client(element: Element, beans: Beans, reader: PolicyReader, notes: Notes) -> Policies:
    """Return the policies of a connection factory."""
    properties = beans.properties(element)
    found, url = Policies(element.line), properties.get("brokerURL")
    of_url = found.default = _from_uri(url.value, notes) if url is not None and url.text else None
    mapped = properties.get("redeliveryPolicyMap")
    if mapped is not None and _there(mapped, notes):
        found = reader.map(mapped.beans[0])
        found.default = found.default or of_url
    single = properties.get("redeliveryPolicy")
    if single is not None and _there(single, notes):
        policy = reader.policy(single.beans[0])
        if mapped is not None and found.default not in (None, policy):
            notes.add(found.line, "defaultEntry", f"the redeliveryPolicy on line {single.line} is taken")
        found.default = policy
    if url is not None and of_url not in (None, found.default):
        notes.add(url.line, "brokerURL", "the policy of the factory is taken; that of the URL is left out")
    found.line = element.line
    return found


def _there(item: Property, notes: Notes) -> bool:
    if not item.beans:
        notes.add(
            item.line, f"{item.name}={item.text}", "refers to a bean that is not in this file; left out",
            left_out=True,
        )  # fmt: skip
    return bool(item.beans)


def _from_uri(value: Value, notes: Notes) -> RedeliveryPolicy | None:
    """Return the policy that a `brokerURL` sets. The addresses have no effect here, and are not shown."""
    from redelivery.uri.parser import parse_uri  # noqa: PLC0415

    query = value.text.rpartition("?")[2] if "?" in value.text else ""
    prefix = "jms.redeliverypolicy."
    options = [
        f"{name}={known.text}"
        for name, _, text in (item.partition("=") for item in query.split("&"))
        if name.lower().startswith(prefix)
        and (known := settled(name, Value(text, value.line), notes)) is not None
    ]
    if not options:
        return None
    # Qpid JMS has options that ActiveMQ's client refuses.
    scheme = "amqp" if "amqp://" in value.text or "amqps://" in value.text else "tcp"
    try:
        policy = parse_uri(f"{scheme}://x?{'&'.join(options)}").policies.default
    except ConfigurationError as error:
        raise notes.error(value.line, error) from None
    assert isinstance(policy, RedeliveryPolicy)
    return policy


def _loose(root: Element, beans: Beans, reader: PolicyReader) -> list[Policies]:
    """Return the policies that nothing in the file refers to: a program uses them."""
    found: list[Policies] = []
    loose = Policies(0)
    for element in root.walk():
        kind = beans.type_of(element)
        if id(element) in reader.read or beans.is_holder(element) or _CAMEL in element.namespace:
            continue
        if kind == "redeliveryPolicyMap":
            found.append(reader.map(element))
        elif kind == "redeliveryPolicy" and element.attributes.get("abstract") != "true":
            loose.line = loose.line or element.line
            if reader.place(element) is not None:
                reader.entry(element, loose)
            elif loose.default is None:
                loose.default = reader.policy(element)
            else:
                found.append(Policies(element.line, reader.policy(element)))
    return [loose, *found]


def _chosen(clients: list[Policies], plugins: list[Policies], notes: Notes) -> Policies:
    """Return the policies to use: the first client's, unless that client leaves redelivery to the plugin."""
    plugin = next((found for found in plugins if found.any), None)
    client = clients[0] if clients else None
    left_to_plugin = client is not None and (
        not client.entries and client.default is not None and client.default.maximum_redeliveries == 0
    )
    chosen = plugin if plugin is not None and (client is None or left_to_plugin) else client
    for found in (*clients, *plugins):
        if found is not chosen and found.any:
            assert chosen is not None
            why = f"the policies on line {chosen.line} are taken; these are left out"
            notes.add(found.line, "redelivery policies", why)
    if plugin is not None:
        notes.add(
            plugin.line, "redeliveryPlugin",
            "while the broker has it, it redelivers a message after a poison acknowledgement instead of "
            "dead-lettering it; use redelivery.deadLetter=forward, or remove the plugin",
        )  # fmt: skip
    if chosen is None:
        notes.add(1, "redelivery policies", "the file has none; the Java client's default applies")
        return Policies(0)
    return chosen
