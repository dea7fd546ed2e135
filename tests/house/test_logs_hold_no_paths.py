"""Stored data names no module of this library: files of an older version can be read after its modules have moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.needs import need

need("pyarrow")
need("pyspark")

from tests.spark.query import Query, fails_bad
from tests.spark.tables import read

from redelivery_spark.wal.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from redelivery.testing import MemoryBroker

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

OURS = (b"redelivery_spark.", b"redelivery.core", b"redelivery_memory.")
KINDS = {"failures", "rows", "s0", "s1", "state", "verdicts", "drain.json", "orders"}
"""The folders of a query's write-ahead log, and the two kinds of files of a drain."""
FAST = "jms.redeliveryPolicy.maximumRedeliveries=2&jms.redeliveryPolicy.redeliveryDelay=2000"


def naming_modules(files: Mapping[str, bytes]) -> list[str]:
    """Return the files that name a module of this library."""
    return [name for name, content in files.items() if any(path in content for path in OURS)]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Return the content of files that were written into write-ahead logs, also of those that are removed later."""
    files: dict[str, bytes] = {}
    publish = Folder.publish

    def noted(folder: Folder, name: str, *content: bytes | memoryview, durable: bool = True) -> bool:
        files[name] = b"".join(content)
        return publish(folder, name, *content, durable=durable)

    monkeypatch.setattr(Folder, "publish", noted)
    return files


def test_no_log_names_a_module(
    redelivery_broker: MemoryBroker, written: dict[str, bytes], tmp_path: Path
) -> None:
    """A write-ahead log with records of each kind, and a drain, name no module of this library."""
    for body in ("good", "bad", "flaky", "killer", "late"):
        redelivery_broker.send("orders", body)
    how = {"isolate": "split", "isolateAfter": 1}
    with Query(
        redelivery_broker, tmp_path / "wal", uri=f"{FAST}&redelivery.maximumDeferrals=2", **how
    ) as query:
        query.drain(fails_bad, evidence=True)
    redelivery_broker.send("orders", "drained")
    assert read(redelivery_broker, mode="drain", destination="orders", walDir=str(tmp_path / "drain"))
    kinds = {name.partition("/")[0].partition("-")[0] for name in written}
    assert kinds >= KINDS
    assert naming_modules(written) == []
    at_rest = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(at_rest) > 5
    assert naming_modules(at_rest) == []


def test_a_module_in_a_log_is_seen() -> None:
    """A pickled class, which has the path of its module, is found."""
    assert naming_modules({"a": b"cdataclasses\nredelivery_spark.wal.records\nRefusal", "b": b"{}"}) == ["a"]
