"""The binary format of release files and messages: a header, one table, a checksum.

The bytes are a safetensors file, so that programs in any language can read the table. That format
has no checksum, and its readers accept repeated and unknown fields. Here the header holds a
SHA-256, and must be, byte for byte, what this module writes. ``docs/release.md`` describes it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

_LENGTH = struct.Struct("<Q")
_NUMPY = {"F32": "<f4", "F64": "<f8"}
_NO_DIGEST = "0" * 64
# A table in Fortran order is stored transposed: sums in another order differ in the last bit.
_BY_ROWS, _BY_COLUMNS = "table", "table.T"


@dataclass(frozen=True)
class Format:
    """A kind of file or message.

    Parameters
    ----------
    name : str
        The first value of its header.
    dtype : {"F32", "F64"}
        Type of the table.
    max_header : int
        Largest number of bytes of a header.
    version : str, default="1"
        One character; another version has other fields.
    """

    name: str
    dtype: Literal["F32", "F64"]
    max_header: int
    version: str = "1"

    def pack(self, fields: Mapping[str, Any], table: npt.NDArray[Any]) -> bytes:
        """Write fields and a table of two dimensions as bytes.

        Raises
        ------
        ValueError
            If JSON cannot hold the fields without loss, or the header is too long.
        """
        by_columns = table.flags.f_contiguous and not table.flags.c_contiguous
        cells = np.ascontiguousarray(table.T if by_columns else table, _NUMPY[self.dtype])
        text = json.dumps(_plain(fields), separators=(",", ":"), allow_nan=False)
        name = _BY_COLUMNS if by_columns else _BY_ROWS
        header = self._header(text, name, cells.shape, _NO_DIGEST)
        if len(header) > self.max_header:
            raise ValueError(f"the header has {len(header)} bytes, more than {self.max_header}")
        header = self._header(text, name, cells.shape, _digest(header, cells))
        return b"".join((_LENGTH.pack(len(header)), header, cells.data))

    def read(self, file: io.BufferedIOBase, size: int) -> tuple[dict[str, Any], npt.NDArray[Any]]:
        """Read fields and table from `size` bytes of unknown origin.

        The table is read only after its length has been compared with the size.

        Raises
        ------
        ValueError
            If the bytes are anything other than what `pack` writes.
        """
        header = self._read_header(file, size)
        try:
            content = json.loads(header.decode("ascii"))
            metadata = content.pop("__metadata__")
            text, digest = metadata["fields"], metadata["sha256"]
            ((name, tensor),) = content.items()
            shape = tensor["shape"]
            if not (isinstance(text, str) and isinstance(digest, str)):
                raise TypeError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise ValueError("its header is not that of this format") from None
        self._check_shape(shape, size - _LENGTH.size - len(header))
        # Writing the header again must give the same bytes: no field is repeated, unknown, or of
        # another type.
        if name not in (_BY_ROWS, _BY_COLUMNS) or header != self._header(text, name, shape, digest):
            raise ValueError("its header is not written as this format prescribes")
        cells = np.empty(shape, _NUMPY[self.dtype])
        file.readinto(cells.data)
        if digest != _digest(self._header(text, name, shape, _NO_DIGEST), cells):
            raise ValueError("it was damaged or cut off: the checksum does not match")
        table = cells.astype(cells.dtype.newbyteorder("="), copy=False)
        return _load(text), table.T if name == _BY_COLUMNS else table

    def _header(self, text: str, name: str, shape: Any, digest: str) -> bytes:
        """The header, padded so that the table begins at a multiple of 8 bytes."""
        size = math.prod(shape) * np.dtype(_NUMPY[self.dtype]).itemsize
        content = {
            "__metadata__": {
                "format": self.name,
                "version": self.version,
                "sha256": digest,
                "fields": text,
            },
            name: {"dtype": self.dtype, "shape": list(shape), "data_offsets": [0, size]},
        }
        header = json.dumps(content, separators=(",", ":")).encode("ascii")
        return header + b" " * (-len(header) % 8)

    def _read_header(self, file: io.BufferedIOBase, size: int) -> bytes:
        start = f'{{"__metadata__":{{"format":"{self.name}","version":"'.encode("ascii")
        head = file.read(_LENGTH.size + len(start) + 1)
        if head[_LENGTH.size : -1] != start:
            raise ValueError("it does not begin with the header of this format")
        version = head[-1:].decode("ascii", "replace")
        if version != self.version:
            raise ValueError(
                f"it has format {version!r}, and this version of dplda reads {self.version!r}"
            )
        (length,) = _LENGTH.unpack_from(head)
        if not len(head) <= length <= min(self.max_header, size - _LENGTH.size):
            raise ValueError("its header is too long, or it was cut off")
        return head[_LENGTH.size :] + file.read(length - len(head) + _LENGTH.size)

    def _check_shape(self, shape: Any, n_bytes: int) -> None:
        if not (
            isinstance(shape, list)
            and len(shape) == 2
            and all(type(n) is int and n >= 1 for n in shape)
        ):
            raise ValueError("shape must be a list of two positive integers")
        if math.prod(shape) * np.dtype(_NUMPY[self.dtype]).itemsize != n_bytes:
            raise ValueError(f"its shape does not fit the {n_bytes} bytes of its table")


def as_number(value: Any) -> Any:
    """A value of a field, where "inf" stands for infinity."""
    return math.inf if value == "inf" else value


def _plain(value: Any) -> Any:
    """A value as JSON holds it without loss. JSON has no infinity, so that it becomes "inf"."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return "inf" if value == math.inf else value
    raise ValueError(f"the format holds numbers and strings, got {type(value).__name__}")


def _digest(header: bytes, cells: npt.NDArray[Any]) -> str:
    """SHA-256 of everything, with zeros in place of the digest."""
    digest = hashlib.sha256(_LENGTH.pack(len(header)) + header)
    digest.update(cells.data)
    return digest.hexdigest()


def _load(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(
            text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=_unrepeated
        )
    except RecursionError:
        raise ValueError("its fields are nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("its fields must be an object")
    return fields


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it holds the number {text[:20]}, which is not finite")
    return number


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("it has a field twice")
    return dict(pairs)
