"""Configuration of the documentation's site: `python -m sphinx -W -n -b html docs docs/_build`, without network."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "client"), str(_ROOT / "adapters")]

from docs._generate.missing import missing  # noqa: E402 - needs the path
from docs._generate.sphinx_hooks import setup  # noqa: E402 - needs the path

import redelivery  # noqa: E402 - needs the path

__all__ = ["setup"]

project = "redelivery"
release = version = redelivery.__version__
copyright = "the authors of redelivery, Apache-2.0"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build", "_generate"]

# GitHub's anchors of headings, tables' dollars and file links as GitHub shows them.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_docstring_signature = False
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_mock_imports = missing()
# `Args:` of options that a call takes as `**options`.
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
add_module_names = False
# Each public name has a heading; entries for all methods would double the time of a build.
toc_object_entries = False
nitpicky = True

html_theme = "furo"
html_title = f"redelivery {release}"
html_short_title = "redelivery"
html_copy_source = False
html_show_sphinx = False
html_favicon = "_static/icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = []
html_theme_options = {
    "navigation_with_keys": True,
    "top_of_page_buttons": [],
}
pygments_style = "default"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"
# Every build is the same: no time of the build on the pages.
html_last_updated_fmt = None
