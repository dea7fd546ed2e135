"""JSON whose objects have their line numbers."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from redelivery.errors import ConfigurationError

__all__ = ["JsonArray", "JsonObject", "parse_json"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


class JsonArray(list[Any]):
    """JSON array."""

    __slots__ = ()


class JsonObject(dict[str, Any]):
    """JSON object. `line`: where it begins; `lines`: the line of each key."""

    __slots__ = ("line", "lines", "pending")

    def __init__(self, line: int) -> None:
        """Start empty on line `line`."""
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.pending: str | None = None


def parse_json(text: str, file: str, line: int = 0) -> Any:
    """Return the value of a JSON document.

    Args:
        text: The document.
        file: Name of the file, for errors.
        line: Line of the file, if the document is a text inside of another document.

    Raises:
        ConfigurationError: It is not well-formed; the text is `file:line:column: what is wrong`.
    """
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        place = f"{line}" if line else f"{error.lineno}:{error.colno}"
        raise ConfigurationError(f"{file}:{place}: the JSON is not well-formed: {error.msg}") from None
    # ValueError: a number of more digits than Python reads.
    except (RecursionError, ValueError):
        raise ConfigurationError(f"{file}: the JSON is too deep, or has too long a number") from None
    return _with_lines(text, file, line)


def _value(word: str, file: str, line: int) -> Any:
    """Return a string, a number or a constant. Raises ConfigurationError for half a surrogate pair."""
    value: Any = json.loads(word)
    # JSON's escapes can express it, but no protocol and no file can carry it.
    if isinstance(value, str) and _SURROGATE.search(value):
        raise ConfigurationError(f"{file}:{line}: {word[:40]} has half a surrogate pair, which is not text")
    return value


def _with_lines(text: str, file: str, fixed: int) -> Any:
    """Build a document that is well-formed. Raises ConfigurationError for half a surrogate pair."""
    root = JsonArray()
    stack: list[JsonObject | JsonArray] = [root]
    line, seen = 1, 0
    for token in _TOKEN.finditer(text):
        word = token[0]
        line, seen = line + text.count("\n", seen, token.start()), token.start()
        here, top = fixed or line, stack[-1]
        if word in ("}", "]"):
            stack.pop()
        elif word in (",", ":"):
            continue
        elif isinstance(top, JsonObject) and top.pending is None:
            top.pending = cast("str", _value(word, file, here))
            top.lines[top.pending] = here
        else:
            value: Any = JsonObject(here) if word == "{" else JsonArray() if word == "[" else None
            value = _value(word, file, here) if value is None else value
            if isinstance(top, JsonObject):
                assert top.pending is not None
                top[top.pending] = value
                top.pending = None
            else:
                top.append(value)
            if word in ("{", "["):
                stack.append(value)
    return root[0]
