"""The plan of the house: which room may import which. See docs/architecture.md."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import acphold

SOURCE = Path(acphold.__file__).parent

ROWS = {
    "errors": 1,
    "schema": 2,
    "rpc": 3,
    "processes": 3,
    "transports": 4,
    "journal": 5,
    "workspace": 5,
    "mcp": 5,
    "agents": 6,
    "redaction": 6,
    "hub": 7,
    "server": 8,
    "library": 9,
    "client": 9,
    "conformance": 10,
    "exports": 10,
    "imports": 10,
    "sync": 10,
    "testing": 10,
    "web": 10,
    "screen": 11,
    "cli": 12,
    "__init__": 13,
    "__main__": 13,
}
"""A room may use any room on a lower row; rooms on one row do not know each other."""


class Edge(NamedTuple):
    """One import: the file it stands in, and the room it reaches into."""

    importer: str
    imported: str

    @property
    def room(self) -> str:
        return self.importer.split("/")[0].removesuffix(".py")


@cache
def _nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def import_edges(source: Path) -> Iterator[Edge]:
    """Every import of the package itself, late ones and those for types only included."""
    for path in sorted(source.rglob("*.py")):
        importer = str(path.relative_to(source))
        for node in _nodes(path):
            for module in _modules(node):
                parts = module.split(".")
                if parts[0] == "acphold" and len(parts) > 1:
                    yield Edge(importer, parts[1])


def _modules(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [name.name for name in names]
        case ast.ImportFrom(module=module, names=names, level=0) if module == "acphold":
            return [f"acphold.{name.name}" for name in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case ast.ImportFrom():
            raise AssertionError("relative imports hide the room they come from")
    return []


def test_every_import_points_down() -> None:
    for edge in import_edges(SOURCE):
        if edge.imported in ROWS and edge.imported != edge.room:
            assert ROWS[edge.imported] < ROWS[edge.room], f"{edge.importer} imports {edge.imported}"


def test_every_module_stands_in_a_room_of_the_plan() -> None:
    rooms = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix != ".typed"}
    assert rooms - {"__pycache__"} <= set(ROWS)


def test_no_modules_of_a_room_import_each_other_in_a_circle() -> None:
    paths = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE]
    modules = {_dotted(path): path for path in paths}
    graph = {
        name: {found for found in _imported(path, modules) if _room(found) == _room(name)}
        for name, path in modules.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def _imported(path: Path, modules: Collection[str]) -> Iterator[str]:
    """Those of `modules` that a file imports: `from a import b` imports `a.b` if that is one."""
    for node in _nodes(path):
        names = [name.name for name in node.names] if isinstance(node, ast.ImportFrom) else [""]
        for module in _modules(node):
            for name in names:
                found = f"{module}.{name}"
                yield from {found if found in modules else module} & set(modules)


def _room(module: str) -> str:
    return module.split(".")[1]


def _dotted(path: Path) -> str:
    """The name by which a module is imported."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_a_file_name_stands_in_one_room_only() -> None:
    names = Counter(path.name for path in SOURCE.rglob("*.py") if not path.name.startswith("__"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_function_has_more_than_forty_lines() -> None:
    """Without its docstring, which may be the help of a command."""
    for path in SOURCE.rglob("*.py"):
        for node in _nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                told = ast.get_docstring(node, clean=False) or ""
                lines = (node.end_lineno or 0) - node.lineno - told.count("\n")
                assert lines <= 40, f"{path}: {node.name} has {lines} lines"
