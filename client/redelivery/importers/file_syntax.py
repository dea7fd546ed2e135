"""Reading of a policy file, and detection of its syntax by its content."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, cast

from redelivery.core.option_values import shown
from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Literal

__all__ = ["LARGEST", "decoded", "name_of", "read_file", "syntax_of"]

LARGEST = 8 * 2**20
"""Most bytes of a file. A broker's configuration has some ten thousand."""

_JSON_LIST = re.compile(r"\[\s*[{\]]")
_TOML_KEY = re.compile(r"""\[|["'A-Za-z0-9_-]+\s*[.=]|#""")
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"<\x00", b"\x00<")


def name_of(path: object) -> str:
    """Return the path as text. Raises ConfigurationError if it is not a path."""
    text = shown(path)
    if isinstance(path, str):
        return path
    name: object = os.fspath(cast("os.PathLike[str]", path)) if isinstance(path, os.PathLike) else None
    if not isinstance(name, str):
        raise ConfigurationError(f"a policy file must be given as a path, not {text}")
    return name


def read_file(file: str) -> bytes:
    """Return the content of a file. Raises ConfigurationError if it cannot be read, is empty or too large."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(f"{file}: cannot be read: {why}") from None
    if len(data) > LARGEST:
        raise ConfigurationError(f"{file}: larger than {LARGEST // 2**20} MiB, the limit for a policy file")
    if not data.strip(b"\xef\xbb\xbf \t\r\n"):
        raise ConfigurationError(f"{file}: the file is empty")
    return data


def decoded(data: bytes, file: str) -> str:
    """Return the text of a JSON or TOML file, which is UTF-8. Raises ConfigurationError, with the line."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(f"{file}:{line}: the file is not UTF-8") from None


def syntax_of(data: bytes, file: str) -> Literal["xml", "json", "toml"]:
    """Return the syntax of a file. Raises ConfigurationError for any other syntax."""
    head = data[:4096].removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"<") or data.startswith(_UTF16):
        return "xml"
    text = head.decode("utf-8", "replace")
    if text.startswith("{") or _JSON_LIST.match(text):
        return "json"
    if file.endswith((".properties", ".yml", ".yaml")):
        raise ConfigurationError(
            f"{file}: Java properties and YAML are not read; give the broker URL in it to `redelivery policy convert`"
        )
    if _TOML_KEY.match(text):
        return "toml"
    raise ConfigurationError(
        f"{file}: neither XML (activemq.xml, broker.xml), nor JSON (Broker-J), nor TOML: an unknown kind of file"
    )
