"""TLS is verified unless that is switched off, and no credential is ever shown."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any

import pytest

import redelivery
from integration.eventually import eventually
from integration.proxy import LinkProxy
from integration.work import POLICY, Running, Work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.brokers import Broker

ELSEWHERE = "127.0.0.2"  # not in the certificate
WRONG = "hunter2%wrong"


@pytest.fixture
def elsewhere(broker: Broker) -> Iterator[LinkProxy]:
    """The TLS port, at an address that its certificate does not name."""
    proxy = LinkProxy(broker.stomps_port, opaque=True)
    proxy.host = ELSEWHERE
    with proxy:
        yield proxy


def serves(uri: str, queue: str) -> bool:
    """True if a message can be sent and received."""
    with redelivery.connect(uri) as connection:
        connection.send(queue, "x" * 100_000)
        message = connection.consumer(queue).receive(timeout=60)
        return message is not None and len(message.body) == 100_000 and message.accept()


def test_with_the_authority_given(broker: Broker, unique_queue: str) -> None:
    """An authority in `redelivery.tlsCaFile` is trusted."""
    assert serves(broker.uri(tls=True, redelivery__tlsCaFile=broker.ca_pem), unique_queue)


def test_an_unknown_authority_is_refused(broker: Broker, unique_queue: str) -> None:
    """An unknown authority is refused by default, with a clear TransportError; the password is not sent."""
    with pytest.raises(redelivery.TransportError, match="certificate is not trusted"):
        serves(broker.uri(tls=True), unique_queue)


def test_a_certificate_of_another_host_is_refused(
    broker: Broker, elsewhere: LinkProxy, unique_queue: str
) -> None:
    """A certificate of another host is refused, although its authority is trusted."""
    uri = broker.uri(tls=True, port=elsewhere.port, redelivery__tlsCaFile=broker.ca_pem)
    with pytest.raises(redelivery.TransportError, match=r"certificate is not trusted.*127\.0\.0\.2"):
        serves(uri.replace(broker.host, ELSEWHERE), unique_queue)


def test_verification_can_be_switched_off(broker: Broker, elsewhere: LinkProxy, unique_queue: str) -> None:
    """`redelivery.tlsVerify=false` accepts any certificate and any host."""
    uri = broker.uri(tls=True, port=elsewhere.port, redelivery__tlsVerify="false")
    assert serves(uri.replace(broker.host, ELSEWHERE), unique_queue)


@pytest.mark.parametrize("option", ["tlsCaFile", "tlsCertFile"])
def test_a_file_that_is_no_certificate(broker: Broker, tmp_path: Path, option: str) -> None:
    """A file that is not a certificate is a ConfigurationError with the option and the file."""
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    options: dict[str, Any] = {f"redelivery__{option}": bad}
    with (
        pytest.raises(redelivery.ConfigurationError, match=rf"redelivery\.{option}.*bad\.pem"),
        redelivery.connect(broker.uri(tls=True, **options)),
    ):
        pass


@pytest.mark.parametrize("tls", [False, True], ids=["tcp", "tls"])
def test_credentials_are_never_shown(
    broker: Broker, unique_queue: str, caplog: pytest.LogCaptureFixture, *, tls: bool
) -> None:
    """Credentials are in no log at any level, in no repr, and in no error with all its causes."""
    options: dict[str, Any] = {"redelivery__tlsCaFile": broker.ca_pem} if tls else {}
    uri, shown = broker.uri(tls=tls, **options), []
    for name in (None, "redelivery", "redelivery.wire", "stomp.py"):
        caplog.set_level(logging.DEBUG, logger=name)
    policies = redelivery.RedeliveryPolicyMap(default=POLICY(maximum_redeliveries=0))
    with redelivery.connect(uri, policies=policies) as connection:
        connection.listen(unique_queue, Work())
        shown += [repr(connection), repr(connection.settings), str(connection.settings)]
        with Running(connection):
            connection.send(unique_queue, "bad")
            eventually(lambda: connection.report().poisoned == 1)
            for denied in (
                lambda: connection.send("denied.x", "no"),
                lambda: connection.consumer("denied.y"),
            ):
                shown.append(failure(denied))
    wrong = uri.replace(broker.password, "hunter2%25wrong")
    for bad in (wrong, f"{uri}&redelivery.nonsense=1", uri.replace(broker.host, "127.0.0.9")):
        shown.append(failure(lambda bad=bad: redelivery.connect(bad).__enter__()))
    assert "certificate" not in shown[-3], "the wrong password was what was refused"
    text = "\n".join([*shown, caplog.text, *(repr(record.args) for record in caplog.records)])
    assert {"redelivery", "redelivery.wire"} <= {record.name for record in caplog.records}
    for secret in (broker.password, WRONG, "hunter2", broker.user):
        assert secret not in text, lines_with(secret, text)


def failure(action: Any) -> str:
    """Return the text of the error that this must raise, with all its causes."""
    with pytest.raises(redelivery.RedeliveryError) as caught:
        action()
    return "".join(traceback.format_exception_only(caught.value)) + repr(chain(caught.value))


def chain(error: BaseException | None) -> list[BaseException]:
    """Return the error and its causes."""
    return [] if error is None else [error, *chain(error.__cause__ or error.__context__)]


def lines_with(secret: str, text: str) -> list[str]:
    """Return the lines with the secret."""
    return [line for line in text.splitlines() if secret in line]
