"""Crumbs: files that say which row each task is handling, and that survive the death of its process.

A crumb is a file of eight mapped bytes: the place of the row. Its task holds a lock on it, which ends with the process.
The task removes the crumb when it ends in any other way. A crumb without a lock is that of a process that died over its
row.

If walDir is a folder, crumbs are in the write-ahead log. With an object store they are in the temporary folder of the
machine, where only a process of the same machine finds them.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import stat
import struct
import tempfile
import uuid
import zlib
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext

from redelivery_spark.wal.folder import make_folder

if TYPE_CHECKING:
    from collections.abc import Generator

    from redelivery_spark.wal.places import Place
    from redelivery_spark.wal.wal_store import WalStore

__all__ = ["CRUMBS", "DEATHS", "Crumb", "TaskIdentity", "crumb_of", "died_over", "sweep", "this_task"]


# ---- Crumbs ----------------------------------------------------------------------------------------------

logger = logging.getLogger("redelivery.spark")
CRUMBS = "crumbs"
DEATHS = 2
"""Processes that die over one row before it is refused. One can be an accident: a host that goes down."""
_EMPTY = 0
_warned: set[str] = set()


class Crumb:
    """Crumb of one task. Without a file, because the file system has no locks, it records nothing."""

    def __init__(self, content: mmap.mmap | None) -> None:
        self._content = content
        self.kept = False

    def handling(self, at: Place) -> None:
        """Record the row that is being handled."""
        if self._content is not None:
            struct.pack_into("<q", self._content, 0, at)

    def rest(self) -> None:
        """Record that no row is being handled."""
        self.handling(_EMPTY)

    def keep(self) -> None:
        """Leave the crumb behind, as if the process had died here."""
        self.kept = True


class _Name(NamedTuple):
    batch: int
    mark: str
    run: str
    stage: int

    @classmethod
    def read(cls, name: str) -> _Name | None:
        parts = name.split("-")
        with suppress(ValueError, IndexError):
            return cls(int(parts[0]), parts[1], parts[2], int(parts[3]))
        return None

    def new(self) -> str:
        return f"{self.batch:012d}-{self.mark}-{self.run}-{self.stage}-{uuid.uuid4().hex}"


@contextmanager
def crumb_of(store: WalStore, task: TaskIdentity, mark: str) -> Generator[Crumb]:
    """Give a task its crumb, and remove it at the end, unless it is kept."""
    folder = _folder(store)
    made = None if folder is None else _made(folder, _Name(task.batch, mark, task.run, task.stage).new())
    if made is None:
        yield Crumb(None)
        return
    handle, path = made
    with mmap.mmap(handle, 8) as content:
        crumb = Crumb(content)
        try:
            yield crumb
        finally:
            # In this order: while the crumb exists, it has a lock.
            if not crumb.kept:
                path.unlink(missing_ok=True)
            os.close(handle)


def died_over(store: WalStore, task: TaskIdentity, mark: str) -> dict[Place, int]:
    """Count the processes that have died over each row of a batch, with one handler.

    Spark can kill the process of a task whose rows it no longer needs, as after `limit`. Of the tasks in this run of
    the query, therefore, only earlier attempts of the same stage are counted.
    """
    folder = _folder(store)
    found: Counter[Place] = Counter()
    for path, name in _crumbs(folder):
        elsewhere = name.run != task.run or not task.run
        if (name.batch, name.mark) != (task.batch, mark) or not (elsewhere or name.stage == task.stage):
            continue
        at = _left_at(path)
        if at is not None and at != _EMPTY:
            found[at] += 1
    if folder is not None and store.local(CRUMBS) is None:
        _remove(folder, task.batch - 1)
    return dict(found)


def sweep(store: WalStore, upto_batch: int) -> None:
    """Remove the crumbs of batches up to this one: they are settled. An object store has none here."""
    local = store.local(CRUMBS)
    if local is not None:
        _remove(Path(local), upto_batch)


def _remove(folder: Path, upto: int) -> None:
    for path, name in _crumbs(folder):
        if name.batch <= upto:
            path.unlink(missing_ok=True)


def _crumbs(folder: Path | None) -> list[tuple[Path, _Name]]:
    try:
        names = [] if folder is None else os.listdir(folder)
    except OSError:
        return []
    read = ((name, _Name.read(name)) for name in names)
    return [(folder / name, found) for name, found in read if folder is not None and found is not None]


def _folder(store: WalStore) -> Path | None:
    """Return the folder of crumbs, or None if there can be none."""
    local = store.local(CRUMBS)
    try:
        if local is not None:
            folder = Path(local)
            make_folder(folder)
            return folder
        digest = blake2b(store.url.encode(), digest_size=8).hexdigest()
        folder = Path(tempfile.gettempdir()) / f"redelivery-crumbs-{os.getuid()}-{digest}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(f"{folder.name} in the temporary folder belongs to another user")
    except OSError as error:
        _warn(store.url, error)
        return None
    return folder


def _made(folder: Path, name: str) -> tuple[int, Path] | None:
    path = folder / name
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        _warn(str(folder), error)
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        # Written, not only extended: a full disk is then an error here, and not a signal at the first row.
        os.write(handle, bytes(8))
    except OSError as error:
        os.close(handle)
        path.unlink(missing_ok=True)
        _warn(str(folder), error)
        return None
    return handle, path


def _left_at(path: Path) -> Place | None:
    """Return the row in a crumb whose process has died; None: the process lives, or has removed its crumb."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        (at,) = struct.unpack("<q", os.read(handle, 8).ljust(8, b"\0"))
        return int(at)
    except OSError:
        return None
    finally:
        os.close(handle)


def _warn(where: str, error: OSError) -> None:
    """Log once in each process that crumbs are missing."""
    if where not in _warned:
        _warned.add(where)
        logger.warning(
            "%s: no file locks (%s); if the process dies over a message, the message is not identified, and its whole "
            "batch runs again",
            where,
            error.strerror or error,
        )


# ---- Task identity ---------------------------------------------------------------------------------------
# Batch and run of the query to which the task of this process belongs, as reported by Spark.


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """Identity of a streaming query's task.

    `batch`: Spark's number of the batch. `run`: a digest that differs for each start of the query, empty if Spark does
    not report it. `stage` and `partition`: Spark's numbers. `retried`: another attempt of the task has failed in the
    same job, or runs at the same time.
    """

    batch: int
    run: str = ""
    stage: int = 0
    partition: int = 0
    retried: bool = False


def this_task() -> TaskIdentity | None:
    """Return the identity of this process's task, or None outside of a streaming query."""
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or batch is None:
        return None
    # Spark names the job group of a query by the id of its run.
    run = context.getLocalProperty("spark.jobGroup.id") or ""
    digest = f"{zlib.crc32(run.encode()):08x}" if run else ""
    return TaskIdentity(
        int(batch), digest, context.stageId(), context.partitionId(), context.attemptNumber() > 0
    )
