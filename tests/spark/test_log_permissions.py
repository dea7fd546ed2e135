"""Permissions of the log: for the user of the query alone, or for a group that somebody has chosen."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

import pytest
from tests.spark.query import Query, fails_bad
from tests.spark.tables import fill
from tests.spark.tables import read as read_batch

from redelivery.errors import ConfigurationError
from redelivery_spark.executors.crumbs import TaskIdentity, crumb_of
from redelivery_spark.wal.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from redelivery.testing import MemoryBroker


@pytest.fixture(autouse=True, params=[0o022, 0o000, 0o077], ids="umask{:03o}".format)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(root: Path) -> tuple[set[str], set[str]]:
    """Return the permission bits of all files and folders."""
    found = [root, *root.rglob("*")]
    files = {oct(stat.S_IMODE(path.stat().st_mode)) for path in found if path.is_file()}
    return files, {oct(stat.S_IMODE(path.stat().st_mode)) for path in found if path.is_dir()}


def leave_files(broker: MemoryBroker, query: Query) -> None:
    """Leave files of all kinds."""
    fill(broker, 3)
    broker.send("orders", "bad")
    query.step(fails_bad)
    query.records.fail("no")
    query.plan()
    with crumb_of(query.store, TaskIdentity(1), "x") as crumb:
        crumb.keep()
    query.die()


def test_a_log_is_for_its_user_alone(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path
) -> None:
    """Files are 0600 and folders 0700 under any umask: they hold whole messages."""
    leave_files(redelivery_broker, make_query())
    assert modes(tmp_path / "wal") == ({"0o600"}, {"0o700"})


def test_a_log_of_a_group(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path
) -> None:
    """In a folder with 2770 all is for the group as well, as executors of another user need it."""
    (tmp_path / "wal").mkdir()
    (tmp_path / "wal").chmod(0o2770)
    leave_files(redelivery_broker, make_query())
    files, folders = modes(tmp_path / "wal")
    assert folders == {"0o2770"}
    # A crumb is for the user of its task alone.
    assert files == {"0o600", "0o660"}


def test_a_drain_is_for_its_user_alone(redelivery_broker: MemoryBroker, tmp_path: Path) -> None:
    """A drain and all folders above it that are made for it are closed, too."""
    fill(redelivery_broker, 3)
    read_batch(redelivery_broker, mode="drain", destination="orders", walDir=str(tmp_path / "a" / "wal"))
    assert modes(tmp_path / "a") == ({"0o600"}, {"0o700"})


def test_a_log_of_an_earlier_version_is_closed(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path
) -> None:
    """The folders of an open log are closed at the next start; the folder that somebody made for it stays as it is."""
    leave_files(redelivery_broker, make_query())
    for path in (tmp_path / "wal", tmp_path / "wal" / "s1", tmp_path / "wal" / "state"):
        path.chmod(0o755)
    make_query().start()
    assert stat.S_IMODE((tmp_path / "wal").stat().st_mode) == 0o755
    assert modes(tmp_path / "wal" / "s1")[1] == modes(tmp_path / "wal" / "state")[1] == {"0o700"}


@pytest.mark.parametrize("call", ["read", "names", "publish"])
def test_an_executor_of_another_user_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A process that may not read or write the log says as which user it tried, and what to do."""
    store = Folder(str(tmp_path))

    def refuse(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    monkeypatch.setattr("redelivery_spark.wal.folder.os.listdir", refuse)
    monkeypatch.setattr("redelivery_spark.wal.folder._new", refuse)
    words = rf"walDir={re.escape(str(tmp_path))}: user {os.geteuid()} may not use .*chmod 2770 before the first start"
    arguments = {"read": ("x",), "names": ("x",), "publish": ("x", b"")}[call]
    with pytest.raises(ConfigurationError, match=words):
        getattr(store, call)(*arguments)
