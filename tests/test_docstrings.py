"""Docstrings and comments name members of classes that are there; docstrings can be printed."""

from __future__ import annotations

import ast
import re

from tests.test_plan import modules_of_ours, source

OUTSIDE = {"Struct", "Protocol", "Exception", "StrEnum", "Enum", "Flag", "NamedTuple", "dict"}
"""Classes of others, whose members are not looked up."""

SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|\\U0000[dD]")
"""A surrogate, written as an escape: the source itself is UTF-8."""

MEMBER = re.compile(r"`([A-Z]\w*[a-z]\w*)\.(\w+)")


class Classes:
    """The members of each class, and its bases; those of classes of one name together."""

    def __init__(self) -> None:
        self.members: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}

    def add(self, name: str, members: set[str], bases: set[str]) -> None:
        self.members.setdefault(name, set()).update(members)
        self.bases.setdefault(name, set()).update(bases - OUTSIDE - {name})

    def has(self, name: str, member: str) -> bool:
        return name in OUTSIDE or (
            name in self.members
            and (
                member in self.members[name]
                or any(self.has(base, member) for base in self.bases[name])
            )
        )


def test_each_member_of_a_class_that_is_named_is_there() -> None:
    classes = Classes()
    named: list[tuple[str, str, str]] = []
    for module, path in modules_of_ours().items():
        text = path.read_text(encoding="utf-8")
        for found in source(path).classes:
            classes.add(*found)
        named += [(module, *it) for it in MEMBER.findall(text)]
    assert len(named) > 100
    assert [it for it in named if not classes.has(it[1], it[2])] == []


def test_each_docstring_can_be_written_in_utf_8() -> None:
    broken: list[str] = []
    for path in modules_of_ours().values():
        if SURROGATE.search(text := path.read_text("utf-8")):
            for node in ast.walk(ast.parse(text)):
                if isinstance(
                    node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
                ):
                    try:
                        (ast.get_docstring(node) or "").encode()
                    except UnicodeEncodeError:
                        broken.append(str(path))
    assert broken == []
