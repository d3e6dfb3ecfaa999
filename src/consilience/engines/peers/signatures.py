"""Statements that members of a network sign with the key of their certificate, for members that they never meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consilience.engines.peers.certificates import signed_by
from consilience.errors import NetworkError


def sign(content: bytes, key: Path) -> bytes:
    """A member's signature under some bytes, by the key of its certificate."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    private: Any = load_pem_private_key(key.read_bytes(), None)
    try:
        return private.sign(content, *_scheme(private))
    except (AttributeError, TypeError):
        raise NetworkError(
            f"{key} is a key that cannot sign: use an elliptic-curve, Ed25519 or RSA key, as `network init` does"
        ) from None


def is_signed(content: bytes, signature: bytes, chain: bytes, name: str, authority: Path) -> bool:
    """Whether the holder of a certificate of the network's authority, with this name in it, signed some bytes.

    Args:
        content: what was signed.
        signature: what came with it.
        chain: the certificate as PEM, behind it those between it and the authority, if any.
        name: whose it must be: `agent-3`.
        authority: the certificate of the network's authority.
    """
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        own, *between = x509.load_pem_x509_certificates(chain)
        named = [str(one.value) for one in own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
        issuers = x509.load_pem_x509_certificates(authority.read_bytes())
        if named != [name] or not _leads_to(own, between, issuers):
            return False
        public: Any = own.public_key()
        public.verify(signature, content, *_scheme(public))
    except (InvalidSignature, ValueError, TypeError, AttributeError):
        return False
    return True


def _leads_to(own: Any, between: list[Any], issuers: list[Any]) -> bool:
    """Whether each certificate is signed by the next one, and the last by the authority."""
    for issuer in between:
        if not signed_by(own, issuer):
            return False
        own = issuer
    return any(signed_by(own, issuer) for issuer in issuers)


def _scheme(key: Any) -> tuple[Any, ...]:
    """How a kind of key signs."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        return padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH), hashes.SHA256()
    return ()
