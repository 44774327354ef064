"""Files that are written as a whole and survive a power cut. Imports nothing of the package."""

from __future__ import annotations

import os
import tempfile


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace a file at once; the old one stays until then.

    A new file is readable by its owner only.

    Parameters
    ----------
    path : str or path-like
        The file.
    data : bytes
        The new content.

    Raises
    ------
    OSError
        If it cannot be written. The old file is unchanged.
    """
    path = os.path.abspath(path)
    folder = os.path.dirname(path)
    handle, part = tempfile.mkstemp(dir=folder)  # mode 0600
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
    sync_folder(folder)


def sync_folder(folder: str) -> None:
    """Make the names in a folder survive a power cut, where the system can do that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
