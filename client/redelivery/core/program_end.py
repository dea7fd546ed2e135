"""Exceptions by which Python ends the program: the only ones of a handler that are no failure of its message.

Each other one is charged, whatever its base class. `gevent.Timeout`, `greenlet.GreenletExit` and asyncio's
`CancelledError` are no `Exception`: uncharged, the message that raises them would end every process at its start.

All is decided by `type(error)`. `isinstance` asks the exception for its class, and a faulty one raises then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeGuard

__all__ = ["ends_program", "is_failure_type", "leaves"]

_ENDS = (SystemExit, KeyboardInterrupt)


def ends_program(error: BaseException) -> bool:
    """True if this is Python's own wish to end, or a group with such a one in it."""
    kind = type(error)
    if issubclass(kind, Exception):
        return False
    return issubclass(kind, _ENDS) or any(issubclass(type(leaf), _ENDS) for leaf in leaves(error))


def is_failure_type(kind: object) -> TypeGuard[type[BaseException]]:
    """True for a class of exceptions that are failures of a message."""
    return isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(kind, _ENDS)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Iterate over the exceptions of a group and of the groups in it, in order, at any depth; or over one exception."""
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if issubclass(type(error), BaseExceptionGroup):
            waiting += reversed(cast("BaseExceptionGroup[BaseException]", error).exceptions)
        else:
            yield error
