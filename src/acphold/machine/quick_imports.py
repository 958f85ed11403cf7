"""Our own modules, found and read in few steps.

Python looks for a module in every way it knows: five endings in a listing of the folder, the name
of its bytecode put together anew, its file read in pieces. With two hundred modules in front of an
editor's first answer, that is a twentieth of the wait. One of ours is a source with its bytecode
beside it. Whatever is not as usual is left to Python: a source in a zip file, bytecode that is
missing, of another kind, or not of this source in this place.
"""

# See docs/decisions.md, 25.

from __future__ import annotations

import os
import sys
from marshal import loads

TYPE_CHECKING = False  # see quick_start
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import BuiltinImporter, ModuleSpec, SourceFileLoader
    from importlib.util import MAGIC_NUMBER
    from types import CodeType, ModuleType
else:  # where `importlib` itself has them from
    from _frozen_importlib import BuiltinImporter, ModuleSpec
    from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader

OURS = ("acphold.", "acp_wire.")
"""The beginnings of the names that are found here."""

MOST_BYTES = 1 << 16
"""Bytes of a file of bytecode that is read here."""

ENDING = f".{sys.implementation.cache_tag}.pyc"


def import_quickly() -> None:
    """Find our modules in this way from now on, if Python keeps their bytecode in the usual way."""
    is_usual = not sys.flags.optimize and sys.pycache_prefix is None
    if is_usual and QuickFinder not in sys.meta_path and BuiltinImporter in sys.meta_path:
        # Behind the finders that others have put in front of Python's.
        sys.meta_path.insert(sys.meta_path.index(BuiltinImporter), QuickFinder)


def header_of(source: os.stat_result) -> bytes:
    """Return the beginning of the bytecode of this source: its time and its size (PEP 552)."""
    time, size = int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF
    return MAGIC_NUMBER + (time << 32 | size << 64).to_bytes(12, "little")


class QuickFinder:
    """Finds our modules; see `sys.meta_path`."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of ours; None if Python has to look for it."""
        if not path or not name.startswith(OURS):
            return None
        folder, stem = path[0], name.rpartition(".")[2]
        is_package = True  # Python looks for that first, too
        try:
            found = os.stat(source := f"{folder}/{stem}/__init__.py")
            folder, stem = f"{folder}/{stem}", "__init__"
        except OSError:
            is_package = False
            try:
                found = os.stat(source := f"{folder}/{stem}.py")
            except OSError:
                return None
        compiled = f"{folder}/__pycache__/{stem}{ENDING}"
        loader = _Loader(name, source, compiled, header_of(found))
        spec = ModuleSpec(name, loader, origin=source, is_package=is_package)
        spec.has_location, spec.cached = True, compiled
        if is_package:
            spec.submodule_search_locations = [folder]
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, compiled: str, header: bytes) -> None:
        super().__init__(name, path)
        self._compiled = compiled
        self._header = header

    # Not `exec_module`: tracebacks would have a frame of ours, and Python's, which it leaves out.
    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the module."""
        try:
            reading = os.open(self._compiled, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(reading, MOST_BYTES)
            finally:
                os.close(reading)
            if data.startswith(self._header):
                code: CodeType = loads(memoryview(data)[len(self._header) :])
                if code.co_filename == self.path:
                    return code
                sys.meta_path.remove(QuickFinder)  # all was moved: to read it twice takes longer
        except (OSError, EOFError, ValueError, TypeError, AttributeError):
            pass  # it is missing or damaged, or there is more of it
        return super().get_code(fullname)
