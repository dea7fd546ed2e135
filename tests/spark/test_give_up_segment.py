"""A damaged segment without a copy: its messages are given up, and all others are processed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.spark.query import fails_bad
from tests.spark.tables import fill

from redelivery.errors import ConfigurationError
from redelivery_spark.wal.checked_file import LogDamaged
from redelivery_spark.wal.give_up_segment import give_up, main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.spark.query import Query

    from redelivery.testing import ManualClock, MemoryBroker

FIRST = "s1/000000000001.arrow"


@pytest.mark.parametrize("planned", [False, True])
def test_the_other_messages_are_processed(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    segments_of: Callable[[int], None],
    tmp_path: Path,
    planned: bool,
) -> None:
    """After it the query has the rows of all other segments, also of a batch that Spark had planned before."""
    segments_of(2)
    fill(redelivery_broker, 6)
    query = make_query()
    query.read_ahead()
    if planned:
        assert query.plan()
    query.die()
    damaged = tmp_path / "wal" / FIRST
    content = damaged.read_bytes()[:-1]
    damaged.write_bytes(content)
    with pytest.raises(LogDamaged, match=FIRST):
        query.step()
    query.die()
    assert main([str(tmp_path / "wal"), FIRST]) == 0
    query.drain()
    assert len(query.bodies()) == 4
    assert (tmp_path / "wal" / "damaged" / FIRST.replace("/", "-")).read_bytes() == content


def test_a_redelivery_is_made_anew(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    redelivery_clock: ManualClock,
    tmp_path: Path,
) -> None:
    """A segment of redeliveries can be given up without a loss: the message is in the file of those that wait."""
    redelivery_broker.send("orders", "flaky")
    query = make_query()
    query.step(fails_bad)
    query.step(fails_bad)
    redelivery_clock.advance(5.0)
    assert query.plan()
    query.die()
    name = max(path.name for path in (tmp_path / "wal" / "s0").iterdir())
    (tmp_path / "wal" / "s0" / name).write_bytes(b"")
    give_up(str(tmp_path / "wal"), f"s0/{name}")
    query.drain(fails_bad)
    assert query.bodies() == ["flaky"]


def test_only_what_is_damaged_is_given_up(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A whole segment, another file, and the log of a query that runs are refused."""
    wal = str(tmp_path / "wal")
    fill(redelivery_broker, 1)
    query = make_query()
    query.read_ahead()
    with pytest.raises(ConfigurationError, match=r"in use by process .*; end the query first"):
        give_up(wal, FIRST)
    query.die()
    with pytest.raises(ConfigurationError, match="is whole, and is not given up"):
        give_up(wal, FIRST)
    with pytest.raises(ConfigurationError, match=r"state/1\.json: no segment"):
        give_up(wal, "state/1.json")
    assert main([str(tmp_path / "empty"), FIRST]) == 1
    assert "no log, because it has no state" in capsys.readouterr().err
    query.drain()
    assert len(query.bodies()) == 1
