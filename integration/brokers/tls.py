"""A self-signed certificate for the brokers' TLS acceptors."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from integration.brokers.toolchain import JAVA_SOURCES, cache_root, locked, run

if TYPE_CHECKING:
    from pathlib import Path

STORE_PASSWORD = "changeit"
# Names of a broker's own copies, in its folder.
KEY_STORE = "broker.p12"
CERTIFICATE = "broker.pem"
PRIVATE_KEY = "broker.key"


class Certificate(NamedTuple):
    """The broker's key store (PKCS12) and the certificate that clients must trust (PEM)."""

    key_store: Path
    ca_pem: Path


def certificate() -> Certificate:
    """Return the certificate for localhost and 127.0.0.1, which keytool makes once, and the cache keeps."""
    folder = cache_root() / "tls"
    made = Certificate(folder / "broker.p12", folder / "ca.pem")
    with locked("tls"):
        folder.mkdir(exist_ok=True)
        if not made.ca_pem.exists():
            made.key_store.unlink(missing_ok=True)
            (folder / "broker.key").unlink(missing_ok=True)
            _keytool(
                made.key_store,
                "-genkeypair",
                *("-keyalg", "RSA", "-keysize", "2048", "-validity", "3650", "-dname", "CN=localhost"),
                *("-ext", "san=dns:localhost,ip:127.0.0.1", "-ext", "bc:critical=ca:true"),
                # Strict checks (Python 3.13's default) require the key usage in a trusted certificate.
                *("-ext", "ku:critical=digitalSignature,keyEncipherment,keyCertSign"),
            )
            _write(made.ca_pem, _keytool(made.key_store, "-exportcert", "-rfc"))
    return made


def private_key() -> Path:
    """Return the certificate's private key as PEM, for brokers that read no key store."""
    made = certificate()
    path = made.key_store.with_suffix(".key")
    with locked("tls"):
        if not path.exists():
            program = str(JAVA_SOURCES / "PemKey.java")
            _write(
                path, run(["java", program, str(made.key_store), STORE_PASSWORD, "broker"], "reading the key")
            )
    return path


def _write(path: Path, text: str) -> None:
    # A rename is atomic: an interrupted run leaves no incomplete file.
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="ascii")
    part.rename(path)


def _keytool(store: Path, command: str, *options: str) -> str:
    common = ["-alias", "broker", "-storetype", "PKCS12", "-keystore", str(store)]
    return run(["keytool", command, *common, "-storepass", STORE_PASSWORD, *options], "keytool")
