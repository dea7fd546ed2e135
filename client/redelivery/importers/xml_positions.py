"""XML as a tree with line numbers, from the standard library's expat.

A DOCTYPE is refused, and with it all entity declarations: nothing is expanded or fetched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

from redelivery.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Element", "parse_xml"]

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
