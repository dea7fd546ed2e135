"""User and password: read from a file or the environment where the connection is made, and not sent elsewhere."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from redelivery import parse_uri
from redelivery.errors import ConfigurationError
from redelivery.registry import schemes, unknown
from redelivery.uri.syntax import with_options
from redelivery_spark.options.option_mistakes import OptionMistakes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redelivery.settings import Settings

__all__ = [
    "PASSWORD",
    "USER",
    "checked_url",
    "connectable",
    "logged_in",
    "refuse_shipped",
    "with_credentials",
]

USER, PASSWORD = "REDELIVERY_USER", "REDELIVERY_PASSWORD"


def connectable(url: str, options: Mapping[str, str]) -> tuple[str, Settings]:
    """Return a URI with more options, and its settings. No protocol library is loaded, and nothing connects.

    Raises:
        ConfigurationError: The URI cannot be read, no adapter serves its scheme, or it has options for consumers only.
    """
    uri = with_options(url, options)
    settings = parse_uri(uri)
    known = schemes()
    mistakes = OptionMistakes()
    for endpoint in settings.endpoints:
        if endpoint.scheme not in known:
            mistakes.add(unknown(endpoint.scheme))
    # The Spark driver plans batches, and executors handle their rows: no component here can hold a row back.
    if settings.has_breaker and settings.breaker is not None:
        mistakes.refuse(
            "redelivery.breaker",
            "redelivery.breaker: not supported here, because a batch cannot be held back; remove the options of the "
            "breaker, or set redelivery.breaker=off",
        )
    if settings.rate is not None:
        mistakes.refuse(
            "redelivery.rate",
            "redelivery.rate: not supported here; use maxRowsPerTrigger and the trigger's interval",
        )
    mistakes.check()
    return uri, settings


def checked_url(
    url: str | None, options: Mapping[str, str], mistakes: OptionMistakes
) -> tuple[str, Settings | None]:
    """Return what `connectable` does; note its mistakes. None: the URL is missing, or has mistakes."""
    if url is None or not url.strip():
        return "", None
    wrong: tuple[str, Settings | None] = ("", None)
    return mistakes.attempt(lambda: connectable(url, options), wrong)


def logged_in(uri: str, settings: Settings, file: str | None) -> str:
    """Return the URI with the credentials of the file or of the environment, unless it has its own or there are none.

    Raises ConfigurationError. Call it only where the connection is made.
    """
    user, password = _credentials(file)
    if user is None or settings.user_name is not None:
        return uri
    return with_options(uri, {"jms.userName": user, "jms.password": password or ""})


def with_credentials(url: str, credentials_file: str | None = None) -> str:
    """Return a URI with the same credentials as the source uses, for a connection of your own.

    Call it where you connect: the result contains the password.

    Args:
        url: URI as for the option `url`. Credentials in it are kept.
        credentials_file: TOML file as for the option `credentialsFile`. None: the environment variables
            `REDELIVERY_USER` and `REDELIVERY_PASSWORD`; without them the URI is returned unchanged.

    Returns:
        The URI with `jms.userName` and `jms.password`.

    Raises:
        ConfigurationError: The URI cannot be read; or the file cannot be read, or lacks `user` or `password`.
    """
    return logged_in(url, parse_uri(url), credentials_file)


def refuse_shipped(settings: Settings) -> None:
    """Refuse settings that must not go to executors: credentials, which Spark pickles and can show, and a ledger.

    Raises ConfigurationError. Its text does not contain the credentials.
    """
    mistakes = OptionMistakes()
    if settings.ledger is not None:
        mistakes.refuse(
            "redelivery.ledger",
            "redelivery.ledger: not supported here, because a ledger is on one host and executors run on others; "
            "remove it",
        )
    if settings.user_name is not None or settings.password is not None:
        mistakes.refuse(
            "url",
            "url: it has credentials, and Spark would send them to every executor; use credentialsFile, or set "
            f"{USER} and {PASSWORD} where executors run",
        )
    if settings.tls.key_password is not None:
        mistakes.refuse(
            "redelivery.tlsKeyPassword",
            "redelivery.tlsKeyPassword: Spark would send it to every executor; use a key file without a password, "
            "which only the executors' user can read",
        )
    mistakes.check()


def _credentials(file: str | None) -> tuple[str | None, str | None]:
    if file is None:
        return os.environ.get(USER), os.environ.get(PASSWORD)
    try:
        found = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"credentialsFile={file}: cannot be read ({error.strerror})", option="credentialsFile"
        ) from None
    except ValueError:  # its text can quote the file
        raise ConfigurationError(
            f'credentialsFile={file}: not a TOML file; it needs two lines, user = "…" and password = "…"',
            option="credentialsFile",
        ) from None
    user, password = found.get("user"), found.get("password")
    if not isinstance(user, str) or not isinstance(password, str):
        raise ConfigurationError(
            f'credentialsFile={file}: it needs two lines, user = "…" and password = "…"',
            option="credentialsFile",
        )
    return user, password
