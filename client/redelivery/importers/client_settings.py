"""Settings of connection factories and destinations in a client's XML that are no policies: URLs and prefetch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redelivery.importers.imported import ClientSettings, Prefetch, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redelivery.importers.spring_beans import Beans, Property
    from redelivery.importers.xml_positions import Element

__all__ = ["CLIENTS", "client_settings"]

CLIENTS = ("connectionfactory", "component", "activemqconfiguration")
"""End of the type of a connection factory's bean, in lower case."""
_READ_ELSEWHERE = frozenset({"id", "name", "brokerURL", "redeliveryPolicy", "redeliveryPolicyMap"})
_PREFETCH = re.compile(
    r"([^\s?{}]{1,200})\?(?:[^\s?]{0,400}&)?(?:destination\.)?consumer\.prefetchSize=([0-9]{1,9})"
)


def client_settings(root: Element, beans: Beans) -> ClientSettings:
    """Return the settings below `root`."""
    urls: dict[Value, None] = {}
    others: tuple[tuple[str, Value], ...] = ()
    for element in root.walk():
        if beans.type_of(element).lower().endswith(CLIENTS):
            properties = beans.properties(element)
            found = properties.get("brokerURL")
            if found is not None and found.text and found.text.strip():
                others = others if urls else tuple(_others(properties, beans))
                urls[Value(found.text.strip(), found.line)] = None
    return ClientSettings(tuple(urls), others, tuple(_prefetches(root)))


def _others(properties: Mapping[str, Property], beans: Beans) -> Iterator[tuple[str, Value]]:
    """Yield the properties of a factory that have a text, and those of its prefetch policy."""
    for name, item in properties.items():
        if name in _READ_ELSEWHERE:
            continue
        if item.text is not None:
            yield name, item.value
        elif name == "prefetchPolicy" and item.beans:
            inner = beans.properties(item.beans[0]).items()
            yield from ((f"{name}.{part}", one.value) for part, one in inner if one.text is not None)


def _prefetches(root: Element) -> Iterator[Prefetch]:
    for element in root.walk():
        for text in (*element.attributes.values(), element.text):
            for found in _PREFETCH.finditer(text):
                yield Prefetch(found[1].rpartition("://")[2].rpartition(":")[2], int(found[2]), element.line)
