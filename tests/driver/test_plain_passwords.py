"""Warning of a password that is sent unencrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest
from tests.needs import need

import redelivery
from redelivery.driver.connection.connection_driver import PlainPasswords, is_loopback
from redelivery.errors import TransportError
from redelivery.settings import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def connecting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[str], list[str]]:
    """Return the log lines of connecting to an address that does not answer."""

    def nobody(*_: object) -> NoReturn:
        raise TransportError("no broker is there")

    def connect(uri: str) -> list[str]:
        caplog.clear()
        connection = redelivery.connect(uri)
        monkeypatch.setattr(connection._driver._adapter, "open", nobody)
        for _ in range(2):
            with pytest.raises(TransportError):
                connection._driver._addresses.try_each(connection._driver._connect_first)
        assert "s3cret" not in caplog.text
        assert "shop" not in caplog.text
        return caplog.messages

    return connect


@pytest.mark.parametrize(
    ("uri", "warned"),
    [
        ("stomp://shop:s3cret@broker", ["stomp://broker:61613"]),
        ("amqp://broker?jms.userName=shop&jms.password=s3cret", ["amqp://broker:5672"]),
        ("stomp+ssl://shop:s3cret@broker", []),
        ("amqps://shop:s3cret@broker", []),
        ("stomp://shop:s3cret@localhost", []),
        ("amqp://shop:s3cret@127.3.2.1", []),
        ("stomp://shop:s3cret@[::1]", []),
        ("amqp://shop:s3cret@[::ffff:127.0.0.1]", []),
        ("stomp://shop@broker", []),
        ("stomp://broker", []),
        (
            "failover:(stomp://shop:s3cret@a,stomp+ssl://shop:s3cret@b,stomp://shop:s3cret@c)?randomize=false",
            ["stomp://a:61613", "stomp://c:61613"],
        ),
    ],
)
def test_a_password_that_leaves_the_host(
    connecting: Callable[[str], list[str]], uri: str, warned: list[str]
) -> None:
    """Each address is named once for a connection, however often it connects, without credentials."""
    if uri.startswith("amqp"):
        need("proton")
    encrypted = {"stomp": "stomp+ssl", "amqp": "amqps"}
    assert connecting(uri) == [
        f"{address}: the password is sent unencrypted, readable on the network; "
        f"use {encrypted[address.partition(':')[0]]}://"
        for address in warned
    ]


def test_a_name_with_several_addresses_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """A password that goes to each node behind one name is one warning, of the name."""
    warnings = PlainPasswords(redelivery.parse_uri("stomp://shop:s3cret@cluster.test"))
    for ip in (None, "10.0.0.4", "10.0.0.5"):
        warnings.before(Endpoint("stomp", "cluster.test", 61613, ip))
    (said,) = caplog.messages
    assert said.startswith("stomp://cluster.test:61613: the password is sent unencrypted")


def test_loopback() -> None:
    """A loopback name is known without a look-up; a name that only resembles one is not."""
    names = ("LOCALHOST.", "a.localhost", "localhost.evil.org", "127.0.0.1.org", "0.0.0.0")
    assert [name for name in names if is_loopback(name)] == ["LOCALHOST.", "a.localhost"]
