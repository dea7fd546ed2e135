"""Pages of the API reference: directives of autodoc for each public name. The texts are the docstrings."""

from __future__ import annotations

import inspect
import types
import typing
from typing import TYPE_CHECKING

from docs._generate.api_text import for_files
from docs._generate.public import PAGES, names_of

if TYPE_CHECKING:
    from docs._generate.public import ApiPage, Name

__all__ = ["api_index", "api_page"]

# Bases whose members are Python's own.
_FOREIGN = "object, BaseException, Exception, tuple, Enum, str, int, Protocol, Generic, DataSource, dict"


def api_index() -> str:
    """Return the page that lists the others."""
    rows = "\n".join(f"| [{page.title}]({page.file}.md) | {page.about} |" for page in PAGES)
    toc = "\n".join(page.file for page in PAGES)
    return f"""\
<!-- This page is generated: python -m docs._generate --write -->

# API

Public names are those on these pages. Every other module, and every name with an underscore, may change without notice.

| page | what it is for |
|---|---|
{rows}

```{{toctree}}
:hidden:

{toc}
```
"""


def api_page(page: ApiPage) -> str:
    """Return one page."""
    sections = "\n\n".join(_section(module, names) for module, names in names_of(page) if names)
    return f"""\
<!-- This page is generated from docstrings: python -m docs._generate --write -->

# {page.title}

{page.about}

{sections}
"""


def _section(module: str, names: list[Name]) -> str:
    parts = [
        f"### `{each.name}`\n\n{for_files(each)}```{{eval-rst}}\n{_directive(each)}\n```" for each in names
    ]
    return "\n\n".join([f"## From `{module}`", *parts])


def _directive(name: Name) -> str:
    value = name.value
    if inspect.isclass(value) and not isinstance(value, types.GenericAlias):
        kind = "exception" if issubclass(value, BaseException) else "class"
        return f".. auto{kind}:: {name.full}\n   :inherited-members: {_FOREIGN}"
    if inspect.isroutine(value):
        return f".. autofunction:: {name.full}"
    is_type = isinstance(value, types.UnionType | types.GenericAlias) or typing.get_origin(value) is not None
    plain = isinstance(value, int | float | str) and not is_type
    if not plain and not is_type and value.__doc__ == type(value).__doc__:
        # Its docstring is that of its class, which napoleon does not read here.
        return f".. data:: {name.full}\n\n   Constant of the type ``{type(value).__name__}``."
    return f".. autodata:: {name.full}" + ("" if plain else "\n   :no-value:")
