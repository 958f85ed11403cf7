"""Each demand of the protocol has a test: these tests exist."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.distributions import FOLDERS, ROOT
from tests.protocol_demands import CLIENTS, SESSIONS
from tests.test_plan import SOURCES

PAGE = ROOT / "docs" / "protocol.md"
DEMANDS = (*SESSIONS, *CLIENTS)
NAMED = re.compile(r"([a-z_]+/test_[a-z_]+\.py)::(test_[a-z0-9_]+)")


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(" ".join(it for demand in DEMANDS for it in demand.shown))
    assert len(named) > 50
    missing = [f"{file}::{name}" for file, name in named if name not in _tests_in(file)]
    assert not missing


def test_every_demand_names_a_test() -> None:
    demands = [it for it in DEMANDS if it.word]
    assert len(demands) >= 24
    assert [it for it in demands if not NAMED.search(" ".join(it.shown))] == []


@cache
def _tests_in(file: str) -> set[str]:
    """The tests of a file, whichever distribution it belongs to."""
    places = [folder / "tests" / file for folder in FOLDERS.values()]
    found = [ast.parse(place.read_text(encoding="utf-8")) for place in places if place.exists()]
    nodes = (node for tree in found for node in ast.walk(tree))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in nodes if isinstance(node, functions)}


def test_every_meta_key_that_clients_see_is_in_the_page() -> None:
    rooms = [SOURCES["acphold"] / room for room in ("live/hub", "live/server", "library")]
    sources = [path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py")]
    keys = {key for source in sources for key in re.findall(r'"(acphold/[a-zA-Z]+)"', source)}
    assert len(keys) > 4
    assert {key for key in keys if f"`{key}`" not in PAGE.read_text(encoding="utf-8")} == set()
