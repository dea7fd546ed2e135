"""All generated parts, and the pages that they belong to."""

from __future__ import annotations

from functools import partial

from docs._generate.api import api_index, api_page
from docs._generate.capabilities import capabilities_table
from docs._generate.claims import claims_page
from docs._generate.commands import commands_reference
from docs._generate.errors import errors_page
from docs._generate.options import options_table
from docs._generate.parts import Part
from docs._generate.public import PAGES

__all__ = ["PARTS"]

PARTS = (
    Part("configuration.md", "options", options_table),
    Part("cli.md", "commands", commands_reference),
    Part("brokers.md", "capabilities", capabilities_table),
    Part("errors.md", "errors", errors_page),
    Part("claims.md", "", claims_page),
    Part("api/index.md", "", api_index),
    *(Part(f"api/{page.file}.md", "", partial(api_page, page)) for page in PAGES),
)
