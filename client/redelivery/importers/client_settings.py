"""Settings of connection factories and destinations in a client's XML that are no policies: URLs and prefetch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redelivery.importers.imported import ClientSettings, Prefetch, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.importers.spring_beans import Beans
    from redelivery.importers.xml_positions import Element

__all__ = ["CLIENTS", "client_settings"]

CLIENTS = ("connectionfactory", "component", "activemqconfiguration")
"""End of the type of a connection factory's bean, in lower case."""
_PREFETCH = re.compile(
    r"([^\s?{}]{1,200})\?(?:[^\s?]{0,400}&)?(?:destination\.)?consumer\.prefetchSize=([0-9]{1,9})"
)


def client_settings(root: Element, beans: Beans) -> ClientSettings:
    """Return the settings below `root`."""
    urls: dict[Value, None] = {}
    for element in root.walk():
        if beans.type_of(element).lower().endswith(CLIENTS):
            found = beans.properties(element).get("brokerURL")
            if found is not None and found.text and found.text.strip():
                urls[Value(found.text.strip(), found.line)] = None
    return ClientSettings(tuple(urls), tuple(_prefetches(root)))


def _prefetches(root: Element) -> Iterator[Prefetch]:
    for element in root.walk():
        for text in (*element.attributes.values(), element.text):
            for found in _PREFETCH.finditer(text):
                yield Prefetch(found[1].rpartition("://")[2].rpartition(":")[2], int(found[2]), element.line)
