"""Fetches, compiles and makes all files that the tests need on a new machine: `python -m integration.prepare`."""

from __future__ import annotations

from integration.brokers import ALL_BROKERS
from integration.brokers.choice import required
from integration.brokers.toolchain import BrokerError, progress
from integration.java_client import JavaClient


def main() -> None:
    """Fetch the brokers and the Java clients, compile, and make the archive of Spark's classes."""
    for name, kind in ALL_BROKERS.items():
        reason = kind.unavailable()
        if reason is not None:
            progress(f"{name}: {reason}")
            continue
        try:
            kind.obtain()
        except BrokerError as error:
            if required(name):
                raise
            progress(f"{name}: {error}")
            continue
        for client in kind.java_clients:
            JavaClient.prepare(client)
    try:
        from integration.spark_jvm import make_archive  # noqa: PLC0415 -- Spark may be missing
    except ImportError as error:
        progress(f"Spark: {error}")
    else:
        make_archive()


if __name__ == "__main__":
    main()
