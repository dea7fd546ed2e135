"""The pages of the Spark source have its options, columns and reports, as the code has them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redelivery_spark.batch.read_columns import DEATH
from redelivery_spark.options.spark_option import TABLE, SparkOption
from redelivery_spark.schema import stream_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.query import Query

    from redelivery.testing import MemoryBroker

DOCS = Path(__file__).parents[2] / "docs"
OPTIONS, STREAM, BATCH, MONITOR = (
    (DOCS / "spark" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("options", "stream", "batch", "monitor")
)


def row_of(option: SparkOption) -> str:
    """Return the row of an option."""
    takes = " ".join(f"`{each}`" for each in option.choices) or option.kind
    return f"| `{option.name}` | {', '.join(option.uses)} | {takes} | {option.default} | {option.doc} |"


@pytest.mark.parametrize("option", TABLE, ids=lambda option: option.name)
def test_every_option_is_on_the_page(option: SparkOption) -> None:
    """Each option is on the page, with its uses, values and default."""
    assert row_of(option) in OPTIONS


def test_every_column_is_on_the_page() -> None:
    """A stream's columns are on its page, and those of dead letters on the page of batches."""
    for name in stream_schema(text=True, error=True).names:
        assert f"`{name}`" in STREAM
    for field in DEATH:
        assert f"`{field.name}`" in BATCH


def test_every_key_of_the_progress_is_on_the_page(
    make_query: Callable[..., Query], redelivery_broker: MemoryBroker
) -> None:
    """Each key of the source's report has a line on the page."""
    redelivery_broker.send("orders", "one")
    query = make_query()
    query.drain()
    for key in query.start().report() or ():
        assert f"`{key}`" in MONITOR


if __name__ == "__main__":
    print("\n".join(map(row_of, TABLE)))
