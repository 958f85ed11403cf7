"""A file written as a whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from acp_wire.errors import ExportError


@contextmanager
def replace_file(path: str) -> Iterator[TextIO]:
    """Yield a file that replaces `path` at the end of the block.

    Only its owner can read it. An exception leaves the old file; raises ExportError. A device or a
    pipe is written to directly.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w", encoding="utf-8", newline="") as device:
                yield device
            return
        made, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".acphold-")
        try:
            with os.fdopen(made, "w", encoding="utf-8", newline="") as file:
                yield file
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: str, error: OSError) -> ExportError:
    """Return the error for a file that cannot be written."""
    return ExportError(f"cannot write {path}: {error.strerror or error}; choose another path")
