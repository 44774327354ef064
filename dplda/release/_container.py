"""Tables and public values in one file or message: a safetensors file with a digest.

Any reader of safetensors finds the tables; ``docs/release.md`` describes the rest.
Reading runs no code, and allocates no more than the length that its caller has allowed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from dplda.leaf._files import IN_MEMORY, PUBLIC, check_writable, write_atomically

Content = TypeVar("Content")
Tables: TypeAlias = Mapping[str, np.ndarray]

# Of a file or message, which is read into memory: more than a fit can have made, 1,000
# topics of 250,000 words with their names.
MAX_BYTES = 2**31
_METADATA = "dplda"  # the only key: several keys have no fixed order
# end of the name of a table in Fortran order: in C order, its sums would differ in the
# last bit
_BY_COLUMNS = ".T"


def save(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that may be published."""
    check_writable(path)
    write_atomically(path, data, permissions=PUBLIC)


def load(
    path: str | os.PathLike[str], noun: str, read: Callable[[bytes], Content]
) -> Content:
    """What `read` makes of a file that may come from anyone, a `noun`.

    ValueError if `read` refuses it.
    """
    path = Path(path)
    with path.open("rb") as file:
        # a device has no size, and may never end
        is_too_large = os.fstat(file.fileno()).st_size > MAX_BYTES
        data = b"" if is_too_large else file.read(MAX_BYTES + 1)
    if is_too_large or len(data) > MAX_BYTES:
        raise ValueError(f"{path} is not read: it has more than {MAX_BYTES} bytes")
    try:
        return read(data)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not a valid {noun}: {error}; ask its author for it again"
        ) from error


def pack(
    kind: str,
    fields: Mapping[str, object],
    tables: Tables,
    *,
    max_header: int = IN_MEMORY,
) -> bytes:
    """Write values that JSON can hold, in at most `max_header` bytes, and tables."""
    stored = {}
    for name, table in tables.items():
        by_columns = table.flags.f_contiguous and not table.flags.c_contiguous
        rows = table.T if by_columns else table
        little = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<"))
        key = name + _BY_COLUMNS if by_columns else name
        stored[key] = little.reshape(rows.shape)
    try:
        content = json.loads(json.dumps(dict(fields), default=_plain))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"its fields do not fit into JSON: {error}") from None
    data = safetensors.numpy.save(stored, {_METADATA: _text(kind, content, stored)})
    _header_length(data, max_header)
    return data


def unpack(
    kind: str, data: bytes, *, max_header: int = IN_MEMORY
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The values and tables of untrusted bytes.

    ValueError if `pack` did not write them.
    """
    length = _header_length(data, max_header)
    try:
        stored = safetensors.numpy.load(data)
        header = json.loads(data[8 : 8 + length])
        text = header["__metadata__"][_METADATA]
        content = json.loads(text, parse_constant=_infinity)
        found = content["kind"]
        fields = dict(content["fields"])
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"it is not a file of dplda, or was cut off ({error})"
        ) from None
    if found != kind:
        raise ValueError(f"it is a {str(found)[:40]!r}, and a {kind!r} is expected")
    if text != _text(kind, fields, stored):
        raise ValueError("it was damaged: the checksum does not match")
    tables = {}
    for name, table in stored.items():
        native = table.astype(table.dtype.newbyteorder("="), copy=False)
        if name.endswith(_BY_COLUMNS):
            tables[name.removesuffix(_BY_COLUMNS)] = native.T
        else:
            tables[name] = native
    return fields, tables


def _header_length(data: bytes, most: int) -> int:
    length = int.from_bytes(data[:8], "little")
    if length > most:
        raise ValueError(f"its header has {length} bytes, more than {most}")
    return length


def _text(kind: str, fields: Mapping[str, object], stored: Tables) -> str:
    """The metadata, with a SHA-256 of everything that a reader can see."""
    names = sorted(stored)
    layout = [(name, stored[name].dtype.str, stored[name].shape) for name in names]
    digest = hashlib.sha256(json.dumps([kind, fields, layout]).encode("ascii"))
    for name in names:
        digest.update(stored[name].reshape(-1).view(np.uint8).data)
    return json.dumps({"kind": kind, "sha256": digest.hexdigest(), "fields": fields})


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"it holds a {type(value).__name__}")


def _infinity(text: str) -> float:
    """Infinity is a value, such as an epsilon; other constants beyond JSON are not."""
    if text != "Infinity":
        raise ValueError(f"it holds the number {text}")
    return math.inf
