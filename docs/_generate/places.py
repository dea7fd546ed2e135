"""Folders of the repository that the documentation is made from."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DOCS", "ROOT"]

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
