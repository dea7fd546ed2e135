"""Kinds of tests that `.ci/run` takes whole for a change: `python -m tests.changed_kinds REVISION`.

A change only adds tests: what a tier has runs always.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.changed_files import changed_files
from tests.tiers import DEAD_LETTERS, KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["kinds_of"]

FOLDERS = {
    "adapters/redelivery_amqp/": ("amqp",),
    "adapters/redelivery_stomp/": ("stomp",),
    "adapters/redelivery_spark/": ("spark",),
    "adapters/pyspark_redelivery/": ("spark",),
    "client/redelivery/adapter_support/": ("amqp", "stomp"),
    "client/redelivery/core/": ("schedules",),
    "client/redelivery/driver/": ("schedules",),
    "client/redelivery/core/dead_lettering/": ("dead-letters",),
    "client/redelivery/dlq/": ("dead-letters",),
    "client/redelivery/testing/": ("amqp", "stomp"),  # the conformance suite
    "docs/": ("site",),
    "integration/brokers/": ("amqp", "stomp"),
    "integration/spark_": ("spark",),
    **{f"integration/{begin}": ("dead-letters",) for begin in DEAD_LETTERS},
    "integration/test_spark": ("spark",),
    "tests/simulator/": ("schedules",),
    "tests/spark/": ("spark",),
    "README.md": ("site",),
}
"""Beginnings of paths, and the kinds of tests for them."""


def kinds_of(files: Iterable[str]) -> list[str]:
    """Return the kinds for a change of these files, sorted."""
    found = [kinds for file in files for begin, kinds in FOLDERS.items() if file.startswith(begin)]
    return sorted({kind for kinds in found for kind in kinds})


def main(revision: str) -> None:
    """Print the kinds, separated by commas."""
    kinds = kinds_of(changed_files(revision))
    assert set(kinds) <= set(KINDS), "tests/tiers.py knows each kind"
    print(",".join(kinds))


if __name__ == "__main__":
    main(*sys.argv[1:])
