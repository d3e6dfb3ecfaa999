"""A network's own certificate authority, and a certificate for each of its agents.

The authority's key signs once, when the network is made; nodes need only its certificate. An agent's certificate
carries its name (`agent-3`), by which the neighbours' access control knows it, and the host it listens on.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Any

from consilience.errors import NetworkError

_VALID_DAYS = 825
_BACKDATED = datetime.timedelta(days=1)  # a machine whose clock is somewhat behind accepts them too


def make_authority(directory: Path, name: str) -> tuple[Any, Any]:
    """A new authority: writes `authority.pem` and `authority.key`; returns its certificate and key."""
    certificate, key = _signed(name, None, [], _VALID_DAYS)
    _write(directory / "authority.pem", _pem(certificate))
    _write(directory / "authority.key", _private(key), secret=True)
    return certificate, key


def issue(
    authority: tuple[Any, Any], directory: Path, name: str, hosts: list[str], valid_days: float = _VALID_DAYS
) -> None:
    """A certificate signed by the authority: writes `NAME.pem` and `NAME.key`."""
    certificate, key = _signed(name, authority, hosts, valid_days)
    _write(directory / f"{name}.pem", _pem(certificate))
    _write(directory / f"{name}.key", _private(key), secret=True)


def require_usable(certificate: Path, key: Path, authority: Path) -> None:
    """Check before a connection fails for it: the files are there and readable, and the certificate is valid now."""
    from cryptography import x509

    for path in (certificate, key, authority):
        try:
            path.read_bytes()
        except FileNotFoundError:
            raise NetworkError(
                f"{path} is missing: carry it over from the machine where `network init` ran"
            ) from None
        except OSError as error:
            raise NetworkError(f"{path} cannot be read ({error.strerror}): let the node's user read it") from None
    now = datetime.datetime.now(datetime.UTC)
    for path in (certificate, authority):
        try:
            found = x509.load_pem_x509_certificate(path.read_bytes())
        except ValueError:
            raise NetworkError(f"{path} is not a certificate: carry it over again") from None
        if now > found.not_valid_after_utc:
            raise NetworkError(
                f"{path} expired at {found.not_valid_after_utc:%Y-%m-%d %H:%M} UTC (it is {now:%Y-%m-%d %H:%M} "
                "here): make new ones with `consilience network init`, or set this machine's clock"
            )
        if now < found.not_valid_before_utc:
            raise NetworkError(
                f"{path} is valid only from {found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC and it is "
                f"{now:%Y-%m-%d %H:%M} here: set this machine's clock"
            )


def _signed(name: str, authority: tuple[Any, Any] | None, hosts: list[str], valid_days: float) -> tuple[Any, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority[0].subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED + min(datetime.timedelta(), datetime.timedelta(days=valid_days)))
        .not_valid_after(now + datetime.timedelta(days=valid_days))
        .add_extension(
            x509.BasicConstraints(ca=authority is None, path_length=None if authority else 0), critical=True
        )
    )
    if authority is not None:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        names = [_general_name(host) for host in dict.fromkeys(["localhost", *hosts])]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority[1] if authority else key, hashes.SHA256()), key


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _private(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, secret: bool = False) -> None:
    """Write a file; a secret one is never readable by others, not even for a moment."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
