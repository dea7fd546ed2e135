"""OpenTelemetry spans and metrics of a connection.

They continue the traces of the messages' producers. Give one `Telemetry` to each connection::

    connect(uri, observers=[redelivery.otel.Telemetry()])

It needs the extra `otel`: pip install 'redelivery[otel]'.
"""

from __future__ import annotations

try:
    from redelivery.otel.telemetry import Telemetry
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise ModuleNotFoundError(
        "redelivery.otel needs opentelemetry-api, which is not installed here: pip install 'redelivery[otel]'",
        name=error.name,
    ) from None

__all__ = ["Telemetry"]
