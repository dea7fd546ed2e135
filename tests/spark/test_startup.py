"""A start that fails, and one that is too early."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import StructType

from redelivery.errors import ConfigurationError, TransportError
from redelivery_spark.source import RedeliveryDataSource
from redelivery_spark.stream.stream_reader import LogInUse, RedeliveryStreamReader
from redelivery_spark.wal.folder import Folder
from redelivery_spark.wal.store import prepared

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
    """A start that fails over credentials names them each time, and leaves the log unlocked."""
    del redelivery_broker
    monkeypatch.setattr("redelivery_spark.stream.stream_reader.PATIENCE", 0.0)
    query = make_query(credentialsFile=str(tmp_path / "none"))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"credentialsFile=.* cannot be read"):
            query.start()
    make_query().start()


def test_a_log_in_use_can_be_waited_for(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log in use has an error of its own: the runner of a killed Spark ends by itself."""
    del redelivery_broker
    monkeypatch.setattr("redelivery_spark.stream.stream_reader.PATIENCE", 0.0)
    first = make_query()
    first.start()
    with pytest.raises(LogInUse, match=r"in use by another query \(process \d+ on"):
        make_query().start()
    first.die()
    make_query().start()


def test_a_log_of_the_first_design_is_refused(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query], tmp_path: Path
) -> None:
    """A log of the first design is refused with the way to drain it; it stays unchanged and unlocked."""
    redelivery_broker.send("orders", "good")
    state = tmp_path / "wal" / "state"
    state.mkdir(parents=True)
    (state / "000000000003.json").write_text('{"log": "x", "settled": 3, "facts": []}')
    for _ in range(2):
        with pytest.raises(
            ConfigurationError, match=r"first design of this source; drain it with .* AvailableNow"
        ):
            make_query().start()
    assert [path.name for path in state.iterdir()] == ["000000000003.json"]
    assert redelivery_broker.depth("orders") == 1


def test_an_offset_of_the_first_design_is_refused(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A checkpoint of the first design is refused with a new walDir, too."""
    del redelivery_broker
    reader = RedeliveryStreamReader(make_query().options)
    for ask in (
        lambda: reader.latestOffset({"n": 4}, None),
        lambda: reader.partitions({"n": 3}, {"n": 4}),
    ):
        with pytest.raises(
            ConfigurationError, match=r"first design of this source; drain its walDir with the version"
        ):
            ask()
    reader.stop()


def test_a_checkpoint_of_another_log_is_refused(
    redelivery_broker: MemoryBroker, make_query: Callable[..., Query]
) -> None:
    """A checkpoint of another log is refused, and both logs are named."""
    del redelivery_broker
    reader = RedeliveryStreamReader(make_query().options)
    with pytest.raises(
        ConfigurationError, match=r"has the log [0-9a-f]{32}, and the checkpoint was written with other"
    ):
        reader.latestOffset({"log": "other", "1": 4}, None)
    reader.stop()


def test_a_folder_that_this_user_may_not_write_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that this user may not write in is refused by `load()`, in one sentence."""
    monkeypatch.setattr("os.access", lambda *_: False)
    given = {"url": "memory://b", "destination": "orders", "waldir": str(tmp_path)}
    with pytest.raises(ConfigurationError, match=f"walDir={tmp_path}: cannot be written: Permission denied"):
        RedeliveryDataSource(given).schema()


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EIO, errno.ESTALE, errno.ENOSPC])
def test_a_store_that_is_away_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A store that is away for a moment is no ConfigurationError: `run` tries again."""

    def away(*_: object, **__: object) -> bool:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Folder, "publish", away)
    with pytest.raises(TransportError, match=f"walDir={tmp_path}: cannot be written: {os.strerror(number)}"):
        prepared(str(tmp_path))


@pytest.mark.parametrize("use", ["readStream", "read", "write"])
def test_a_scheme_that_no_adapter_serves(tmp_path: Path, use: str) -> None:
    """A scheme without an adapter, such as the Java client's, is refused before anything connects."""
    given = {"url": "tcp://localhost:61616", "destination": "orders"}
    if use == "readStream":
        given["waldir"] = str(tmp_path)
    source = RedeliveryDataSource(given)
    with pytest.raises(ConfigurationError, match="tcp:// is OpenWire, of the Java client only: use stomp://"):
        source.writer(StructType([]), overwrite=False) if use == "write" else source.schema()


def test_what_a_stream_is_not_given() -> None:
    """A stream without walDir is refused at Spark's first call: its runner hides errors of the constructor."""
    reader = RedeliveryDataSource({"url": "memory://b", "destination": "orders"}).streamReader(StructType([]))
    for ask in (
        reader.initialOffset,
        reader.getDefaultReadLimit,
        lambda: reader.latestOffset({}, None),
    ):
        with pytest.raises(ConfigurationError, match=r"^walDir: missing; for instance"):
            ask()
    reader.stop()


def test_what_may_be_for_a_stream() -> None:
    """Without a walDir an error of a read also says that a stream needs one."""
    given = {"url": "stomp://b?jms.userName=u&jms.password=p", "destination": "orders"}
    with pytest.raises(
        ConfigurationError, match=r"^url: it has cred.*if this is for readStream, walDir is miss"
    ):
        RedeliveryDataSource(given).schema()
    with pytest.raises(ConfigurationError, match=r"where executors run$"):
        RedeliveryDataSource(given | {"mode": "browse"}).schema()


@pytest.mark.ci("child processes: 0.1 s each")
@pytest.mark.parametrize("missing", ["pyarrow", "pyspark"])
def test_a_package_that_is_not_installed(missing: str) -> None:
    """A missing package is named with its extra, and Spark finds the source all the same."""
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
