"""File of the write-ahead log with a checksum: nothing that another process has written is believed without it.

A file begins with a line of 64 bytes, which has the length of the rest, and a CRC-32 of the file's name in the log and
the rest. A damaged bit, block or end, or a file in the place of another one, is therefore an error that names the file,
and never another row. The checksum guards against disks, power cuts and mistakes. It does not guard
against a program that may write into the log: such a program can write any message.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

from redelivery.errors import RedeliveryError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redelivery_spark.wal.wal_store import WalStore

__all__ = [
    "HEAD", "FileMissing", "LogDamaged", "damaged", "line_of", "old_line", "publish_checked", "read_checked",
    "read_json",
]  # fmt: skip

logger = logging.getLogger("redelivery.spark")
HEAD = 64
"""Bytes of the first line: a multiple of 8, so that Arrow's buffers keep their alignment."""
# How files of earlier versions begin: Arrow's and JSON. No single bit makes one of them of the first line.
_UNCHECKED = (b"ARROW1", b"{")
# How files of earlier versions begin whose checksum does not have their name.
_NAMELESS = b"redelivery-wal 1 "
_LOST = {
    "state": "it says which messages are done, and which wait",
    "rows": "it has the only copy of messages that wait for their redelivery",
    "verdicts": "it says which messages of a batch have failed",
    "failures": "it only counts a failure of a batch",
    "drain.json": "it says of which broker the drain is",
}
# Of the segments of lanes and drains.
_SEGMENT = "it has the only copy of messages that the broker has dropped"
_warned: set[str] = set()


class FileMissing(RedeliveryError):
    """A file of the log is gone."""


class LogDamaged(RedeliveryError):
    """A file of the log is not what was written. Another start finds the same."""


def damaged(store: WalStore, name: str, why: str) -> LogDamaged:
    """Return the error about a file that cannot be believed."""
    folder = name.partition("/")[0]
    return LogDamaged(
        f"walDir={store.url}: {name} is damaged ({why}); {_LOST.get(folder, _SEGMENT)}; put back a copy of the file, "
        "or see docs/spark/damaged-log.md"
    )


def publish_checked(store: WalStore, name: str, *content: bytes | memoryview, durable: bool = True) -> bool:
    """Create a file of these pieces atomically, with its checksum. Return False if another process was first."""
    return store.publish(name, line_of(name, *content), *content, durable=durable)


def read_checked(store: WalStore, name: str, *, may_be_empty: bool = False) -> memoryview | None:
    """Return the content of a file, or None if it is gone.

    Files of earlier versions have no checksum, or one that does not have their name. They are read, and a warning is
    logged once in each process.

    Args:
        store: The log.
        name: Name of the file in it.
        may_be_empty: True for a file that is not durable: a power cut can leave its name alone, or zeros. It is then as
            if it were gone, and a warning is logged.

    Raises:
        LogDamaged: The file is not what was written.
    """
    content = store.read(name)
    if content is None:
        return None
    if may_be_empty and not content.strip(b"\0"):
        logger.warning(
            "walDir=%s: %s is empty, as a power cut leaves a file; it counts as missing", store.url, name
        )
        return None
    whole = memoryview(content)
    if content.startswith(_UNCHECKED):
        _warn(store)
        return whole
    nameless = content.startswith(_NAMELESS)
    first_line = old_line if nameless else partial(line_of, name)
    if content[:HEAD] != first_line(whole[HEAD:]):
        raise damaged(store, name, f"its {len(content)} bytes and its name do not match its checksum")
    if nameless:
        _warn(store)
    return whole[HEAD:]


def read_json(store: WalStore, name: str, *, may_be_empty: bool = False) -> Any:
    """Return the value in a file of JSON, or None if the file is gone; see `read_checked`. Raises LogDamaged."""
    content = read_checked(store, name, may_be_empty=may_be_empty)
    if content is None:
        return None
    try:
        return json.loads(bytes(content))
    except ValueError as error:
        raise damaged(store, name, f"no JSON: {error}") from None


def line_of(name: str, *content: bytes | memoryview) -> bytes:
    """Return the first line of the file of this name with these pieces: 64 bytes."""
    return _line(2, crc32(name.encode()), content)


def old_line(*content: bytes | memoryview) -> bytes:
    """Return the first line of a file with these pieces as earlier versions wrote it: the same for each name."""
    return _line(1, 0, content)


def _line(version: int, found: int, content: Iterable[bytes | memoryview]) -> bytes:
    size = 0
    for piece in content:
        found, size = crc32(piece, found), size + len(piece)
    return f"redelivery-wal {version} crc32={found:08x} bytes={size}".ljust(HEAD - 1).encode() + b"\n"


def _warn(store: WalStore) -> None:
    if store.url not in _warned:
        _warned.add(store.url)
        logger.warning(
            "walDir=%s: has files of an earlier version of redelivery, without a checksum or with one that does not "
            "have their name; damage to these, or one in the place of another, is not found; new files have both",
            store.url,
        )
