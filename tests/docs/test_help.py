"""`help` of the calls that make a connection."""

from __future__ import annotations

import inspect
import pydoc
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from redelivery.driver.arguments import ConsumerOptions, ListenOptions
from redelivery.driver.connection.sends import SendOptions

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.ci("pages: each block, link and generated part")

ARGUMENTS = {
    "policies": "RedeliveryPolicyMap | None",
    "dead_letters": "DeadLetterMap | None",
    "errors": "Classifier | None",
    "breaker": "Breaker | None",
    "ledger": "Ledger | str | None",
    "observers": "Sequence[Observer | Callable[[Event], object]] | None",
    "send_timeout": "float | timedelta | None",
    "on_stopped": "Callable[[BaseException], object] | None",
    "clock": "Clock | None",
}


@pytest.mark.parametrize("connect", [redelivery.connect, redelivery.connect_async])
def test_each_argument_is_shown(connect: Callable[..., Any]) -> None:
    """The signature and `help` show name, type and default of each keyword argument."""
    # None switches the breaker off.
    defaults = {"breaker": redelivery.Breaker()}
    shown = inspect.signature(connect).parameters
    assert list(shown) == ["uri", *ARGUMENTS]
    for name, annotation in ARGUMENTS.items():
        parameter = shown[name]
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert (parameter.annotation, parameter.default) == (annotation, defaults.get(name))
    text = pydoc.plain(pydoc.render_doc(connect))
    assert all(
        f"{name}: '{annotation}' = {defaults.get(name)}" in text for name, annotation in ARGUMENTS.items()
    )


@pytest.mark.parametrize("connect", [redelivery.connect, redelivery.connect_async])
def test_another_argument_is_an_error(connect: Callable[..., Any]) -> None:
    """A misspelt argument is a TypeError that names the near miss."""
    with pytest.raises(TypeError, match="'polices'; did you mean 'policies'"):
        connect("memory://x", polices=None)


@pytest.mark.parametrize("kind", [redelivery.Connection, redelivery.AsyncConnection])
@pytest.mark.parametrize("call", ["consumer", "listen", "send"])
def test_keywords_are_told_of(kind: type, call: str) -> None:
    """The help of each call names each of its keyword arguments."""
    options = {"consumer": ConsumerOptions, "listen": ListenOptions, "send": SendOptions}[call]
    text = pydoc.plain(pydoc.render_doc(getattr(kind, call)))
    assert [name for name in options.__annotations__ if name not in text] == []
