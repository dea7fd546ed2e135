"""Credentials are read where a connection is made, and are neither in pickled objects nor in an error."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from tests.spark.tables import pickled

from redelivery.errors import ConfigurationError, RedeliveryError
from redelivery.uri.syntax import with_options
from redelivery_spark.source import RedeliveryDataSource

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hush-hush"
BODY = from_arrow_schema(pa.schema({"body": pa.binary()}))


def test_nothing_pickled_has_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickled readers, writers, partitions and the source have no secret, with a file and with the environment."""
    file = tmp_path / "credentials.toml"
    file.write_text(f'user = "app"\npassword = "{SECRET}"\n', encoding="utf-8")
    monkeypatch.setenv("REDELIVERY_USER", "app")
    monkeypatch.setenv("REDELIVERY_PASSWORD", SECRET)
    common = {"url": "stomp://nowhere:1", "destination": "a"}
    drain = {"mode": "drain", "waldir": str(tmp_path)}
    for more in ({}, {"credentialsfile": str(file)}):
        browsing, draining = (RedeliveryDataSource(common | more | each) for each in ({}, drain))
        writing = RedeliveryDataSource(common | more)
        readers = [made.reader(made.schema()) for made in (browsing, draining)]
        shipped = [
            *readers,
            *(part for reader in readers for part in reader.partitions()),
            writing.writer(BODY, False),
            writing.streamWriter(BODY, False),
            browsing, draining, writing,
        ]  # fmt: skip
        for each in shipped:
            assert SECRET.encode() not in pickled(each), each
            assert SECRET not in repr(each)
        assert SECRET in readers[0]._options.connection_uri(), "where the connection is made it is there"


def test_a_stream_ships_nothing_of_its_url(tmp_path: Path) -> None:
    """A stream's url may have credentials, because the Spark driver reads it; executors get none of them."""
    made = RedeliveryDataSource({
        "url": f"stomp://app:{SECRET}@nowhere:1",
        "destination": "a",
        "waldir": str(tmp_path),
        "jms.clientID": "me",
    })  # fmt: skip
    assert SECRET.encode() in pickled(made), "the process that reads the stream is given it like this"
    reader = made.streamReader(made.schema())
    for each in (made, reader, reader.read):
        assert SECRET.encode() not in pickled(each), each


def test_credentials_that_would_be_shipped_are_refused() -> None:
    """Credentials in the url or the options of readers and writers are refused, without being quoted."""
    ways = [
        {"url": f"stomp://app:{SECRET}@nowhere:1"},
        {"url": f"failover:(amqp://app:{SECRET}@nowhere:1)?failover.reconnectDelay=5"},
        {"url": f"amqp://nowhere:1?jms.userName=app&jms.password={SECRET}"},
        {"url": "amqp://nowhere:1", "jms.username": "app", "jms.password": SECRET},
        {"url": f"amqps://nowhere:1?redelivery.tlsCertFile=c&redelivery.tlsKeyFile=k&redelivery.tlsKeyPassword={SECRET}"},
    ]  # fmt: skip
    for way in ways:
        made = RedeliveryDataSource(way | {"destination": "a"})
        calls = (
            made.schema,
            lambda made=made: made.reader(None),
            lambda made=made: made.writer(BODY, False),
            lambda made=made: made.streamWriter(BODY, False),
        )
        for call in calls:
            with pytest.raises(
                ConfigurationError, match=r"Spark would send (them|it) to every executor"
            ) as caught:
                call()
            assert SECRET not in str(caught.value)
            assert caught.value.__cause__ is None


def test_errors_do_not_quote_credentials(tmp_path: Path) -> None:
    """Errors over a missing, broken or wrong file, and over a missing broker, do not quote credentials."""
    file = tmp_path / "credentials.toml"
    made = RedeliveryDataSource(
        {"url": "stomp://127.0.0.1:1", "destination": "a", "credentialsfile": str(file)}
    )
    reader = made.reader(made.schema())
    for content in (None, SECRET, f'password = "{SECRET}"', f'user = "app"\npassword = "{SECRET}"'):
        if content is not None:
            file.write_text(content, encoding="utf-8")
        with pytest.raises(RedeliveryError) as caught:
            list(reader.read(reader.partitions()[0]))
        assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}", content


def test_credentials_go_behind_all_other_options() -> None:
    """Credentials reach the connection after all other options, whatever the url looks like."""
    for uri in ("stomp://b:1", "stomp://b:1?jms.clientID=x", "failover:(stomp://b:1?jms.clientID=x)"):
        assert re.search(r"[?&]jms\.userName=a%26b$", with_options(uri, {"jms.userName": "a&b"}))
