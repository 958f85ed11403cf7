"""docs/architecture.md: its rooms are those of the plan, and the code has everything it names."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import acphold
from tests.test_plan import ROWS

SOURCE = Path(acphold.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([a-z_]+/[a-z_]+\.py)(?::([A-Za-z_.]+))?`", PAGE)


def test_the_table_of_rooms_is_the_plan() -> None:
    rows = {room: int(row) for row, room in re.findall(r"^\| (\d+) \| `(\w+)` \|", PAGE, re.M)}
    rooms = {path.stem for path in SOURCE.iterdir() if not path.name.startswith("_")}
    assert rows == {room: row for room, row in ROWS.items() if room in rooms}


def test_what_the_page_names_is_in_the_code() -> None:
    named = [(file, name) for file, name in NAMED if "test_" not in file]
    assert len(named) > 100
    assert [it for it in named if it[1] not in defined(SOURCE / it[0])] == []


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
