"""Where an export is written to, and in which form; a file is there whole or not at all."""

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

Index = Callable[[Iterable[Head], str], str]
"""Makes the file that leads to others, whose suffix it is told."""


class Form(Struct, frozen=True):
    """A form of an export: the suffix of its files, and the module that writes it.

    That is imported when it is asked for. Only one with pages needs a file for each session.
    """

    name: str
    suffix: str
    module: str
    has_index: bool = True
    has_pages: bool = False

    def writer(self) -> Writer:
        """What writes a session."""
        found: Writer = getattr(self._module(), self.module)
        return found

    def index(self, heads: Iterable[Head]) -> str | None:
        """The text of the file that leads to all of these; None if there is no such file."""
        if not self.has_index:
            return None
        found: Index = self._module().index
        return found(heads, self.suffix)

    def _module(self) -> ModuleType:
        return import_module(f"acphold.exports.{self.module}")


FORMS = {
    "markdown": Form("markdown", ".md", "markdown"),
    "jsonl": Form("jsonl", ".jsonl", "json_lines", has_index=False),
    "html": Form("html", ".html", "page", has_pages=True),
}


def form_of(path: str) -> Form | None:
    """The form that a file's name tells; None when it tells none."""
    suffix = os.path.splitext(path)[1].lower()
    also = {".markdown": ".md", ".htm": ".html", ".ndjson": ".jsonl"}
    suffix = also.get(suffix, suffix)
    return next((form for form in FORMS.values() if form.suffix == suffix), None)


@contextmanager
def replaced(path: str) -> Iterator[TextIO]:
    """A file to write to that takes the place of `path` at the end of the block.

    Only its owner can read it. An exception leaves what was there; raises ExportError. A device or
    a pipe is written to as it is.
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
    """Make a folder for exports, which only its owner can enter, if it is not there yet."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def _unwritable(path: str, error: OSError) -> ExportError:
    return ExportError(f"cannot write {path}: {error.strerror or error}; name another place")
