"""Certificates and keys that identify the parties: PEM files and TLS."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from dplda.leaf._files import check_kept_secret


def binary(pem: bytes) -> bytes:
    """The first certificate in a PEM text, in binary form."""
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


def certificate_text(path: Path) -> str:
    """Only the first certificate of a file, as a plan has it.

    The file may also hold a private key, which no other party may see.
    """
    return pem_of(certificate_of(path))


def pem_of(certificate: bytes) -> str:
    """A certificate in binary form as a text."""
    found = x509.load_der_x509_certificate(certificate)
    return found.public_bytes(Encoding.PEM).decode()


def check_dates(certificate: bytes, name: str) -> None:
    """Refuse a certificate that is not valid today; `name` says whose it is."""
    found = x509.load_der_x509_certificate(certificate)
    today = datetime.now(UTC)
    if not found.not_valid_before_utc <= today <= found.not_valid_after_utc:
        raise ValueError(
            f"the certificate of {name} is valid from {found.not_valid_before_utc:%F} "
            f"to {found.not_valid_after_utc:%F}, and today is {today:%F}; make a new "
            "one (openssl req), and a new plan with it, or set the clock"
        )


def private_key(path: Path) -> EllipticCurvePrivateKey:
    """The key of a file, which signs for a party's certificate."""
    key = load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError(f"{path} holds no elliptic curve key (openssl -newkey ec)")
    return key


def certificate_of(path: Path) -> bytes:
    """The first certificate of a file."""
    try:
        return binary(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} holds no certificate (PEM)") from error


def tls_context(
    protocol: int, certificate: Path, key: Path, known: list[bytes]
) -> ssl.SSLContext:
    """TLS 1.3 that shows its own certificate, and asks for a known one in return.

    A certificate that was handed over in person is trusted without its authority. For a
    coordinator, the known certificate may also be the one of its authority.
    """
    context = ssl.SSLContext(protocol)  # a client also checks the coordinator's name
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    for other in known:
        context.load_verify_locations(cadata=other)
    for path in (certificate, key):  # the error of a missing file names it
        path.read_bytes()
    try:
        # never asks at the terminal
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(
            f"{key} holds no key of the certificate {certificate} that can be read "
            "without a password (PEM)"
        ) from error
    check_kept_secret(key)
    return context
