"""Pictures of README and the start page: the output of `redelivery demo` as SVG, for light and for dark pages.

`python -m docs.make_picture` writes them to `docs/images`. The demo runs on a manual clock, so that each run has the
same times, and the files the same bytes: a test makes them again. No font is loaded from elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from redelivery.cli.demo import LOOK, Demo, Outcome, TableView
from redelivery.testing import ManualClock

__all__ = ["IMAGES", "THEMES", "demo_output", "svg"]

IMAGES = Path(__file__).parent / "images"
THEMES: dict[str, TerminalTheme] = {"light": DEFAULT_TERMINAL_THEME, "dark": SVG_EXPORT_THEME}
COLUMNS = 88
# Rich's own format loads a font from a network; this one has the same parts without it.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<title>What redelivery demo prints</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def demo_output() -> str:
    """Return what the demo prints on a terminal with colours, up to its advice on what to do next."""
    clock = ManualClock()
    printed = io.StringIO()
    terminal = {"FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    with mock.patch.dict(os.environ, terminal), contextlib.redirect_stdout(_Utf8(printed)):
        # Rich before 13.9 shows no colours also if this is empty.
        os.environ.pop("NO_COLOR", None)
        demo = Demo(400, clock)
        view = TableView(demo, bars=False)
        with view.live():
            for event in demo.run(lambda: clock.advance(LOOK)):
                if isinstance(event, Outcome):
                    view.outcome(event)
                else:
                    view.attempt(event)
    return "$ redelivery demo\n" + printed.getvalue().partition("\nNext:")[0]


class _Utf8(io.TextIOBase):
    """A stdout that can show every character."""

    encoding = "utf-8"

    def __init__(self, printed: io.StringIO) -> None:
        self._printed = printed

    def write(self, text: str) -> int:
        return self._printed.write(text)

    def isatty(self) -> bool:
        return False


def svg(output: str, theme: TerminalTheme) -> str:
    """Return a terminal's output as SVG."""
    screen = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard"
    )
    screen.print(Text.from_ansi(output), soft_wrap=True)
    made = screen.export_svg(title="redelivery demo", theme=theme, code_format=FORMAT, unique_id="demo")
    return "\n".join(line.rstrip() for line in made.splitlines()) + "\n"


def main() -> None:
    """Write both pictures."""
    output = demo_output()
    for name, theme in THEMES.items():
        path = IMAGES / f"demo-{name}.svg"
        path.write_text(svg(output, theme), encoding="utf-8")
        sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
