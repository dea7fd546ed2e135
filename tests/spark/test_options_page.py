"""The table of the source's options in the documentation is made from the one that is read by, and cannot drift."""

from __future__ import annotations

from pathlib import Path

import pytest

from redelivery_spark.batch.read_columns import shown_schema
from redelivery_spark.options.batch_options import read_batch_options
from redelivery_spark.options.spark_option import TABLE, SparkOption
from redelivery_spark.schema import COLUMNS, ERROR, TEXT

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")


def row_of(option: SparkOption) -> str:
    """Return the row of an option."""
    takes = " ".join(f"`{each}`" for each in option.choices) or option.kind
    return f"| `{option.name}` | {', '.join(option.uses)} | {takes} | {option.default} | {option.doc} |"


@pytest.mark.parametrize("option", TABLE, ids=lambda option: option.name)
def test_every_option_is_on_the_page(option: SparkOption) -> None:
    """Each option stands there with what it is for, takes, and is by default."""
    assert row_of(option) in PAGE


def test_every_column_is_on_the_page() -> None:
    """Those of messages, and those of dead letters."""
    dead = shown_schema(read_batch_options({"url": "memory://b"})).names
    for name in [*(field.name for field in COLUMNS), TEXT, ERROR, *dead]:
        assert f"`{name}`" in PAGE


if __name__ == "__main__":
    print("\n".join(map(row_of, TABLE)))
