"""TLS of a federation: each side proves who it is by a certificate that the other one was given."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path

from dplda.leaf._files import check_kept_secret


def certificate_of(path: Path) -> bytes:
    """The first certificate of a PEM file, in binary form.

    Raises
    ------
    ValueError
        If there is none.
    """
    pem = re.search(
        rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", path.read_bytes(), re.DOTALL
    )
    try:
        data = ssl.PEM_cert_to_DER_cert(pem[0].decode("ascii") if pem else "")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data)
    except ValueError as error:  # an SSLError is one
        raise ValueError(f"{path} holds no certificate (PEM)") from error
    return data


def server_context(certificate: Path, key: Path, parties: Mapping[bytes, str]) -> ssl.SSLContext:
    """TLS of a coordinator. With `parties`, names by certificate, nobody else is let in."""
    context = _context(ssl.PROTOCOL_TLS_SERVER)
    _load_own(context, certificate, key)
    if parties:
        context.verify_mode = ssl.CERT_REQUIRED
        for data in parties:
            context.load_verify_locations(cadata=data)
    return context


def client_context(
    authority: Path | None, certificate: Path | None, key: Path | None
) -> ssl.SSLContext:
    """TLS of a party. `authority` signed the coordinator's certificate, or is that certificate."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT)  # checks the certificate, and the name in it
    if authority is None:
        context.load_default_certs()
    else:
        certificate_of(authority)
        context.load_verify_locations(cafile=authority)
    if certificate is not None and key is not None:
        _load_own(context, certificate, key)
    return context


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # a certificate that was handed over in person is trusted without its authority
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    certificate_of(certificate)
    with key.open("rb"):  # the error of a missing file names it
        pass
    try:
        context.load_cert_chain(certificate, key, password="")  # never asks at the terminal
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(
            f"{key} holds no key of the certificate {certificate} that can be read without a "
            "password (PEM)"
        ) from error
    check_kept_secret(key)
