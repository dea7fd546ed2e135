"""A PostgreSQL server for one test, on a socket in a folder, if PostgreSQL is installed."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from integration.brokers.process import ServerProcess
from integration.brokers.toolchain import run
from integration.running import Running

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Postgres", "missing"]

DEBIAN = Path("/usr/lib/postgresql")
# PostgreSQL refuses to run as root. Debian's package creates this user.
USER = "postgres"


def _tools() -> Path | None:
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else sorted(DEBIAN.glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


def missing() -> str | None:
    """Return why it cannot run here, or None."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed (the extra test-all)"
    return "no PostgreSQL server is installed" if _tools() is None else None


class Postgres(Running):
    """A server; psycopg connects with `conninfo`. Commits are not flushed: tests kill processes, not the machine."""

    def __init__(self) -> None:
        tools = _tools()
        assert tools is not None, "see missing()"
        self._folder = Path(tempfile.mkdtemp(prefix="redelivery-pg-"))
        root = os.geteuid() == 0
        if root:
            shutil.chown(self._folder, USER)
        prefix = ["runuser", "-u", USER, "--"] if root else []
        user = [
            *prefix,
            str(tools / "initdb"),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-D",
            str(self._folder / "data"),
        ]
        run(user, "initdb")
        arguments = ["-D", str(self._folder / "data"), "-k", str(self._folder), "-c", "listen_addresses="]
        self._server = ServerProcess(
            [*prefix, str(tools / "postgres"), *arguments, "-c", "fsync=off"],
            log=self._folder.with_suffix(".log"),
            ready="ready to accept connections",
        )
        self.conninfo = f"host={self._folder} user=postgres dbname=postgres"

    def start(self) -> Self:
        """Start it."""
        self._server.start()
        return self

    def close(self) -> None:
        """End it, and remove its data."""
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.with_suffix(".log").unlink(missing_ok=True)

    def empty(self, *statements: str) -> str:
        """Create a new database with these statements, and return its connection string."""
        import psycopg  # noqa: PLC0415 - only where there is a server

        name = f"d{os.urandom(6).hex()}"
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(f"create database {name}")
        conninfo = self.conninfo.replace("dbname=postgres", f"dbname={name}")
        with psycopg.connect(conninfo) as connection:
            for statement in statements:
                connection.execute(statement)
        return conninfo
