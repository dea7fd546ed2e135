"""Options of `df.write.format("redelivery")`, checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redelivery import parse_uri
from redelivery.driver.port import single
from redelivery_spark.options.batch_options import checked_run
from redelivery_spark.options.credentials import checked_url, logged_in, refuse_shipped
from redelivery_spark.options.spark_option import WRITE, Given

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["WriteOptions", "read_write_options"]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a writer. They are sent to executors: nothing in them is secret."""

    uri: str = field(repr=False)
    destination: str | None = None
    run: str | None = None
    credentials_file: str | None = None

    def connection_uri(self) -> str:
        """Return the URI to connect with, in an executor. Raises ConfigurationError."""
        return logged_in(self.uri, parse_uri(self.uri), self.credentials_file)


def read_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a writer. Names are in any case, values are text.

    Raises:
        ConfigurationError: Options are missing, unknown, contradictory or out of their ranges; it lists all of them.
    """
    found = Given(given, WRITE)
    found.require("url")
    uri, settings = checked_url(found.text("url"), found.uri, found.mistakes)
    if settings is not None:
        found.mistakes.attempt(lambda: refuse_shipped(settings), None)
    destination = found.text("destination")
    options = WriteOptions(
        uri=uri,
        destination=None
        if destination is None
        else found.mistakes.attempt(lambda: str(single(destination)), None),
        run=checked_run(found, "") or None,
        credentials_file=found.text("credentialsFile"),
    )
    found.mistakes.check()
    return options
