"""A network's own certificate authority, and a certificate for each of its agents.

The authority's key signs once, when the network is made; nodes need only its certificate. An agent's certificate
carries its name (`agent-3`), by which the neighbours' access control knows it, and the host it listens on.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
import os
from pathlib import Path
from typing import Any

from consilience.errors import NetworkError

log = logging.getLogger("consilience.peers")
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


def require_usable(certificate: Path, key: Path, authority: Path, name: str) -> None:
    """Check before a connection fails for it: the files are there, readable, valid now, and belong together.

    Args:
        certificate: of the member.
        key: its private key, which nobody else should be able to read.
        authority: the certificate of the network's authority.
        name: whose it must be: `agent-3`.
    """
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
                "here): make new ones with `consilience network renew NETWORK` where the network was made and carry "
                "them over, or set this machine's clock"
            )
        if now < found.not_valid_before_utc:
            raise NetworkError(
                f"{path} is valid only from {found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC and it is "
                f"{now:%Y-%m-%d %H:%M} here: set this machine's clock"
            )

    _require_own(certificate, key, authority, name)


def _require_own(certificate: Path, key: Path, authority: Path, name: str) -> None:
    """Check that a certificate carries the member's name, that the key is its, and that the authority signed it."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    own, *between = x509.load_pem_x509_certificates(certificate.read_bytes())
    issuers = [*between, *x509.load_pem_x509_certificates(authority.read_bytes())]
    named = [str(one.value) for one in own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    if named != [name]:
        raise NetworkError(
            f"{certificate} is the certificate of {', '.join(named) or 'nobody'}, not of {name}: carry over the one "
            "that belongs here"
        )
    if not any(signed_by(own, issuer) for issuer in issuers):
        raise NetworkError(
            f"{certificate} was not signed by {authority}: both must come from the same `network init`"
        )
    try:
        private: Any = load_pem_private_key(key.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise NetworkError(f"{key} is not a private key: carry it over again") from None
    if private.public_key() != own.public_key():
        raise NetworkError(f"{key} does not belong to {certificate}: carry both over again")
    if key.stat().st_mode & 0o077:
        log.warning("%s can be read by others on this machine: `chmod 600 %s` keeps it to its owner", key, key)


def signed_by(certificate: Any, issuer: Any) -> bool:
    """Whether one certificate was signed with the key of another."""
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def renew(directory: Path) -> list[str]:
    """New certificates for all members of a network, for the same names and hosts; returns the names.

    Keys stay as they are, and members' private ones are not needed: only the certificates have to be carried over.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key((directory / "authority.key").read_bytes(), None)
        issuer = x509.load_pem_x509_certificate((directory / "authority.pem").read_bytes())
    except FileNotFoundError as error:
        raise NetworkError(
            f"{error.filename} is missing: renew certificates where `network init` ran, with the authority's key"
        ) from None
    authority = _signed("", None, [], _VALID_DAYS, like=issuer, key=key)[0], key  # of the same key
    _write(directory / "authority.pem", _pem(authority[0]))
    renewed = []
    for path in sorted(directory.glob("*.pem")):
        if path.stem != "authority":
            old = x509.load_pem_x509_certificate(path.read_bytes())
            _write(path, _pem(_signed("", authority, [], _VALID_DAYS, like=old)[0]))
            renewed.append(path.stem)
    return renewed


def _signed(
    name: str,
    authority: tuple[Any, Any] | None,
    hosts: list[str],
    valid_days: float,
    like: Any = None,
    key: Any = None,
) -> tuple[Any, Any]:
    """A certificate and its key: a new pair for a name and hosts, or one `like` another, for the same public key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    if key is None and like is None:
        key = ec.generate_private_key(ec.SECP256R1())
    subject = like.subject if like else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority[0].subject if authority else subject)
        .public_key(like.public_key() if like else key.public_key())
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
        names = x509.SubjectAlternativeName([_general_name(host) for host in dict.fromkeys(["localhost", *hosts])])
        if like:
            names = like.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        builder = builder.add_extension(names, critical=False)
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
    draft = path.with_name(f"{path.name}.partial")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
    os.replace(draft, path)
