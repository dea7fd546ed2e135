"""Generated parts of pages are as the code is, and leave nothing out."""

from __future__ import annotations

import inspect
from difflib import unified_diff
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
from tests.for_each import for_each
from tests.house.surface import PACKAGES
from tests.needs import need

from redelivery import errors, handler_exceptions
from redelivery.uri.option_table import OPTIONS, Option, option_rows

if TYPE_CHECKING:
    from docs._generate.parts import Part

pytestmark = pytest.mark.ci("pages: each block, link and generated part")
for _library in ("click", "proton", "pyspark", "stomp", "prometheus_client", "opentelemetry"):
    need(_library)

# ruff: noqa: E402 - the generator reads all adapters
from docs._generate import commands, public
from docs._generate import errors as errors_part
from docs._generate.api_text import without_text
from docs._generate.capabilities import FEATURES, pairs
from docs._generate.options import HEAD, row_of
from docs._generate.pages import PARTS
from docs._generate.parts import cell, current, table, with_part
from docs._generate.places import DOCS


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part.page}:{part.name}")
def test_pages_are_as_the_code_is(part: Part) -> None:
    """A generated part equals what `python -m docs._generate --write` writes."""
    page, code = part.path.read_text(encoding="utf-8").splitlines(), current(part).splitlines()
    changes = "\n".join(unified_diff(page, code, "page", "code", lineterm="", n=0))
    assert not changes, f"run python -m docs._generate --write\n{changes}"


@for_each(OPTIONS.values())
def test_each_option_is_documented(option: Option) -> None:
    """Each option has a row in which no cell is empty."""
    row = row_of(option)
    assert len(row) == len(HEAD)
    assert [head for head, text in zip(HEAD, row, strict=True) if not text.strip()] == []


def test_configuration_has_each_option_and_no_other() -> None:
    """The rows of the configuration page are the options that the parser knows."""
    page = next(part.path for part in PARTS if part.name == "options").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(row[0] for row in option_rows())


def test_each_command_is_documented() -> None:
    """Each command of the command line has a heading, and each of its options a row."""
    page = next(part.path for part in PARTS if part.name == "commands").read_text(encoding="utf-8")
    assert len(commands.all_commands()) > 10
    for name, command, context in commands.all_commands():
        section = page.partition(f"### `{name}`\n")[2].partition("\n### ")[0]
        assert section, name
        for parameter in command.get_params(context):
            for option in (each for each in parameter.opts if each.startswith("--")):
                assert option in section, f"{name} {option}"


def test_each_public_name_is_on_an_api_page() -> None:
    """Each name of the `__all__` of a public module is documented on a page."""
    assert set(PACKAGES) - set(public.public_modules()) == set()
    documented = public.public_names()
    objects = {id(public.Name(*full.rpartition(".")[::2]).value) for _, full in documented.values()}
    missing = [
        f"{module}.{name}"
        for module in public.public_modules()
        for name in import_module(module).__all__
        if f"{module}.{name}" not in documented and id(getattr(import_module(module), name)) not in objects
    ]
    assert missing == []


def test_public_modules_are_all_there() -> None:
    """Each package of the distribution has its names on the API pages."""
    packages = {each.partition(".")[0] for each in public.public_modules()}
    assert packages == {
        "redelivery",
        "redelivery_memory",
        "redelivery_stomp",
        "redelivery_amqp",
        "redelivery_spark",
    }


def test_each_exception_is_documented() -> None:
    """Each exception has a cause, a raiser, the fate of the message, and what to do."""
    kinds = {
        name
        for module in (errors, handler_exceptions)
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) and name != "RedeliveryError"
    }
    assert set(errors_part.EXCEPTIONS) == kinds
    raised = errors_part.raisers()
    assert [name for name in kinds if not raised.get(name)] == []


def test_each_exit_code_is_documented() -> None:
    """Each exit code of the command line has its cause on the page of errors."""
    from redelivery.cli import exit_codes  # noqa: PLC0415 - it needs the extra

    assert set(errors_part.CODES) == {name for name in exit_codes.__all__ if name.isupper()}


def test_the_table_of_brokers_has_no_gap() -> None:
    """Each feature has an answer for each broker and protocol, and a consequence."""
    for feature in FEATURES:
        assert feature.consequence.endswith(".")
        assert all(feature.answer(able) for able in pairs().values()), feature.name


def test_tables_and_marks() -> None:
    """Bars and line ends are written for a table's cell; a page without marks is refused."""
    assert cell("a | b\n  c") == "a \\| b c"
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"
    page = with_part(
        "x\n<!-- generated: n (python -m docs._generate --write) -->\n\n<!-- end of n -->\n", "n", "new"
    )
    assert "\n\nnew\n\n" in page
    with pytest.raises(ValueError, match="the page has no"):
        with_part("nothing", "n", "new")


def test_an_api_page_says_something_as_a_file() -> None:
    """A file of the reference names the calls and their arguments, in text that the site leaves out."""
    page = (DOCS / "api" / "connect.md").read_text(encoding="utf-8")
    (sent,) = {
        line for line in page.splitlines() if line.startswith("| `send(destination, body, *, headers=")
    }
    assert "delay=…" in sent
    assert "Send a message and wait until the broker has confirmed it." in sent
    site = without_text(page)
    assert "| member |" not in site
    assert site.count("{eval-rst}") == page.count("{eval-rst}") == page.count("\n### ")
