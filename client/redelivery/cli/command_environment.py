"""Environment of a shell command: the properties of its message, as far as the system can pass them on.

A message must not be able to prevent the start of its command. The system refuses one whose environment and arguments
are too large together, and one variable that is.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.message import Message

__all__ = ["environment_for"]

# Bytes of a variable, with its name: Linux refuses 128 KiB.
LONGEST = 65536
# Bytes for environment and arguments together: where the system names no limit, and at most (Linux: 6 MB).
UNKNOWN, MOST = 131072, 4 << 20
# Bytes of a variable beside its text: "=", NUL, and a pointer.
EXTRA = 10
# The names of properties that are left out: characters of each, and how many.
LONGEST_NAME, MOST_NAMES = 80, 20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PREFIX, _LEFT_OUT = "REDELIVERY_", "REDELIVERY_LEFT_OUT"


def environment_for(message: Message, command: str) -> dict[str, str]:
    """Return the environment of a command: ours, and the properties of a message.

    Ours is without `REDELIVERY_` variables: these belong to the message, and one has our password. Application
    properties are `REDELIVERY_HEADER_<name>`. No environment can carry names that are no identifiers, values with a NUL
    or longer than 64 KiB, or more in sum than the system allows; `REDELIVERY_LEFT_OUT` has the names of those, as JSON.
    """
    found = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}
    room = _room(found, command)
    left_out: list[str] = []
    # The shortest first: as many as possible.
    for name, text in sorted(_texts(message).items(), key=lambda each: len(each[1])):
        size = len(name) + len(text.encode()) + EXTRA
        if _NAME.fullmatch(name) and "\0" not in text and size <= min(room, LONGEST):
            found[_PREFIX + name] = text
            room -= size + len(_PREFIX)
        else:
            left_out.append(name)
    if left_out:
        names = [name[:LONGEST_NAME] for name in left_out[:MOST_NAMES]]
        more = [f"and {len(left_out) - MOST_NAMES} more"] if len(left_out) > MOST_NAMES else []
        found[_LEFT_OUT] = json.dumps(names + more)
    return found


def _room(own: Mapping[str, str], command: str) -> int:
    """Return the bytes for properties: half of what is left; the command needs arguments of its own."""
    try:
        limit = os.sysconf("SC_ARG_MAX")
    except (OSError, ValueError):
        limit = UNKNOWN
    used = sum(len(os.fsencode(name)) + len(os.fsencode(value)) + EXTRA for name, value in own.items())
    return max(0, (min(limit, MOST) if limit > 0 else UNKNOWN) - used - len(os.fsencode(command))) // 2


def _texts(message: Message) -> dict[str, str]:
    """Return the properties that the message has, by the name of their variable without its prefix."""
    fields: dict[str, object] = {
        "MESSAGE_ID": message.message_id,
        "DESTINATION": message.destination,
        "DELIVERY_COUNT": message.delivery_count,
        "REDELIVERED": str(message.redelivered).lower(),
        "CORRELATION_ID": message.correlation_id,
        "REPLY_TO": message.reply_to,
        "CONTENT_TYPE": message.content_type,
        "PRIORITY": message.priority,
        "GROUP": message.group,
        "TIMESTAMP": message.timestamp.isoformat() if message.timestamp else None,
        "EXPIRATION": message.expiration.isoformat() if message.expiration else None,
    }
    fields |= {f"HEADER_{name}": value for name, value in message.headers.items()}
    # A lone surrogate has no UTF-8.
    return {
        name: str(value).encode("utf-8", "replace").decode()
        for name, value in fields.items()
        if value is not None
    }
