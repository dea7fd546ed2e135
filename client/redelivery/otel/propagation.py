"""Trace context in the headers of a message.

It uses the propagator that the application has set, or the default one. The name of a JMS property has no
`-`. OpenTelemetry's Java agent writes `__dash__` for it, and this module does the same. `traceparent`,
`tracestate` and `baggage` have no `-`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

__all__ = ["extracted", "inject"]

_BAGGAGE = "baggage"


class _Headers(Getter["Mapping[str, Any]"]):
    """Reader of a propagator's fields in the headers of a message."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        """Return the value of a header if it is text."""
        value = carrier.get(key)
        if value is None and "-" in key:
            value = carrier.get(_property(key))
        # A producer may have set a number, which is ignored.
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        """Return the names of the headers."""
        return [*carrier]


class _Fields(Setter[dict[str, str]]):
    """Collector of the fields that a propagator sets."""

    def set(self, carrier: dict[str, str], key: str, value: str) -> None:
        """Keep one field."""
        carrier[key] = value


_HEADERS, _FIELDS = _Headers(), _Fields()


def extracted(headers: Mapping[str, Any]) -> Context:
    """Return the context of a message: its producer's span, and its baggage.

    The current context has no part in it: handling a message does not belong to the operation that started
    the consumer.
    """
    return propagate.get_global_textmap().extract(headers, Context(), getter=_HEADERS)


def inject(headers: MutableMapping[str, Any], context: Context) -> None:
    """Add a context to the headers of a message.

    A trace, or baggage, that the application has given itself is kept.
    """
    textmap = propagate.get_global_textmap()
    found: dict[str, str] = {}
    textmap.inject(found, context, _FIELDS)
    given = any(_given(name, headers) for name in textmap.fields if name != _BAGGAGE)
    for name, value in found.items():
        if not (_given(name, headers) if name == _BAGGAGE else given):
            headers[_property(name)] = value


def _given(name: str, headers: Mapping[str, Any]) -> bool:
    return name in headers or _property(name) in headers


def _property(name: str) -> str:
    return name.replace("-", "__dash__")
