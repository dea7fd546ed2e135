"""What many deliveries say, column by column: for programs that store deliveries and read thousands of them at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["ColumnReading", "HeadColumns", "ReadColumns"]


class HeadColumns(NamedTuple):
    """Columns of some deliveries, which all have the same application properties.

    `rows`: which they are, by their positions among all, ascending.
    `values`: by the name of a property, one value for each of them; of `timestamp` microseconds since the Unix epoch.
    `names` and `properties`: the application properties, in the order of `headers`, each with its values.
    """

    rows: Sequence[int]
    values: Mapping[str, Sequence[Any]]
    names: Sequence[str]
    properties: Sequence[Sequence[str]]


class ReadColumns(Protocol):
    """Reads what deliveries say, without making them."""

    def __call__(self, heads: Sequence[bytes], asked: Collection[str], /) -> Sequence[HeadColumns]:
        """Return what restored deliveries would say, each once; those that are missing have to be restored.

        Args:
            heads: what `Delivery.stored` returned first.
            asked: names of properties: `identity`, `destination`, `content_type`, `correlation_id`, `reply_to`,
                `timestamp`, `redelivered`, `headers`.
        """
        ...


@runtime_checkable
class ColumnReading(Protocol):
    """An adapter that reads the heads of many deliveries at once. Optional: for speed alone."""

    def column_reader(self, wire: Mapping[str, str], /) -> ReadColumns:
        """Return a function that reads deliveries which `restorer` of the same wire would make.

        Raises:
            ConfigurationError: `wire` is none of this adapter's.
        """
        ...
