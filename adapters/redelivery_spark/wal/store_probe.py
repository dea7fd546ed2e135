"""Test of a store: many accept the second creation of a name without an error, and cannot hold a log."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["why_not"]

_AT_ONCE = 8
_FOLDER = "probe"


def why_not(store: WalStore) -> str | None:
    """Return what a store lacks, or None: it creates names exclusively, in sequence and concurrently."""
    one, many = (f"{_FOLDER}/{uuid.uuid4().hex}" for _ in range(2))
    store.prepare(_FOLDER)
    try:
        return _in_turn(store, one) or _at_once(store, many)
    finally:
        store.remove([one, many])


def _in_turn(store: WalStore, name: str) -> str | None:
    first, second = uuid.uuid4().bytes, uuid.uuid4().bytes
    if not store.publish(name, first, durable=False):
        return "a new name cannot be created there"
    if store.publish(name, second, durable=False) or store.read(name) != first:
        return "a name can be created twice there"
    if name not in store.names(_FOLDER):
        return "a new name is not listed there"
    return None


def _at_once(store: WalStore, name: str) -> str | None:
    """Create one name concurrently: a store that checks first and writes later lets in more than one."""
    contents = [uuid.uuid4().bytes for _ in range(_AT_ONCE)]
    start = Barrier(_AT_ONCE)

    def create(content: bytes) -> bool:
        start.wait()
        return store.publish(name, content, durable=False)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        won = [content for content, first in zip(contents, pool.map(create, contents), strict=True) if first]
    if len(won) != 1 or store.read(name) != won[0]:
        return f"of {_AT_ONCE} concurrent creations of a name {len(won)} succeeded"
    return None
