"""Location of a DataFrame's log in its columns, and after a selection of some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType
from tests.spark.frames import Frame, source

from redelivery.errors import ConfigurationError
from redelivery_spark.api.wal_location import handlers_of, marked, wal_dir_of

if TYPE_CHECKING:
    from pathlib import Path


def kept(frame: Frame, *names: str) -> Any:
    """Return a frame with some of the columns."""
    return Frame(StructType([frame.schema[name] for name in names]))


def test_the_place_and_the_first_column_say_it(tmp_path: Path) -> None:
    """The place and the first column each carry the location; a given walDir has precedence."""
    frame = source(tmp_path, "a")
    for names in (("_place",), ("timestamp", "_place"), ("message_id",)):
        assert wal_dir_of(kept(frame, *names), None, "x") == str(tmp_path)
    assert wal_dir_of(kept(frame, "timestamp"), "/given", "x") == "/given"
    with pytest.raises(ConfigurationError, match="x: the DataFrame does not carry its walDir"):
        wal_dir_of(kept(frame, "timestamp"), None, "x")


def test_handlers_are_noted(tmp_path: Path) -> None:
    """The marks of all handlers that have had the rows are noted; a schema without columns carries none."""
    frame = source(tmp_path, "a")
    twice = marked(marked(frame.schema, "/wal", ["aa"]), "/wal", ["aa", "bb"])
    assert handlers_of(kept(Frame(twice), "_place")) == ["aa", "bb"]
    assert handlers_of(kept(frame, "_place")) == []
    assert marked(StructType([]), "/wal").fields == []
