"""Allowed imports: layers, the core, the adapters, the libraries of the protocols."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

import pytest
from tests.house.source import (
    ADAPTERS,
    ROOT,
    SOURCE_ROOTS,
    compared,
    imports_in,
    imports_of,
    module_of,
    modules,
    shown,
    sources,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from tests.house.source import Import

pytestmark = pytest.mark.ci("rules of the house: the whole code is read")

CORE = ROOT / "client" / "redelivery" / "core"
WAITING = {"asyncio", "logging", "queue", "random", "selectors", "socket", "ssl", "threading", "time"}
LOWER = {"stomp": "redelivery_stomp", "proton": "redelivery_amqp"}
FRONT_ENDS = {"connection", "consumer", "session", "async_connection", "async_consumer", "async_session"}
"""The two front ends, which are the only users of the driver."""
LAYERS = [
    {"errors", "clock", "log"},
    # tenacity_policy belongs to the policies. It is outside of core/ because it loads tenacity.
    {"core", "tenacity_policy"},
    {"adapter", "adapter_support", "brokers", "ledger", "handler_exceptions", "classifier"},
    {"settings", "uri", "registry"},
    {"message", "escapes", "failure_log", "health", "events", "logs"},
    {"driver"},
    FRONT_ENDS,
    {"dlq", "importers", "prometheus"},
    # `redelivery` itself, which loads the public names at first use.
    {""},
    {"cli", "testing", "otel", "__main__"},
]
"""The folders and modules of `redelivery`, lowest first: each imports its own layer and those below."""
FOR_ADAPTERS = {"errors", "clock", "log", "settings", "adapter", "core", "adapter_support", "brokers"}
# Spark uses the library's tools and options, and its driver through the port only.
ABOVE_ADAPTERS = {
    "redelivery_spark.api.process imports redelivery.classifier",
    "redelivery_spark.batch.browse imports redelivery.dlq.dlq_connection",
    "redelivery_spark.batch.browse imports redelivery.dlq.dead_letter",
    "redelivery_spark.batch.browse imports redelivery.dlq.selection",
    "redelivery_spark.batch.drain imports redelivery.dlq.dead_letter",
    "redelivery_spark.batch.drain imports redelivery.dlq.dlq_connection",
    "redelivery_spark.batch.read_columns imports redelivery.dlq.dead_letter",
    "redelivery_spark.options.source_options imports redelivery",
    "redelivery_spark.options.credentials imports redelivery",
    "redelivery_spark.options.credentials imports redelivery.registry",
    "redelivery_spark.options.credentials imports redelivery.uri.syntax",
    "redelivery_spark.options.spark_option imports redelivery.uri.option_table",
}
INTO_THE_DRIVER: set[str] = set()
PORT = "redelivery.driver.port"


def unit(module: str) -> str:
    """Return the folder or the module of `redelivery` that a module belongs to; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def layer(module: str) -> int:
    """Return the number of a module's layer."""
    return next(number for number, units in enumerate(LAYERS) if unit(module) in units)


def upwards(module: str, imports: Iterable[Import]) -> set[str]:
    """Return the modules above its layer that a module of `redelivery` imports, at load or at run time."""
    return {
        f"{module} imports {each.name}"
        for each in imports
        if each.when != "typing"
        and each.name.partition(".")[0] == "redelivery"
        and layer(each.name) > layer(module)
    }


def above_adapters(module: str, imports: Iterable[Import]) -> set[str]:
    """Return the modules of `redelivery` that an adapter imports but may not, at load or at run time."""
    return {
        f"{module} imports {each.name}"
        for each in imports
        if each.when != "typing"
        and each.name.partition(".")[0] == "redelivery"
        and unit(each.name) not in FOR_ADAPTERS
        and each.name != PORT
    }


def into_the_driver(module: str, imports: Iterable[Import]) -> set[str]:
    """Return the modules of the driver, except the port, that a module imports, also for the type checker."""
    return {
        f"{module} imports {each.name}"
        for each in imports
        if f"{each.name}.".startswith("redelivery.driver.") and each.name != PORT
    }


def found(paths: Iterable[Path], forbidden: Collection[str], *, lazy: bool = True) -> list[str]:
    """Return the imports of forbidden top-level packages; `lazy`: also those inside functions."""
    return [
        f"{shown(path)} imports {each.name}"
        for path in paths
        for each in imports_of(path)
        if each.name.partition(".")[0] in forbidden and each.when in ("load", "lazy")[: 2 if lazy else 1]
    ]


def planted(code: str, module: str = "redelivery.core.planted") -> list[Import]:
    return imports_in(ast.parse(code), modules(), module)


def test_a_layer_imports_only_itself_and_what_is_below() -> None:
    """No module of the library imports a higher layer, at load or inside a function."""
    every = [upwards(name, imports_of(path)) for name, path in modules().items() if in_library(name)]
    assert set().union(*every) == set()


def in_library(module: str) -> bool:
    return module.partition(".")[0] == "redelivery"


def test_each_module_has_a_layer() -> None:
    """The table of layers names each folder and module of the library once, and nothing else."""
    listed = sorted(name for units in LAYERS for name in units)
    assert listed == sorted({unit(name) for name in modules() if in_library(name)})


def test_an_import_of_a_higher_layer_is_seen() -> None:
    """Imports upwards are found at load and inside functions; those for the type checker are not counted."""
    code = "from redelivery.uri import parser\ndef f():\n    if 1:\n        import redelivery.cli.app"
    forbidden = {"redelivery.core.planted imports redelivery.uri.parser"} | {
        "redelivery.core.planted imports redelivery.cli.app"
    }
    assert upwards("redelivery.core.planted", planted(code)) == forbidden
    typed = "if TYPE_CHECKING:\n    from redelivery.uri import parser"
    assert upwards("redelivery.core.planted", planted(typed)) == set()


def test_a_lazy_table_and_import_module_are_seen() -> None:
    """Names under TYPE_CHECKING in a package with `__getattr__`, and `import_module`, are lazy imports."""
    package = "if TYPE_CHECKING:\n    from redelivery.connection import connect\ndef __getattr__(name): ..."
    assert [each[:2] for each in planted(package)] == [("redelivery.connection", "lazy")]
    called = "def f():\n    return import_module('redelivery.cli')"
    assert [each[:2] for each in planted(called)] == [("redelivery.cli", "lazy")]
    relative = "from . import engine\nfrom ..uri import parser"
    assert [each.name for each in planted(relative)] == ["redelivery.core.engine", "redelivery.uri.parser"]


def test_adapters_see_only_the_seam() -> None:
    """Adapters import errors, clock, settings, adapter, core and adapter_support of the library; Spark some others."""
    every = [
        above_adapters(name, imports_of(path)) for name, path in modules().items() if not in_library(name)
    ]
    assert compared(set().union(*every), ABOVE_ADAPTERS) == {}
    assert above_adapters("redelivery_new", planted("from redelivery import connect")) != set()
    assert above_adapters("redelivery_new", planted("from redelivery.core import events")) == set()


def test_the_driver_is_imported_through_its_port() -> None:
    """Only the connection's front ends import modules of the driver other than the port."""
    every = [
        into_the_driver(name, imports_of(path))
        for name, path in modules().items()
        if not in_library(name) or unit(name) not in {*FRONT_ENDS, "driver"}
    ]
    assert compared(set().union(*every), INTO_THE_DRIVER) == {}
    code = f"from redelivery.driver import arguments\nfrom {PORT} import ConnectionPort"
    assert into_the_driver("x", planted(code)) == {"x imports redelivery.driver.arguments"}


def test_core_imports_nothing_that_waits() -> None:
    """The core reads no clock, starts no thread, opens no socket, writes no log and draws no random number."""
    assert found(sorted(CORE.rglob("*.py")), WAITING) == []


def test_core_imports_nothing_from_outside() -> None:
    """At load time the core needs the standard library, itself and the errors only."""
    for path in sorted(CORE.rglob("*.py")):
        for each in imports_of(path):
            top = each.name.partition(".")[0]
            inside = each.name.startswith("redelivery.core") or each.name == "redelivery.errors"
            outside = each.when == "load" and not inside and top not in sys.stdlib_module_names
            assert not outside, f"{path.name} imports {each.name}"


def test_client_never_imports_an_adapter() -> None:
    """The library finds adapters by entry point; only its testing package imports one, at first use."""
    paths = [path for path in sources("client") if "testing" not in path.parts]
    assert found(paths, ADAPTERS) == []
    testing = [path for path in sources("client") if "testing" in path.parts]
    assert found(testing, ADAPTERS, lazy=False) == []


@pytest.mark.parametrize("library", LOWER)
def test_a_protocol_library_stays_below_its_adapter(library: str) -> None:
    """Only its own adapter imports a protocol's library."""
    paths = [path for path in sources(*SOURCE_ROOTS) if LOWER[library] not in path.parts]
    assert found(paths, {library}) == []


def test_adapters_do_not_import_each_other() -> None:
    """Adapter packages do not import each other, except the small module by which Spark finds its source."""
    for name in ADAPTERS - {"pyspark_redelivery"}:
        inside = [path for path in sources("adapters") if module_of(path).partition(".")[0] == name]
        assert found(inside, ADAPTERS - {name}) == []


def test_a_list_of_exceptions_is_exact() -> None:
    """A list of exceptions fails for a missing one, and for one that is no longer needed: it can only shrink."""
    assert compared({"a", "b"}, {"a", "b"}) == {}
    assert compared({"a", "b"}, {"b", "c"}) == {"forbidden": ["a"], "needless": ["c"]}
