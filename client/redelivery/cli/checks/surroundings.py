"""Checks of the machine: packages, the ledger's file, the limit of open files. Nothing is created or changed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from redelivery.cli.checks.finding import fail, note, ok, warn
from redelivery.cli.exit_codes import MISCONFIGURED
from redelivery.errors import ConfigurationError, LedgerError
from redelivery.ledger import ledger_at
from redelivery.ledger.files import check_local
from redelivery.ledger.sqlite_ledger import look
from redelivery.registry import adapter_for

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery.cli.checks.finding import Finding

__all__ = ["descriptors", "installed", "ledger"]

_LIBRARIES = {
    "stomp": "stomp.py", "stomp+ssl": "stomp.py", "amqp": "python-qpid-proton", "amqps": "python-qpid-proton"
}  # fmt: skip
# Seconds to wait for another process's write, which takes milliseconds.
LOCKED = 1.0
# A connection takes two or three, a ledger four for each process that uses it; the rest is the application's.
ENOUGH = 256


def installed(scheme: str) -> Finding:
    """Return the versions of the packages that serve a scheme, or the package that is missing."""
    try:
        adapter_for(scheme)
    except ConfigurationError as error:
        return fail("installed", str(error), MISCONFIGURED)
    packages = ["redelivery", *([_LIBRARIES[scheme]] if scheme in _LIBRARIES else [])]
    return ok("installed", ", ".join(f"{name} {_version(name)}" for name in packages))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed as a package)"


def ledger(url: str | None) -> Finding:
    """Return whether attempts can be counted durably: the file, its file system, its lock."""
    if url is None:
        return note("ledger", "none: attempts are counted in memory, and begin at 0 after a restart")
    try:
        path: Path = getattr(ledger_at(url, "redelivery.ledger"), "path")  # noqa: B009 - not of the interface
        return _file(path)
    except (LedgerError, ConfigurationError) as error:
        return fail("ledger", str(error), MISCONFIGURED)
    except (sqlite3.Error, OSError) as error:
        return fail("ledger", f"{url}: {error}: look at the file and its owner", MISCONFIGURED)


def _file(path: Path) -> Finding:
    folder = path.absolute().parent
    if not folder.is_dir():
        return fail("ledger", f"{path}: its directory does not exist: make {folder}", MISCONFIGURED)
    check_local(path)
    if not os.access(folder, os.W_OK | os.X_OK):
        return fail(
            "ledger", f"{path}: no permission to write in {folder}: change its owner or mode", MISCONFIGURED
        )
    if not path.exists():
        return ok("ledger", f"{path} is made at the first start, on a local disk")
    if not os.access(path, os.R_OK | os.W_OK):
        return fail(
            "ledger", f"{path}: no permission to read and write it: change its owner or mode", MISCONFIGURED
        )
    look(path, LOCKED, None)
    if _busy(path):
        return fail(
            "ledger",
            f"{path} is locked by another process for more than {LOCKED:g} s: end that one; a consumer stops "
            "after 5 s without the ledger",
        )
    return ok("ledger", f"{path} is on a local disk, and free")


def _busy(path: Path) -> bool:
    """True if another process keeps it locked. Nothing is written."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    with closing(sqlite3.connect(address, timeout=LOCKED, uri=True, isolation_level=None)) as sql:
        try:
            sql.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        sql.execute("ROLLBACK")
    return False


def descriptors() -> Finding | None:
    """Return how many files this process may have open; None: the system has no such limit."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= ENOUGH:
        many = "any number of" if soft == resource.RLIM_INFINITY else f"{soft}"
        return ok("files", f"{many} files may be open")
    up = "any number is" if hard == resource.RLIM_INFINITY else f"up to {hard} are"
    return warn("files", f"only {soft} files may be open at once: raise it with ulimit -n ({up} allowed)")
