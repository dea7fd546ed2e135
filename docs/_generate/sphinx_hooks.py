"""Hooks of Sphinx: pages that are files of the repository, docstrings with backquotes, references to names."""

from __future__ import annotations

import ast
import builtins
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from docs._generate.api_text import without_text
from docs._generate.missing import missing
from docs._generate.places import DOCS, ROOT
from docs._generate.public import public_names
from sphinx.addnodes import pending_xref

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docutils.nodes import Element, document
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

__all__ = ["included", "setup"]

_INCLUDE = re.compile(r"\A```\{include\} \.\./(?P<file>[\w.-]+)\n```\s*\Z")
_LINK = re.compile(r"\]\((?!\w+:|#)(?P<path>[^)\s]+)\)")
# What this library makes for users: they do not call the constructor.
_MADE_FOR_USERS = {"AsyncConsumer", "AsyncSession", "Consumer", "Message", "Session", "DeadLetter"}
_PLACES = (
    "typing",
    "collections.abc",
    "datetime",
    "types",
    "contextlib",
    "os",
    "enum",
    "logging",
    "pathlib",
    "threading",
)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the hooks."""
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    app.connect("autodoc-process-docstring", _after_napoleon, priority=600)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-bases", _bases)
    app.connect("doctree-read", _resolve_short_names)
    app.connect("missing-reference", _missing_reference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


# Pages that are files of the repository's root.


def included(page: str) -> str:
    """Return the page, or the text of the file that is all that it includes, with its links as seen from `docs`."""
    found = _INCLUDE.match(page)
    if found is None:
        return page
    text = (ROOT / found["file"]).read_text(encoding="utf-8")
    return _LINK.sub(lambda link: f"]({_from_docs(link['path'])})", text)


def _from_docs(path: str) -> str:
    """Return a link of a file in the root as one of a page."""
    file, mark, heading = path.partition("#")
    if file.startswith("docs/"):
        return f"{file.removeprefix('docs/')}{mark}{heading}"
    page = f"{file.removesuffix('.md').lower()}.md"
    return f"{page}{mark}{heading}" if (DOCS / page).exists() else f"../{path}"


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = without_text(included(source[0]))


# Docstrings.


_attributes: dict[int, list[str]] = {}
_COLON = "\ue000"  # stands for a colon that napoleon must not take for the end of a type


def _after_napoleon(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Undo what napoleon has made of an attribute: it takes the words before the first colon for its type."""
    before = _attributes.pop(id(lines), None)
    lines[:] = [line.replace(_COLON, ":") for line in (lines if before is None else before)]


def _without_types(lines: list[str]) -> Iterator[str]:
    """Go through a docstring, with colons hidden in what it says of results."""
    inside = False
    for line in lines:
        if re.match(r"\s*\w+:$", line):
            inside = line.strip() in ("Returns:", "Yields:")
            yield line
        else:
            yield line.replace(":", _COLON) if inside else line


def _docstring(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Mark code as reStructuredText does, and set an empty line before each list."""
    text = re.sub(r"(?<![`:\\])`([^`]+)`(?!`)", _code, "\n".join(lines))
    made: list[str] = []
    for line in text.split("\n"):
        begins = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if begins and made and made[-1].strip() and not re.match(r"\s*(?:[-*]|\d+\.) |\s+", made[-1]):
            made.append("")
        made.append(line)
    lines[:] = _without_types(made)
    if what in ("attribute", "data", "property"):
        _attributes[id(lines)] = [*lines]


def _code(match: re.Match[str]) -> str:
    text = re.sub(r"\s+", " ", match[1])
    name = text.removesuffix("()")
    full = public_names()[name][1] if name in public_names() else _short_names().get(name)
    code = f":py:obj:`{text} <{full}>`" if full else f"``{text}``"
    around = match.string[: match.start()][-1:], match.string[match.end() :][:1]
    # A word that touches code, as the plural's s, is set apart by an escaped blank.
    before, after = ("\\ " if each.isalnum() else "" for each in around)
    return f"{before}{code}{after}"


def _signature(
    app: Sphinx, what: str, name: str, obj: object, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Leave out arguments of objects that only the library makes, addresses, and factories of defaults."""
    if what == "class" and name.rpartition(".")[2] in _MADE_FOR_USERS:
        return "", None
    return signature and re.sub(r" at 0x\w+", "", signature).replace("<factory>", "..."), returned


def _bases(app: Sphinx, name: str, obj: object, options: Any, bases: list[Any]) -> None:
    """Leave out bases that are not public: their members are shown with the class."""
    shown = [each for each in bases if each is object or _is_shown(each)]
    bases[:] = shown or [object]


def _is_shown(base: Any) -> bool:
    module = getattr(base, "__module__", "")
    return not module.startswith("redelivery") or f"{module}.{base.__qualname__}" in public_names()


# References.


def _resolve_short_names(app: Sphinx, doctree: document) -> None:
    """Give a name without a module the one that it has on the page, or else on the first page that has it."""
    here: str = app.env.docname
    for node in doctree.findall(pending_xref):
        target = node.get("reftarget", "")
        if node.get("refdomain") == "py" and "." not in target:
            candidates = _candidates().get(target, [])
            own = [full for page, full in candidates if page == here]
            if candidates:
                node["reftarget"] = (own or [full for _, full in candidates])[0]


def _missing_reference(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: Element
) -> Element | None:
    """Link a name to where it is documented; show as text what is not public, or is not of this library."""
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    full = target if target in public_names() else _short_names().get(target)
    if full is not None:
        full = public_names()[full][1]
        if full != target:
            return env.domains["py"].resolve_xref(
                env, node["refdoc"], app.builder, "obj", full, node, contnode
            )
        return None
    foreign = target.partition(".")[0] in missing()
    return contnode if foreign or target in _other_names() or _can_be_imported(target) else None


@cache
def _candidates() -> dict[str, list[tuple[str, str]]]:
    """Page and dotted name of what has a name without its module, in the order of the pages."""
    found: dict[str, list[tuple[str, str]]] = {}
    for here in dict.fromkeys(public_names().values()):
        found.setdefault(here[1].rpartition(".")[2], []).append(here)
    return found


@cache
def _short_names() -> dict[str, str]:
    """Dotted names by names without their module, where only one has it."""
    return {short: found[0][1] for short, found in _candidates().items() if len(found) == 1}


@cache
def _other_names() -> frozenset[str]:
    """Names of types that signatures have: of Python, of other libraries, and those that are not public."""
    found = set(dir(builtins))
    for module in _PLACES:
        found |= set(dir(import_module(module)))
    for folder in ("client", "adapters"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(_defined(ast.parse(path.read_text(encoding="utf-8"))))
    return frozenset(found)


def _defined(code: ast.Module) -> Iterator[str]:
    yield from (
        alias.asname or alias.name
        for node in ast.walk(code)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
    for node in ast.walk(code):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name))


def _can_be_imported(target: str) -> bool:
    module, _, name = target.rpartition(".")
    try:
        return bool(module) and find_spec(module) is not None and hasattr(import_module(module), name)
    except (ImportError, ValueError):
        return False
