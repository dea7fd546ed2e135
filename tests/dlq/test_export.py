"""Files of dead letters."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.needs import need

import redelivery
from redelivery.dlq import export

if TYPE_CHECKING:
    from pathlib import Path

    from redelivery import DeadLetterQueue

parquet = need("pyarrow.parquet")


@pytest.mark.ci("2,500 dead letters: 0.3 s")
def test_parquet_of_many(
    tools: DeadLetterQueue, bury: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups are bounded by rows and by bytes; the rows read back are the same, in order."""
    for number in range(2500):
        bury(str(number), origin="queue://orders", cause="ValueError: \udc80")
    file = tmp_path / "dead.parquet"
    assert tools.export(file, "parquet") == 2500
    found = parquet.ParquetFile(file)
    assert [found.metadata.row_group(n).num_rows for n in range(found.num_row_groups)] == [1000, 1000, 500]
    assert found.schema_arrow.names == list(export.COLUMNS)
    assert [row["body"] for row in found.read(["body"]).to_pylist()] == [b"%d" % n for n in range(2500)]
    assert found.read_row_group(0, ["cause"]).to_pylist()[0] == {"cause": "ValueError: \\udc80"}
    monkeypatch.setattr(export, "BYTES", 1000)
    assert tools.export(file, "parquet") == 2500
    assert parquet.ParquetFile(file).num_row_groups > 5


def test_parquet_of_odd_ones(tools: DeadLetterQueue, bury: Any, tmp_path: Path) -> None:
    """Values that no column can have become text, or nothing; no dead letters make a file with columns."""
    file = tmp_path / "dead.parquet"
    assert tools.export(file, "parquet") == 0
    assert parquet.read_table(file).num_rows == 0
    bury(b"\xff\0", raw=b"\xff", n=7, none=None, redeliveryCount="9" * 40,
        redeliveryFirstFailure="2026-11-22T10:00:00+01:00",
    )  # fmt: skip
    assert tools.export(file, "parquet") == 1
    (row,) = parquet.read_table(file).to_pylist()
    assert (row["body"], row["redelivery_count"], row["whole"]) == (b"\xff\0", None, True)
    assert row["first_failure"] == datetime(2026, 11, 22, 9, tzinfo=UTC)
    assert dict(row["headers"])["raw"] == "\\xff"


def test_a_half_file_never_has_the_name(
    tools: DeadLetterQueue, bury: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed export leaves the old file, and no other."""
    for _ in range(3):
        bury()
    for form in export.FORMATS:
        file = tmp_path / f"dead.{form}"
        file.write_text("before")

        def fail(done: int) -> None:
            if done == 2:
                raise redelivery.TransportError("gone")

        with pytest.raises(redelivery.TransportError):
            tools.export(file, form, progress=fail)
        assert file.read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 2
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "dead.jsonl")
    assert tools.export(link) == 3
    assert link.is_symlink()
    assert (tmp_path / "dead.jsonl").read_text().count("\n") == 3
    with pytest.raises(FileNotFoundError):
        tools.export(tmp_path / "none" / "dead.jsonl")


def test_parquet_without_pyarrow(
    tools: DeadLetterQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet without pyarrow is refused with the package to install, before a file is created."""

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(export, "import_module", missing)
    with pytest.raises(redelivery.ConfigurationError, match=r"redelivery\[parquet\]"):
        tools.export(tmp_path / "dead.parquet", "parquet")
    assert list(tmp_path.iterdir()) == []


def test_an_export_is_for_its_owner(tools: DeadLetterQueue, bury: Any, tmp_path: Path) -> None:
    """A new file has mode 0600, whatever the umask; a replaced file keeps its mode."""
    bury()
    for old in (None, 0o600, 0o640):
        file = tmp_path / f"{old}.jsonl"
        if old is not None:
            file.touch()
            file.chmod(old)
        assert tools.export(file) == 1
        assert stat.S_IMODE(file.stat().st_mode) == (old or 0o600)


def test_anothers_link_in_a_shared_directory(
    tools: DeadLetterQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory like /tmp, an export refuses another user's link, and follows one's own."""
    shared, target = tmp_path / "tmp", tmp_path / "target"
    shared.mkdir()
    shared.chmod(0o1777)
    target.write_text("old")
    (shared / "out").symlink_to(target)
    assert tools.export(shared / "out") == 0
    assert target.read_text() == ""
    lstat = os.lstat(shared / "out")
    strangers = os.stat_result([*lstat[:4], lstat.st_uid + 1, *lstat[5:]])
    monkeypatch.setattr(type(target), "lstat", lambda _: strangers)
    with pytest.raises(OSError, match="another user's link"):
        tools.export(shared / "out")
