"""docs/architecture.md: its rooms are those of the plan, and the code has everything it names."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.distributions import FOLDERS
from tests.test_plan import ROOMS, SOURCES, WALLS, WINGS

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([a-z_]+/[a-z_/]+\.py)(?::([A-Za-z_.]+))?`", PAGE)


def test_the_tables_of_wings_and_rooms_are_the_plan() -> None:
    rows = {place: int(row) for row, place in re.findall(r"^- (\d+) `([\w/]+)`▪?: ", PAGE, re.M)}
    wings = {wing: row for wing, row in WINGS.items() if not wing.startswith("__")}
    rooms = {
        f"{inside.removeprefix('acphold.')}/{room}": row
        for inside, places in ROOMS.items()
        for room, row in places.items()
    }
    assert rows == wings | rooms


def test_the_rooms_that_can_be_read_alone_are_those_with_walls() -> None:
    marked = set(re.findall(r"^- \d+ `(\w+/\w+)`▪: ", PAGE, re.M))
    inside = {place.removeprefix("acphold.").replace(".", "/") for place in WALLS}
    assert marked == {place for place in inside if "/" in place}


def test_the_table_of_distributions_is_the_plan() -> None:
    told = dict(re.findall(r"^\| `([\w/]+)` \| ([\w-]+) \|", PAGE, re.M))
    assert {name.replace("-", "_") for name in told.values()} == {*FOLDERS}


def test_what_the_page_names_is_in_the_code() -> None:
    named = [(file, name) for file, name in NAMED if "test_" not in file]
    assert len(named) > 100
    assert [it for it in named if it[1] not in defined(_file(it[0]))] == []


def _file(name: str) -> Path:
    package, _, rest = name.partition("/")
    return SOURCES[package] / rest if package in SOURCES else SOURCES["acphold"] / name


@cache
def defined(file: Path) -> set[str]:
    """Functions, classes and methods of a module, and "" for itself."""
    names = {""}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
            inside = getattr(node, "body", [])
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
            names |= {f"{node.name}.{item.name}" for item in inside if isinstance(item, kinds)}
    return names
