"""Who logs in: read where the connection is made, from a file or the environment, and never shipped."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from redelivery import parse_uri
from redelivery.errors import ConfigurationError
from redelivery.registry import schemes, unknown
from redelivery.uri.joining import with_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.settings import Settings

__all__ = [
    "PASSWORD",
    "USER",
    "connectable",
    "logged_in",
    "refuse_shipped",
    "with_credentials",
]

USER, PASSWORD = "REDELIVERY_USER", "REDELIVERY_PASSWORD"


def connectable(url: str, options: Mapping[str, str]) -> tuple[str, Settings]:
    """Return a URI with more options, and what it says. No library of a protocol is loaded, and nothing connected.

    Raises:
        ConfigurationError: it makes no sense, or no adapter serves its scheme.
    """
    uri = with_options(url, options)
    settings = parse_uri(uri)
    known = schemes()
    for endpoint in settings.endpoints:
        if endpoint.scheme not in known:
            raise unknown(endpoint.scheme)
    # The driver plans batches, and executors handle their rows: nothing here could keep a row back.
    if settings.has_breaker and settings.breaker is not None:
        raise ConfigurationError(
            "redelivery.breaker has no place here: a batch is not held back; leave the options of the breaker out, or "
            "say redelivery.breaker=off",
            option="redelivery.breaker",
        )
    if settings.rate is not None:
        raise ConfigurationError(
            "redelivery.rate has no place here: use maxRowsPerTrigger and the trigger's interval",
            option="redelivery.rate",
        )
    return uri, settings


def logged_in(uri: str, settings: Settings, file: str | None) -> str:
    """Return the URI with the credentials of the file, or of the environment, if any, and if it has none itself.

    Raises ConfigurationError. To be called where the connection is made, and nowhere else.
    """
    user, password = _credentials(file)
    if user is None or settings.user_name is not None:
        return uri
    return with_options(uri, {"jms.userName": user, "jms.password": password or ""})


def with_credentials(url: str, credentials_file: str | None = None) -> str:
    """Return a url that logs in as the source would: for a connection of one's own beside it, and nowhere else.

    Args:
        url: as for the option `url`.
        credentials_file: as for the option `credentialsFile`; without it the variables are read.

    Raises:
        ConfigurationError: the url makes no sense, or the file cannot be read.
    """
    return logged_in(url, parse_uri(url), credentials_file)


def refuse_shipped(settings: Settings) -> None:
    """Refuse in an url that executors need: credentials, which Spark would pickle and may show, and a host's ledger.

    Raises ConfigurationError, without repeating them.
    """
    if settings.ledger is not None:
        raise ConfigurationError(
            "redelivery.ledger has no place here: it is on the host of a consumer, and executors are elsewhere",
            option="redelivery.ledger",
        )
    if settings.user_name is not None or settings.password is not None:
        raise ConfigurationError(
            "the url has credentials, which would be shipped to every executor: name a file by credentialsFile, or set "
            f"{USER} and {PASSWORD} where executors run",
            option="url",
        )
    if settings.tls.key_password is not None:
        raise ConfigurationError(
            "redelivery.tlsKeyPassword would be shipped to every executor: use a key file without one, which only "
            "their user can read",
            option="redelivery.tlsKeyPassword",
        )


def _credentials(file: str | None) -> tuple[str | None, str | None]:
    if file is None:
        return os.environ.get(USER), os.environ.get(PASSWORD)
    try:
        found = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"credentialsFile={file} cannot be read: {error.strerror}", option="credentialsFile"
        ) from None
    except ValueError:  # its words may quote the file
        raise ConfigurationError(
            f"credentialsFile={file} is no TOML file", option="credentialsFile"
        ) from None
    user, password = found.get("user"), found.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise ConfigurationError(
            f'credentialsFile={file}: it needs two lines, user = "…" and password = "…"',
            option="credentialsFile",
        )
    return user, password
