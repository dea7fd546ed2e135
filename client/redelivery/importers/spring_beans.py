"""Beans of a Spring file, written as `<bean>` with properties or as elements of ActiveMQ's own.

`<redeliveryPolicy queue="A"/>`, `<bean class="org.apache.activemq.RedeliveryPolicy" p:queue="A"/>` and the
same with `<property name="queue" value="A"/>` are the same bean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redelivery.importers.imported import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redelivery.importers.xml_positions import Element

__all__ = ["Beans", "Property"]

_P = "{http://www.springframework.org/schema/p}"
_LISTS = frozenset({"list", "set", "array", "collection"})
_SPRING = frozenset({"property", "constructor-arg", "description", "meta", "qualifier"})
_TYPES = frozenset({"redeliveryPolicy", "redeliveryPolicyMap"})
"""Beans with the name of a property: `<redeliveryPolicy>` is a bean, or a property that holds one."""


class Property(NamedTuple):
    """Property with its content: a text, or beans."""

    name: str
    line: int
    text: str | None
    beans: tuple[Element, ...] = ()

    @property
    def value(self) -> Value:
        """Text with its line."""
        return Value(self.text or "", self.line)


def _lowered(name: str) -> str:
    return name[:1].lower() + name[1:]


class Beans:
    """All beans of a file, by id."""

    def __init__(self, root: Element) -> None:
        """Find the ids below `root`."""
        self.root = root
        self.referred: set[int] = set()
        """Ids (`id()`) of elements that another element refers to."""
        self._by_id: dict[str, Element] = {}
        for element in root.walk():
            for key in (element.attributes.get("id"), element.attributes.get("name")):
                if key and (element.tag == "bean" or key == element.attributes.get("id")):
                    self._by_id.setdefault(key, element)

    @staticmethod
    def type_of(element: Element) -> str:
        """Return the type of a bean: its class without the package, first letter in lower case."""
        if element.tag != "bean":
            return element.tag
        return _lowered(element.attributes.get("class", "").rpartition(".")[2])

    @staticmethod
    def is_holder(element: Element) -> bool:
        """True if an element with the name of a bean is the property that holds the bean."""
        inner = {child.tag for child in element.children}
        return (
            element.tag in _TYPES
            and not element.attributes
            and bool(inner)
            and inner <= {element.tag, "bean", "ref"}
        )

    def properties(self, bean: Element, depth: int = 0) -> dict[str, Property]:
        """Return the properties of a bean by name; its own replace those of its `parent`."""
        parent = self._by_id.get(bean.attributes.get("parent", ""))
        found = self.properties(parent, depth + 1) if parent is not None and depth < 10 else {}
        for item in (*self._of_attributes(bean), *self._of_children(bean)):
            found[item.name] = item
        return found

    def _of_attributes(self, bean: Element) -> Iterator[Property]:
        for written, text in bean.attributes.items():
            name = written.removeprefix(_P)
            if written.startswith("{") and name == written:
                # Another namespace: xsi:schemaLocation and the like.
                continue
            if name == written and (bean.tag == "bean" or name in ("id", "name")):
                continue  # Spring's own
            if name != written and name.endswith("-ref"):
                yield self._reference(name.removesuffix("-ref"), bean.line, text)
            elif text.startswith("#") and not text.startswith("#{"):
                yield self._reference(name, bean.line, text[1:])
            else:
                yield Property(_lowered(name), bean.line, text)

    def _of_children(self, bean: Element) -> Iterator[Property]:
        for child in bean.children:
            if child.tag in ("property", "constructor-arg"):
                default = "brokerURL" if child.tag == "constructor-arg" else ""
                yield self._of_property(child, _lowered(child.attributes.get("name", default)))
            elif child.tag not in _SPRING and bean.tag != "bean":
                yield self._of_element(child)

    def _of_property(self, item: Element, name: str) -> Property:
        if "ref" in item.attributes:
            return self._reference(name, item.line, item.attributes["ref"])
        text = item.attributes.get("value")
        values = [child for child in item.children if child.tag == "value"]
        if text is None and values:
            return Property(name, values[0].line, values[0].text)
        if text is None and not item.children:
            text = item.text
        return Property(name, item.line, text, tuple(self.flat(item.children)))

    def _of_element(self, item: Element) -> Property:
        if self.is_holder(item) or (item.tag not in _TYPES and item.children):
            return Property(item.tag, item.line, None, tuple(self.flat(item.children)))
        if item.tag in _TYPES or (item.attributes and not item.text):
            return Property(item.tag, item.line, None, (item,))
        return Property(item.tag, item.line, item.text)

    def _reference(self, name: str, line: int, to: str) -> Property:
        target = self._by_id.get(to)
        if target is None:
            return Property(_lowered(name), line, f"#{to}")
        self.referred.add(id(target))
        return Property(_lowered(name), line, None, (target,))

    def flat(self, elements: list[Element]) -> Iterator[Element]:
        """Iterate over the beans of a list, with references resolved."""
        for element in elements:
            if element.tag in _LISTS:
                yield from self.flat(element.children)
            elif element.tag in ("ref", "idref"):
                to = element.attributes.get("bean") or element.attributes.get("local", "")
                yield from self._reference("", element.line, to).beans
            elif element.tag not in _SPRING:
                yield element
