"""`process`: which handler's verdict is on which rows, and what becomes of values that do not fit."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, StructField, StructType
from tests.spark.frames import Frame, in_batch, source

from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery.handler_exceptions import Defer, Discard, Poison
from redelivery_spark.api.process import process
from redelivery_spark.wal.records import Records, Refusal
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
    """Make a handler that raises over some rows, and returns what came."""

    def check(row: Any) -> object:
        if row["message_id"] in ids:
            raise ValueError(row["message_id"])
        return row

    return check


def refused(folder: Path) -> dict[str, str]:
    """Return which rows the log has as refused, and why."""
    _, _, found = Records(store_at(str(folder))).verdicts(0)
    return {each: of.cause for each, (of,) in found.items()}


def made(frame: object) -> list[Any]:
    """Return the ids, or the only column, of a result."""
    assert isinstance(frame, Frame)
    return [next(iter(row.values())) for row in frame.collect()]


def apply(frame: object, handler: Callable[[Any], object], *more: Any, **named: Any) -> Any:
    """Call `process` with what is no real DataFrame."""
    return process(frame, handler, *more, **named)  # type: ignore[arg-type]


def test_two_handlers_of_one_factory_have_a_verdict_each(rows: Frame, tmp_path: Path) -> None:
    """Chained, each refuses its own row; also lambdas of one function, partials, and the same handler again."""
    first = apply(rows, refuses("a"))
    assert made(apply(first, refuses("b"))) == ["c"]
    assert refused(tmp_path) == {"a": "ValueError: a", "b": "ValueError: b"}
    assert made(apply(first, refuses("a"))) == ["b", "c"]


def test_handlers_beside_each_other_have_a_verdict_each(rows: Frame) -> None:
    """In two actions of one batch: made with other values, of other code, or given a name."""

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
    """Each part has its verdict: a row of the second may fail though the first is judged."""
    handler = refuses("a", "c")
    assert made(apply(rows.filter(lambda row: row["message_id"] < "b"), handler)) == []
    assert made(apply(rows.filter(lambda row: row["message_id"] > "a"), handler)) == ["b"]
    assert set(refused(tmp_path)) == {"a", "c"}


def test_another_attempt_follows_the_first(rows: Frame, tmp_path: Path) -> None:
    """What was refused stays out, and what was called good may not fail: the same after a restart."""
    broken = ["a"]

    def handler(row: Any) -> object:
        if row["message_id"] in broken:
            raise ValueError(row["message_id"])
        return row

    assert made(apply(rows, handler)) == ["b", "c"]
    broken[:] = []
    assert made(apply(rows, handler)) == ["b", "c"]
    broken[:] = ["b"]
    with pytest.raises(ValueError, match="b"):
        made(apply(rows, handler))
    assert set(refused(tmp_path)) == {"a"}


@pytest.mark.parametrize(("other", "fails"), [("a", False), ("b", True)])
def test_two_attempts_at_one_time_decide_alike(
    rows: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, fails: bool
) -> None:
    """A task fails if another attempt of it, which ended just before, has refused other rows."""
    judge = Records.judge

    def judged(records: Records, name: str, refused: Any) -> Any:
        judge(records, name, {other: Refusal(1, "fail", "the other attempt's")})
        return judge(records, name, refused)

    monkeypatch.setattr(Records, "judge", judged)
    with (
        pytest.raises(RedeliveryError, match="another attempt of this task has decided otherwise")
        if fails
        else nullcontext()
    ):
        assert made(apply(rows, refuses("a"))) == ["b", "c"]
    assert refused(tmp_path) == {other: "the other attempt's"}


def test_a_name_is_used_once(rows: Frame) -> None:
    """Two handlers in a row cannot have one name, and a name is no empty text."""
    first = apply(rows, refuses("a"), name="check")
    with pytest.raises(ConfigurationError, match="name='check' is that of another handler of the same rows"):
        apply(first, refuses("b"), name="check")
    with pytest.raises(ConfigurationError, match="name= is empty"):
        apply(rows, refuses("a"), name=" ")


def test_a_value_that_does_not_fit_fails_its_row(
    rows: Frame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the wrong type, too large, missing, or of the wrong number: the others are in the result."""
    for number, (wrong, said) in enumerate(
        [
            ("x", "column n int32 of result=: "),
            (2**40, "column n int32 of result=: "),
            ((None,), "None for the column n of result=, which is not null"),
            ((1, 2), "the handler returned tuple, which does not fit the 1 columns of result="),
            ([], "the handler returned list, which does not fit"),
            ({"n": 1, "m": 2}, "the handler returned m, which is no column of result="),
        ]
    ):
        in_batch(monkeypatch, number)

        def handler(row: Any, wrong: object = wrong) -> object:
            return wrong if row["message_id"] == "b" else (1,)

        result = apply(
            rows,
            handler,
            StructType([StructField("n", IntegerType(), nullable=False)]),
        )
        assert made(result) == [1, 1]
        assert said in refused(tmp_path)["b"]


def test_what_a_handler_may_return(rows: Frame) -> None:
    """A tuple, a list, a dict, a single value; None for no row."""
    values: dict[str, object] = {"a": {"n": 1}, "b": [2], "c": None}
    assert made(apply(rows, lambda row: values[row["message_id"]], COUNT)) == [1, 2]
    assert made(apply(rows, lambda _: 7, COUNT)) == [7, 7, 7]


def test_steering_is_in_the_verdict(rows: Frame, tmp_path: Path) -> None:
    """Poison, Discard and Defer are told to the source as what they are."""
    raised = {"a": Poison("p"), "b": Discard("d"), "c": Defer(5)}

    def handler(row: Any) -> object:
        raise raised[row["message_id"]]

    assert made(apply(rows, handler)) == []
    _, _, found = Records(store_at(str(tmp_path))).verdicts(0)
    assert {each: (of.kind, of.delay) for each, (of,) in found.items()} == {
        "a": ("poison", 0.0), "b": ("discard", 0.0), "c": ("defer", 5.0),
    }  # fmt: skip


def test_outside_of_a_stream_a_failure_is_raised(rows: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would redeliver: so the handler's error, or that of its value, ends the job."""
    monkeypatch.setattr("redelivery_spark.api.process._place", lambda: None)
    with pytest.raises(ValueError, match="a"):
        made(apply(rows, refuses("a")))
    with pytest.raises(RedeliveryError, match="does not fit the column n"):
        made(apply(rows, lambda _: "x", COUNT))
