"""Ed25519 signatures of files, as OpenSSL makes them: 64 bytes in a file next to the signed one."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dplda.leaf._files import check_kept_secret

PathLike: TypeAlias = str | os.PathLike[str]

SIZE = 64
_MAKE = "make one with: openssl genpkey -algorithm ed25519 -out key.pem"
_MAKE_PUBLIC = "make it with: openssl pkey -in key.pem -pubout -out public.pem"


def signature_path(path: PathLike) -> Path:
    """Where the signature of a file is, unless somebody says otherwise."""
    return Path(f"{os.fspath(path)}.sig")


def sign(data: bytes, key: PathLike) -> bytes:
    """Sign bytes with the private key in a PEM file.

    Raises
    ------
    ValueError
        If the file holds no Ed25519 private key, or one that is encrypted.
    OSError
        If the file cannot be read, or is open to other users of this machine.
    """
    return read_private_key(key).sign(data)


def is_signed(data: bytes, signature: bytes, key: PathLike) -> bool:
    """Whether the holder of the key, whose public part is in a PEM file, signed the bytes.

    Raises
    ------
    ValueError
        If the file holds no Ed25519 public key.
    OSError
        If the file cannot be read.
    """
    public = read_public_key(key)
    try:
        public.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def read_signature(path: PathLike) -> bytes:
    """Read a signature. A longer file is not read as a whole."""
    with open(path, "rb") as file:
        signature = file.read(SIZE + 1)
    if len(signature) != SIZE:
        raise ValueError(f"{path} is no Ed25519 signature, which has {SIZE} bytes")
    return signature


def read_private_key(path: PathLike) -> Ed25519PrivateKey:
    """Read a private key that is not encrypted, and that nobody else can read."""
    try:
        key = serialization.load_pem_private_key(Path(path).read_bytes(), password=None)
    except TypeError:
        raise ValueError(
            f"the private key {path} is encrypted; sign with OpenSSL, which asks for the password "
            "(docs/operations.md), or decrypt it"
        ) from None
    except (ValueError, UnsupportedAlgorithm):  # quotes nothing of the file
        raise ValueError(f"{path} holds no private key (PEM); {_MAKE}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"the private key {path} is not one of Ed25519; {_MAKE}")
    check_kept_secret(path)
    return key


def read_public_key(path: PathLike) -> Ed25519PublicKey:
    """Read a public key."""
    try:
        key = serialization.load_pem_public_key(Path(path).read_bytes())
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError(f"{path} holds no public key (PEM); {_MAKE_PUBLIC}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"the public key {path} is not one of Ed25519; {_MAKE_PUBLIC}")
    return key


def fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256 of a public key, as `openssl pkey -pubin -outform DER | sha256sum` prints it."""
    encoded = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(encoded).hexdigest()
