"""Properties of many deliveries, column by column: for programs that store deliveries and read thousands at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["ColumnReading", "HeadColumns", "ReadColumns"]


class HeadColumns(NamedTuple):
    """Columns of some deliveries, which all have the same names of application properties.

    Args:
        rows: Positions of these deliveries among all, ascending.
        values: By the name of a property, one value per delivery; a `timestamp` is in microseconds since the Unix
            epoch.
        names: Names of the application properties, in the order of `headers`.
        properties: Values of each of them, one per delivery.
    """

    rows: Sequence[int]
    values: Mapping[str, Sequence[Any]]
    names: Sequence[str]
    properties: Sequence[Sequence[str]]


class ReadColumns(Protocol):
    """Function that reads properties of stored deliveries without making the deliveries."""

    def __call__(self, heads: Sequence[bytes], asked: Collection[str], /) -> Sequence[HeadColumns]:
        """Return the properties that the restored deliveries would have, each row once; missing rows must be restored.

        Args:
            heads: First value of `Delivery.stored` of each delivery.
            asked: Names of properties: `identity`, `destination`, `content_type`, `correlation_id`, `reply_to`,
                `timestamp`, `redelivered`, `headers`.
        """
        ...


@runtime_checkable
class ColumnReading(Protocol):
    """Adapter that can read the heads of many deliveries at once. Optional: it only saves time."""

    def column_reader(self, wire: Mapping[str, str], /) -> ReadColumns:
        """Return a function that reads deliveries which `restorer` of the same wire would make.

        Raises:
            ConfigurationError: `wire` is not of this adapter.
        """
        ...
