"""Reading of a policy file, and detection of its syntax by its content."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from xml.parsers import expat

from redelivery.core.option_values import shown
from redelivery.errors import ConfigurationError
from redelivery.importers.imported import Value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from redelivery.importers.imported import Notes

__all__ = [
    "BOOLEANS",
    "Element",
    "decoded",
    "default_of",
    "name_of",
    "parse_xml",
    "read_file",
    "settled",
    "syntax_of",
]


# ---- File syntax -----------------------------------------------------------------------------------------

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


# ---- Setting values --------------------------------------------------------------------------------------
# Values of settings as text: blanks, placeholders, and Spring's words for true and false.

BOOLEANS = {"on": "true", "yes": "true", "1": "true", "off": "false", "no": "false", "0": "false"}
"""Words that Spring reads as a boolean, other than true and false."""

_PLACEHOLDER = re.compile(r"[$#]\{([^{}:]*)(?::([^{}]*))?\}")


def settled(name: str, value: Value, notes: Notes) -> Value | None:
    """Return a value without placeholder; None if it is known only while the broker runs, which is noted.

    `${name:default}` gives its default, as in a broker without another setting of that name; that is noted,
    too.
    """
    text = value.text.strip()
    if "${" not in text and "#{" not in text:
        return Value(text, value.line)
    default = default_of(text)
    if default is None:
        notes.add(
            value.line, f"{name}={text}", "a placeholder's value is not known here; left out", left_out=True
        )
        return None
    notes.add(value.line, f"{name}={text}", f"a placeholder; its default {default!r} is taken")
    return Value(default.strip(), value.line)


def default_of(text: str) -> str | None:
    """Return the default of a placeholder `${name:default}`; None: the text is another one."""
    found = _PLACEHOLDER.fullmatch(text)
    return found[2] if found is not None else None


# ---- Xml positions ---------------------------------------------------------------------------------------
# XML as a tree with line numbers, from the standard library's expat.
#
# A DOCTYPE is refused, and with it all entity declarations: nothing is expanded or fetched.

_DEEPEST = 100
# Most elements. In the tree, an element of four bytes takes some hundred.
_MOST = 200_000


@dataclass(slots=True, eq=False)
class Element:
    """Element with its local name and its namespace."""

    tag: str
    namespace: str
    line: int
    attributes: dict[str, str]
    """By local name; attributes of another namespace than the element's: `{namespace}name`."""
    children: list[Element] = field(default_factory=list["Element"])
    parts: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """Text of the element itself, without outer blanks."""
        return "".join(self.parts).strip()

    def walk(self) -> Iterator[Element]:
        """Iterate over this element and all below it, in the order of the file."""
        stack: list[Element] = [self]
        while stack:
            element = stack.pop()
            yield element
            stack.extend(reversed(element.children))

    def child(self, tag: str) -> Element | None:
        """Return the first child with that name, or None."""
        return next((child for child in self.children if child.tag == tag), None)


class _Builder:
    """Builder of the tree from expat's callbacks."""

    def __init__(self, file: str) -> None:
        self.root: Element | None = None
        self.file = file
        self._open: list[Element] = []
        self._count = 0
        self.parser = parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._doctype

    def _refuse(self, why: str) -> ConfigurationError:
        place = f"{self.parser.CurrentLineNumber}:{self.parser.CurrentColumnNumber + 1}"
        return ConfigurationError(f"{self.file}:{place}: {why}")

    def _doctype(self, *_: Any) -> None:
        raise self._refuse("a DOCTYPE and its entities are not read; remove it")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) >= _DEEPEST or self._count > _MOST:
            raise self._refuse("too deep or too many elements for a broker's configuration")
        namespace, _, tag = name.rpartition(" ")
        named: dict[str, str] = {}
        for key, value in attributes.items():
            other, _, local = key.rpartition(" ")
            named[local if other in ("", namespace) else f"{{{other}}}{local}"] = value
        element = Element(tag, namespace, self.parser.CurrentLineNumber, named)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        self._open[-1].parts.append(text)


def parse_xml(data: bytes, file: str) -> Element:
    """Return the root of an XML document. Raises ConfigurationError: `file:line:column: what is wrong`."""
    builder = _Builder(file)
    try:
        builder.parser.Parse(data, True)  # noqa: FBT003 - expat's own signature
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        raise ConfigurationError(
            f"{file}:{error.lineno}:{error.offset + 1}: the XML is not well-formed: {what}"
        ) from None
    except ConfigurationError:  # raised by a callback
        raise
    # Unknown encoding.
    except (LookupError, ValueError) as error:
        raise ConfigurationError(f"{file}:1:1: the XML cannot be decoded: {error}") from None
    assert builder.root is not None, "expat accepts no document without an element"
    return builder.root
