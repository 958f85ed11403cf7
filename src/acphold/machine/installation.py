"""The installed code of this process, kept for as long as the process lives.

A program that runs for days imports some of its modules only when they are needed. An upgrade
replaces or removes their files meanwhile, and what is imported then would not fit what is there
already. So the code is kept in memory, compressed, as it was found; the process can be asked
whether its files are still the same, and then make room for its successor.
"""

# See docs/decisions.md, 18.

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

Stamp = tuple[int, int, int]
"""Inode, time of change and size, which tell a file from another one."""


class _Kept(Struct, frozen=True):
    path: str
    code: bytes
    is_compiled: bool
    is_package: bool


def keep_code(*packages: str) -> None:
    """Keep what these imported packages have not imported yet; it comes from memory from now on.

    May be called in any thread. Raises OSError if a file cannot be read.
    """
    sys.meta_path.insert(0, _Installation(packages))


def is_kept() -> bool:
    """Return True once the code is kept."""
    return _installation() is not None


def is_replaced() -> bool:
    """Return True if the code is kept, and a file of it is another one by now, or gone."""
    return (found := _installation()) is not None and found.is_replaced()


def _installation() -> _Installation | None:
    return next((finder for finder in sys.meta_path if isinstance(finder, _Installation)), None)


class _Installation:
    """The modules of packages, which are imported from here."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._kept: dict[str, _Kept] = {}
        self._stamps: dict[str, Stamp] = {}
        for package in packages:
            for folder in sys.modules[package].__path__:
                self._keep(package, folder)

    def _keep(self, package: str, folder: str) -> None:
        import zlib

        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            stem, dot, ending = entry.name.partition(".")
            if dot and ending == "py":
                is_package = stem == "__init__"
                name = package if is_package else f"{package}.{stem}"
                self._stamps[entry.path] = _stamp(entry.path)
                if name in sys.modules:
                    continue
                code, is_compiled = _code_of(entry.path)
                self._kept[name] = _Kept(
                    entry.path, zlib.compress(code, 1), is_compiled, is_package
                )
            elif os.path.isfile(os.path.join(entry.path, "__init__.py")):
                self._keep(f"{package}.{entry.name}", entry.path)

    def is_replaced(self) -> bool:
        try:
            return any(_stamp(path) != stamp for path, stamp in self._stamps.items())
        except OSError:
            return True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a kept module."""
        if (kept := self._kept.get(fullname)) is None:
            return None
        from importlib.machinery import ModuleSpec

        loader: Any = _Loader(kept)
        spec = ModuleSpec(fullname, loader, origin=kept.path, is_package=kept.is_package)
        spec.has_location = True
        if kept.is_package:
            spec.submodule_search_locations = [os.path.dirname(kept.path)]
        return spec


class _Loader:
    def __init__(self, kept: _Kept) -> None:
        self._kept = kept

    def create_module(self, spec: ModuleSpec) -> None:
        """Return nothing: Python makes the module."""

    def exec_module(self, module: ModuleType) -> None:
        import marshal
        import zlib

        code = zlib.decompress(self._kept.code)
        found = marshal.loads(code) if self._kept.is_compiled else None
        compiled = found or compile(code, self._kept.path, "exec", dont_inherit=True)
        exec(compiled, module.__dict__)


def _code_of(path: str) -> tuple[bytes, bool]:
    """Return the compiled code of a source, if Python has kept it (PEP 552), or else the source."""
    import importlib.util

    found = os.stat(path)
    seconds, size = int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF
    header = importlib.util.MAGIC_NUMBER + (seconds << 32 | size << 64).to_bytes(12, "little")
    try:
        with open(importlib.util.cache_from_source(path), "rb") as file:
            compiled = file.read()
    except (OSError, NotImplementedError):
        compiled = b""
    if compiled.startswith(header):
        return compiled[len(header) :], True
    with open(path, "rb") as source:
        return source.read(), False


def _stamp(path: str) -> Stamp:
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_size
