"""`process`: the arguments and results of a handler, and the verdict on rows that fail."""

from __future__ import annotations

import functools
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType, TimestampType
from tests.spark.frames import Frame, cut, in_batch, places, source

from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery.handler_exceptions import Defer, Discard, Poison
from redelivery_spark.api.process import process
from redelivery_spark.wal.places import tag_of
from redelivery_spark.wal.records import Records
from redelivery_spark.wal.store import store_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


COUNT = StructType([StructField("n", IntegerType())])


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frame:
    """Three rows, a, b and c, of batch 3."""
    store_at(str(tmp_path)).prepare("verdicts")
    in_batch(monkeypatch, 3)
    return source(tmp_path, "a", "b", "c")


def refuses(*ids: str) -> Callable[[Any], object]:
    """Return a handler that raises over some rows, and returns the others."""

    def check(row: Any) -> object:
        if row["message_id"] in ids:
            raise ValueError(row["message_id"])
        return row

    return check


def refused(folder: Path) -> dict[str, str]:
    """Return the refused rows of the log, with their causes."""
    _, found = Records(store_at(str(folder))).settled_by({}, {1: 1})
    names = dict(zip(places(folder, *"abcdef"), "abcdef", strict=True))
    return {names[at]: of.cause for at, of in found.items()}


def made(frame: object) -> list[Any]:
    """Return the ids, or the only column, of a result."""
    assert isinstance(frame, Frame)
    return [next(iter(row.values())) for row in frame.collect()]


def apply(frame: object, handler: Callable[[Any], object], *more: Any, **named: Any) -> Any:
    """Call `process` with a frame that is no real DataFrame."""
    return process(frame, handler, *more, **named)  # type: ignore[arg-type]


def test_two_handlers_of_one_factory_have_a_verdict_each(rows: Frame, tmp_path: Path) -> None:
    """Chained handlers each refuse their own row: of one factory, lambdas of one function, partials, the same one
    again.
    """
    first = apply(rows, refuses("a"))
    assert made(apply(first, refuses("b"))) == ["c"]
    assert refused(tmp_path) == {"a": "ValueError: a", "b": "ValueError: b"}
    assert made(apply(first, refuses("a"))) == ["b", "c"]


def test_handlers_beside_each_other_have_a_verdict_each(rows: Frame) -> None:
    """Handlers in two actions of one batch have a verdict each: of other values, of other code, or with a name."""

    def check(wrong: str, row: Any) -> object:
        return refuses(wrong)(row)

    pairs: list[tuple[Callable[[Any], object], Callable[[Any], object]]] = [
        (refuses("a"), refuses("b")),
        (functools.partial(check, "a"), functools.partial(check, "b")),
        (lambda row: refuses("a")(row) and row, lambda row: refuses("b")(row) and row),
    ]
    for one, two in pairs:
        assert made(apply(rows, one)) == ["b", "c"]
        assert made(apply(rows, two)) == ["a", "c"]

    class Wrong:
        ids = ("a",)

        def __call__(self, row: Any) -> object:
            return refuses(*self.ids)(row)

    one, two = Wrong(), Wrong()
    two.ids = ("b",)
    assert made(apply(rows, one, name="one")) == ["b", "c"]
    assert made(apply(rows, two, name="two")) == ["a", "c"]


def test_one_handler_over_two_parts_of_a_batch(rows: Frame, tmp_path: Path) -> None:
    """Each part of a batch has its verdict: a row of the second may fail after the first is decided."""
    handler = refuses("a", "c")
    assert made(apply(rows.filter(lambda row: row["message_id"] < "b"), handler)) == []
    assert made(apply(rows.filter(lambda row: row["message_id"] > "a"), handler)) == ["b"]
    assert set(refused(tmp_path)) == {"a", "c"}


def test_a_name_is_used_once(rows: Frame) -> None:
    """Two handlers in a row cannot have one name, and a name cannot be empty."""
    first = apply(rows, refuses("a"), name="check")
    with pytest.raises(
        ConfigurationError, match="name='check' is the name of another handler of the same rows"
    ):
        apply(first, refuses("b"), name="check")
    with pytest.raises(ConfigurationError, match="name= is empty"):
        apply(rows, refuses("a"), name=" ")


def test_a_value_that_does_not_fit_fails_its_row(
    rows: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value of the wrong type, too large, missing, or of the wrong number fails its row; the others are in the
    result.
    """
    for number, (wrong, said) in enumerate(
        [
            ("x", "column n int32 of result=: "),
            (2**40, "column n int32 of result=: "),
            ((None,), "None for the column n of result=, which must not be null"),
            ((1, 2), "the handler returned tuple, which does not fit the 1 columns of result="),
            ([], "the handler returned list, which does not fit"),
            ({"n": 1, "m": 2}, "the handler returned m, which is not a column of result="),
        ]
    ):
        in_batch(monkeypatch, number)

        def handler(row: Any, wrong: object = wrong) -> object:
            return wrong if row["message_id"] == "b" else (1,)

        columns = StructType([StructField("n", IntegerType(), nullable=False)])
        assert made(apply(rows, handler, columns, name=str(number))) == [1, 1]
        assert said in refused(tmp_path)["b"]
        Records(store_at(str(tmp_path))).forget(store_at(str(tmp_path)).names("verdicts"))


def test_what_a_handler_may_return(rows: Frame) -> None:
    """A handler returns a tuple, a list, a dict or a single value; None for no row."""
    values: dict[str, object] = {"a": {"n": 1}, "b": [2], "c": None}
    assert made(apply(rows, lambda row: values[row["message_id"]], COUNT)) == [1, 2]
    assert made(apply(rows, lambda _: 7, COUNT)) == [7, 7, 7]


def test_what_a_handler_gets(rows: Frame) -> None:
    """A handler gets properties as a dict, and timestamps as aware datetimes in UTC; both can be returned."""
    seen: list[Any] = []

    def look(row: Any) -> object:
        seen.append(row)
        return row

    made_of = apply(rows, look, rows.schema)
    sent = datetime(1970, 1, 1, 0, 0, 0, 1, UTC)
    assert [row["timestamp"] for row in made_of.collect()] == [sent] * 3
    assert [(row.properties, row.timestamp) for row in seen] == [({"kind": each}, sent) for each in "abc"]
    assert made(apply(rows, lambda row: None)) == ["a", "b", "c"]


def test_nested_values(rows: Frame) -> None:
    """A map can be returned as a dict or pairs, a struct as a Row or a dict."""
    inner = StructType([StructField("n", IntegerType())])
    kinds = StructType([StructField("m", MapType(StringType(), IntegerType())), StructField("s", inner)])
    values: dict[str, object] = {"a": ({"x": 1}, Row(n=2)), "b": ([("x", 1)], {"n": 2}), "c": (None, None)}
    found = [
        (row["m"], row["s"]) for row in apply(rows, lambda row: values[row["message_id"]], kinds).collect()
    ]
    assert found == [([("x", 1)], {"n": 2})] * 2 + [(None, None)]


def test_a_time_without_a_zone_is_in_utc(rows: Frame) -> None:
    """A datetime without a time zone is taken as UTC, on any machine."""
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    found = made(apply(rows, lambda _: (naive,), StructType([StructField("ts", TimestampType())])))
    assert found == [datetime(2026, 1, 1, tzinfo=UTC)] * 3


def test_steering_is_in_the_verdict(rows: Frame, tmp_path: Path) -> None:
    """Poison, Discard and Defer are in the verdict with their kinds."""
    raised = {"a": Poison("p"), "b": Discard("d"), "c": Defer(5)}

    def handler(row: Any) -> object:
        raise raised[row["message_id"]]

    assert made(apply(rows, handler)) == []
    _, found = Records(store_at(str(tmp_path))).settled_by({}, {1: 1})
    assert [(found[at].kind, found[at].delay) for at in places(tmp_path, "a", "b", "c")] == [
        ("poison", 0.0), ("discard", 0.0), ("defer", 5.0),
    ]  # fmt: skip


def test_outside_of_a_stream_a_failure_is_raised(rows: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a stream the handler's error, or that of its value, ends the job: the row cannot be redelivered."""
    in_batch(monkeypatch, None)
    with pytest.raises(ValueError, match="a"):
        made(apply(rows, refuses("a")))
    with pytest.raises(RedeliveryError, match="does not fit the column n"):
        made(apply(rows, lambda _: "x", COUNT))


def test_a_verdict_is_published_before_its_rows_go_on(rows: Frame, tmp_path: Path) -> None:
    """A sink that stops after the first rows (`limit`) leaves no refused row, and no row without a verdict."""
    task = apply(cut(rows, 2), refuses("a", "c")).parts[0]()
    assert next(task).column("message_id").to_pylist() == ["b"]
    assert refused(tmp_path) == {"a": "ValueError: a"}
    task.close()
    assert refused(tmp_path) == {"a": "ValueError: a"}
    assert list((tmp_path / "crumbs").iterdir()) == []


def test_an_empty_arrow_batch_is_passed_on(rows: Frame, tmp_path: Path) -> None:
    """An empty Arrow batch is passed on with its columns, and without a verdict."""
    none = rows.filter(lambda _: False)
    for result, names in ((None, none.columns), (COUNT, ["n"])):
        (batch,) = apply(none, refuses("a"), result).parts[0]()
        assert (batch.num_rows, batch.schema.names) == (0, names)
    assert store_at(str(tmp_path)).names("verdicts") == []


def test_rows_of_another_log_are_refused(rows: Frame, tmp_path: Path) -> None:
    """Rows of another log are refused: their verdicts would be lost. One in 4,096 logs has the tag of this one."""
    del rows
    others = (tmp_path / f"other {number}" for number in itertools.count())
    other = next(each for each in others if tag_of(str(each)) != tag_of(str(tmp_path)))
    with pytest.raises(ConfigurationError, match="a row is not of the log that the DataFrame names"):
        made(apply(source(tmp_path, "a", log=other), refuses()))
