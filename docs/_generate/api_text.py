"""Text of an API page for readers of the file: calls and first sentences. The site leaves it out, and has autodoc's."""

from __future__ import annotations

import enum
import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docs._generate.public import Name

__all__ = ["for_files", "without_text"]

_BEGIN, _END = "<!-- for readers of this file -->\n", "<!-- end -->\n"


def for_files(name: Name) -> str:
    """Return the text of one name, between marks; empty: it is neither a class nor a function."""
    value = name.value
    if inspect.isclass(value):
        rows = "".join(f"| {call} | {about} |\n" for call, about in _members(value))
        table = f"\n| member | |\n|---|---|\n{rows}" if rows else ""
        call = "" if issubclass(value, BaseException | enum.Enum) else _call(name.name, value)
    elif inspect.isroutine(value):
        table, call = "", _call(name.name, value)
    else:
        return ""
    about = _first(value)
    text = f"{call}: {about}" if call and about else call or about
    return f"{_BEGIN}\n{text}\n{table}\n{_END}\n" if text or table else ""


def without_text(page: str) -> str:
    """Return a page without these texts, for the site."""
    return re.sub(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}\n?", "", page, flags=re.DOTALL)


def _members(kind: type) -> Iterator[tuple[str, str]]:
    """Yield calls and attributes that users may use, with their first sentences: those of this library."""
    seen: set[str] = set()
    for owner in kind.__mro__:
        if not owner.__module__.startswith("redelivery"):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if inspect.isfunction(plain):
                yield _call(name, plain), _first(plain)
            elif isinstance(plain, property) and inspect.isfunction(plain.fget):
                yield f"`{name}`", _first(plain)


def _call(name: str, value: object) -> str:
    """Return a call without types, which differ in their spelling between Python's versions."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]  # a class or a routine
    except (TypeError, ValueError):
        return f"`{name}`"
    shown = [
        each.replace(annotation=inspect.Parameter.empty, default=_shown(each.default))
        for each in signature.parameters.values()
        if each.name not in ("self", "cls")
    ]
    text = str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    if "**options" in text and (named := _named(value, signature)):
        text = text.replace("**options", ("" if "*, " in text else "*, ") + named)
    return f"`{name}{text}`".replace("|", "\\|")


class _Dots:
    """A default that is not shown."""

    def __repr__(self) -> str:
        return "…"


def _shown(default: object) -> object:
    """Return the default to show: a plain value, for the text of others is not the same in each run."""
    plain = default is None or default is inspect.Parameter.empty
    return default if plain or isinstance(default, bool | int | float | str) else _Dots()


def _named(value: object, signature: inspect.Signature) -> str:
    """Return the keyword arguments that only the docstring names."""
    arguments = (inspect.getdoc(value) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    named = re.findall(r"^    (\w+):", arguments, re.MULTILINE)
    return ", ".join(f"{each}=…" for each in named if each not in signature.parameters)


def _first(value: object) -> str:
    """Return the first paragraph of a docstring, in one line."""
    text = inspect.getdoc(value) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")
