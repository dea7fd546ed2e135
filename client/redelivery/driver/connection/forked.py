"""Handling of forks: a child process has the parent's connections and their sockets, but none of their threads.

A connection belongs to the process that opened it. In a child its adapter is replaced. No call there can then write to
the parent's socket, or shut it down.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redelivery.adapter import Adapter, Opening, Sink
    from redelivery.core.capabilities import Capabilities
    from redelivery.core.commands import AdapterCommand

__all__ = ["ForkedAdapter", "Orphan", "in_another_process", "orphaned_by_forks"]


def in_another_process(opened_in: int) -> ConfigurationError:
    """Return the error for the use of a connection in a child of the process that opened it."""
    return ConfigurationError(
        f"this connection was opened in process {opened_in}, and this is its child {os.getpid()} after a fork: it has "
        "neither the threads nor the socket; make a connection in each process, after the fork"
    )


class Orphan(Protocol):
    """Interface of an object that must not act in a child process; `ConnectionDriver` implements it."""

    def forked(self, error: ConfigurationError) -> None:
        """End in a child process, without taking a lock: a thread of the parent may have held it at the fork."""


class ForkedAdapter:
    """Replacement of an adapter in a child process: does nothing, and keeps a reference to the parent's adapter.

    The reference keeps the garbage collector from closing the parent's socket.
    """

    def __init__(self, parents: Adapter, error: ConfigurationError) -> None:
        self._parents = parents
        self._error = error

    def open(self, opening: Opening, sink: Sink) -> Capabilities:  # noqa: ARG002 - the signature of adapters
        """Raise ConfigurationError."""
        raise self._error

    def execute(self, _commands: Sequence[AdapterCommand], /) -> None:
        """Drop the commands: the connection belongs to the parent process."""

    def close(self, _timeout: float, /) -> bool:
        """Leave the parent's socket alone."""
        return False


_orphans: WeakSet[Orphan] = WeakSet()


def orphaned_by_forks(orphan: Orphan) -> None:
    """End this object in each child process that is forked from now on."""
    _orphans.add(orphan)


def _forked() -> None:
    error = in_another_process(os.getppid())
    for orphan in tuple(_orphans):
        orphan.forked(error)
    _orphans.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forked)
