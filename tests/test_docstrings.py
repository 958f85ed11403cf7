"""Docstrings name members of classes that are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import acphold

SOURCE = Path(acphold.__file__).parent

OUTSIDE = {"Struct", "Protocol", "Exception", "StrEnum", "Enum", "Flag", "NamedTuple", "dict"}
"""Classes of others, whose members are not looked up."""

MEMBER = re.compile(r"`([A-Z]\w*[a-z]\w*)\.(\w+)")


@cache
def modules() -> dict[Path, ast.Module]:
    found = (it for it in SOURCE.rglob("*.py") if "node_modules" not in it.parts)
    return {it: ast.parse(it.read_text(encoding="utf-8")) for it in found}


@cache
def classes() -> dict[str, tuple[set[str], set[str]]]:
    """The members of each class, and its bases; those of classes of one name together."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names, bases = found.setdefault(node.name, (set(), set()))
                names.update(members(node))
                bases.update(ast.unparse(it).partition("[")[0].split(".")[-1] for it in node.bases)
    return found


def members(node: ast.ClassDef) -> Iterator[str]:
    for it in ast.walk(node):
        match it:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def has(name: str, member: str) -> bool:
    if name in OUTSIDE or name not in classes():
        return name in OUTSIDE
    names, bases = classes()[name]
    return member in names or any(has(base, member) for base in bases - {name} - OUTSIDE)


def texts() -> Iterator[tuple[str, str]]:
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node.value


def test_each_member_of_a_class_that_a_docstring_names_is_there() -> None:
    named = [(place, *it) for place, text in texts() for it in MEMBER.findall(text)]
    assert len(named) > 100
    assert [it for it in named if not has(it[1], it[2])] == []
