"""`write_once` and the folder of one query: what another checkpoint has written is not replaced."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from redelivery.errors import ConfigurationError
from redelivery_spark import write_once


class Place:
    """Java's `Path` on this machine, with the calls of its file system that are made."""

    def __init__(self, folder: Place | str, name: str = "") -> None:
        self.path: Path = Path(folder.path if isinstance(folder, Place) else folder, name)

    def getFileSystem(self, _configuration: object) -> type[Place]:
        return Place

    def getName(self) -> str:
        return self.path.name

    @staticmethod
    def exists(place: Place) -> bool:
        return place.path.exists()

    @staticmethod
    def listStatus(place: Place) -> list[SimpleNamespace]:
        return [SimpleNamespace(getPath=lambda each=each: Place(str(each))) for each in place.path.iterdir()]

    @staticmethod
    def create(place: Place) -> Any:
        place.path.parent.mkdir(parents=True, exist_ok=True)
        return place.path.open("x")


class Batch:
    """A batch of a query with this id, or of none; it notes the folders that are written."""

    def __init__(self, query: str | None, *, connect: bool = False) -> None:
        self.written: list[str] = []
        java = SimpleNamespace(sessionState=lambda: SimpleNamespace(newHadoopConf=lambda: None))
        hadoop = SimpleNamespace(fs=SimpleNamespace(Path=Place))
        apache = SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop))
        self.sparkSession = SimpleNamespace(
            sparkContext=SimpleNamespace(getLocalProperty={"sql.streaming.queryId": query}.get),
            _jvm=SimpleNamespace(org=apache),
            **({} if connect else {"_jsparkSession": java}),
        )
        self.write = SimpleNamespace(mode=self._mode)

    def _mode(self, mode: str) -> SimpleNamespace:
        assert mode == "overwrite"
        return SimpleNamespace(parquet=self.written.append)


def write(query: str | None, path: Path, number: int, *, connect: bool = False) -> list[str]:
    """Write a batch of a query, and return the folders that were written."""
    batch = Batch(query, connect=connect)
    write_once(batch, f"{path}/", number)  # type: ignore[arg-type]
    return batch.written


def test_a_query_goes_on_in_its_folder(tmp_path: Path) -> None:
    """A query with its old checkpoint writes further batches, and the same one again."""
    for number in (0, 1, 1):
        assert write("first", tmp_path, number) == [f"{tmp_path}/batch_id={number}"]
    assert [each.name for each in tmp_path.iterdir()] == ["_written_by"]


def test_a_new_checkpoint_replaces_no_batch(tmp_path: Path) -> None:
    """A query with a new checkpoint is refused, before it replaces a batch of the old one, at each start."""
    write("first", tmp_path, 0)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"another query .*\(id first .* a new path") as error:
            write("second", tmp_path, 0)
        assert error.value.option == "path"
    assert write("first", tmp_path, 1) == [f"{tmp_path}/batch_id=1"]


def test_without_a_query_nothing_is_marked(tmp_path: Path) -> None:
    """A batch outside of a query, and one of Spark Connect, are written without a mark."""
    assert write(None, tmp_path, 7) == [f"{tmp_path}/batch_id=7"]
    assert write("first", tmp_path, 8, connect=True) == [f"{tmp_path}/batch_id=8"]
    assert list(tmp_path.iterdir()) == []
