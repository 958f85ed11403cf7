"""The destination and the form of an export; a file is written completely or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import TextIO

from msgspec import Struct

from acphold.errors import ExportError
from acphold.exports.session_head import Head, Writer

IndexWriter = Callable[[Iterable[Head], str], str]
"""Makes the index file for others, given their suffix."""


class Form(Struct, frozen=True):
    """A form of an export: the suffix of its files, and the module that writes it.

    The module is imported on demand. Only a form with pages needs one file per session.
    """

    name: str
    suffix: str
    module: str
    has_index: bool = True
    has_pages: bool = False

    def writer(self) -> Writer:
        """Return the writer for sessions."""
        found: Writer = getattr(self._module(), self.module)
        return found

    def index(self, heads: Iterable[Head]) -> str | None:
        """Return the text of the index file for all of these; None if the form has none."""
        if not self.has_index:
            return None
        found: IndexWriter = self._module().index
        return found(heads, self.suffix)

    def _module(self) -> ModuleType:
        return import_module(f"acphold.exports.{self.module}")


FORMS = {
    "markdown": Form("markdown", ".md", "markdown"),
    "jsonl": Form("jsonl", ".jsonl", "json_lines", has_index=False),
    "html": Form("html", ".html", "page", has_pages=True),
}


def form_of(path: str) -> Form | None:
    """Return the form for a file's name; None if its suffix is unknown."""
    suffix = os.path.splitext(path)[1].lower()
    also = {".markdown": ".md", ".htm": ".html", ".ndjson": ".jsonl"}
    suffix = also.get(suffix, suffix)
    return next((form for form in FORMS.values() if form.suffix == suffix), None)


@contextmanager
def replaced(path: str) -> Iterator[TextIO]:
    """Yield a file that replaces `path` at the end of the block.

    Only its owner can read it. An exception leaves the old file; raises ExportError. A device or a
    pipe is written to directly.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        try:
            with open(path, "w", encoding="utf-8", newline="") as device:
                yield device
        except OSError as error:
            raise _unwritable(path, error) from error
        return
    try:
        made, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".acphold-")
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        with os.fdopen(made, "w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise


def folder(path: str) -> str:
    """Make a folder for exports unless it exists; only its owner can enter a new one."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def _unwritable(path: str, error: OSError) -> ExportError:
    return ExportError(f"cannot write {path}: {error.strerror or error}; name another place")
