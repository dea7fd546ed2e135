"""A start that fails, and one that comes too early."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType
from redelivery_spark.wal.segments import FOLDER, Segments
from tests.spark.query import KillsQuery

from redelivery.errors import ConfigurationError
from redelivery_spark.source import RedeliveryDataSource
from redelivery_spark.stream.startup import LogInUse
from redelivery_spark.wal.arrow_files import empty
from redelivery_spark.wal.folder import Folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.spark.query import Query

    from redelivery.testing import MemoryBroker


def test_a_start_that_fails_leaves_the_log_free(
    redelivery_broker: MemoryBroker,
    make_query: Callable[..., Query],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Credentials that cannot be read are said each time; and the log is free for a start that has them."""
    del redelivery_broker
    monkeypatch.setattr("redelivery_spark.stream.startup.PATIENCE", 0.0)
    query = make_query(credentialsFile=str(tmp_path / "none"))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"credentialsFile=.* cannot be read"):
            query.start()
    make_query().start()


def test_a_log_in_use_can_be_waited_for(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an error of its own: the runner of a Spark that was killed ends by itself."""
    del redelivery_broker
    monkeypatch.setattr("redelivery_spark.stream.startup.PATIENCE", 0.0)
    first = make_query()
    first.start()
    with pytest.raises(LogInUse, match=r"in use by another query \(process \d+ on"):
        make_query().start()
    first.die()
    make_query().start()


def test_the_mark_of_a_failing_replay_is_gone_with_its_batch(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """What a sink said of a batch that was replayed empty is no evidence against the next one, whose process died."""
    for number in range(4):
        redelivery_broker.send("orders", f"good-{number}")
    query = make_query(maxMessagesPerTrigger=2)

    def fails(_: object) -> None:
        raise KillsQuery("no space left")

    with pytest.raises(KillsQuery):
        query.step(fails, evidence=True)
    assert query.step() == []
    query.records.fail(0, "no space left")  # by the sink, over the empty batch, just before it went through
    assert query.start().latest(1, 2) == 2
    query.planned = 2
    query.die()
    rows = query.step()
    assert rows  # as it was: a crash without evidence


def test_a_folder_that_this_user_may_not_write_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by `load()`, in one sentence."""
    monkeypatch.setattr("os.access", lambda *_: False)
    given = {"url": "memory://b", "destination": "orders", "waldir": str(tmp_path)}
    with pytest.raises(ConfigurationError, match=f"walDir={tmp_path} cannot be written: Permission denied"):
        RedeliveryDataSource(given).schema()


@pytest.mark.parametrize("use", ["readStream", "read", "write"])
def test_a_scheme_that_no_adapter_serves(tmp_path: Path, use: str) -> None:
    """It is told before anything is done: the Java client's is what people have in their settings."""
    given = {"url": "tcp://localhost:61616", "destination": "orders"}
    if use == "readStream":
        given["waldir"] = str(tmp_path)
    source = RedeliveryDataSource(given)
    with pytest.raises(ConfigurationError, match="tcp:// is OpenWire, of the Java client only: use stomp://"):
        source.writer(StructType([]), overwrite=False) if use == "write" else source.schema()


def test_what_a_stream_is_not_given() -> None:
    """Spark is told when it asks for the first batch: of a reader that cannot be made its runner says another thing."""
    reader = RedeliveryDataSource({"url": "memory://b", "destination": "orders"}).streamReader(StructType([]))
    for ask in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        lambda: reader.latestOffset({"n": 0}, None),
    ):
        with pytest.raises(ConfigurationError, match="option walDir is missing"):
            ask()
    reader.stop()


def test_what_may_be_for_a_stream() -> None:
    """Without a walDir nothing tells a stream from a read: what only a read refuses is said with that."""
    given = {"url": "stomp://b?jms.userName=u&jms.password=p", "destination": "orders"}
    with pytest.raises(
        ConfigurationError, match=r"^the url has cred.*if this is for readStream, option walDir is miss"
    ):
        RedeliveryDataSource(given).schema()
    with pytest.raises(ConfigurationError, match=r"where executors run$"):
        RedeliveryDataSource(given | {"mode": "browse"}).schema()


@pytest.mark.parametrize("missing", ["pyarrow", "pyspark"])
def test_a_package_that_is_not_installed(missing: str) -> None:
    """It is named, with the extra that brings it; Spark finds the source all the same, and says it."""
    program = f"""
        import sys
        sys.modules[{missing!r}] = None
        try:
            from redelivery_spark import process
        except ImportError as error:
            print(error)
        if {missing!r} == "pyarrow":
            from pyspark_redelivery import DefaultSource
            try:
                DefaultSource({{}})
            except ImportError as error:
                print(DefaultSource.name(), error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    said = "which is not installed here: pip install 'redelivery[spark]'"
    assert done.stdout.count(said) == (2 if missing == "pyarrow" else 1), done.stdout
    assert f"redelivery_spark.process needs {missing}" in done.stdout


def test_a_listing_that_is_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that can be opened is there, whatever a listing shows: NFS is late with those."""
    store = Folder(str(tmp_path))
    store.prepare(FOLDER)
    Segments(store, lambda: None).publish(1, empty())
    monkeypatch.setattr(Folder, "names", lambda *_: [])
    assert Segments(store, lambda: None).follow(0, 1, there=False)


def test_a_checkpoint_may_be_one_batch_behind_the_log_and_no_more(tmp_path: Path) -> None:
    """Spark writes a batch's number down after the source has published it: what is older is another query's."""
    store = Folder(str(tmp_path))
    store.prepare(FOLDER)
    segments = Segments(store, lambda: None)
    for number in (1, 2, 3):
        assert segments.publish(number, empty())
    assert segments.follow(0, 3, there=False)
    assert segments.follow(0, 2, there=False)
    with pytest.raises(ConfigurationError, match="has come to batch 3, and the checkpoint only to 1"):
        segments.follow(0, 1, there=False)
