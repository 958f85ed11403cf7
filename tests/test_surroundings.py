"""Rooms that serve the agents of others never ask this process for its environment or folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from acp_wire.surroundings import Surroundings
from tests.test_plan import SOURCES

WIRE, ACPHOLD = SOURCES["acp_wire"], SOURCES["acphold"]

REACHED = (
    WIRE / "workspace",
    ACPHOLD / "mcp_servers",
    *(ACPHOLD / "live" / room for room in ("agents", "hub", "server")),
    *(ACPHOLD / "safety" / room for room in ("redaction", "snapshots", "standing")),
)
"""The rooms in which a process may serve several people's agents."""

OWN = {
    *("os.environ", "os.getenv", "os.getcwd", "os.umask", "Surroundings.here"),
    *("os.path.expanduser", "os.path.expandvars", "os.path.abspath", "Path.home", "Path.cwd"),
}
"""What asks the process itself. It is asked where a program begins, and the answer handed down."""


def asked(tree: ast.AST) -> Iterator[str]:
    """What a module asks this process, and programs that it launches in no surroundings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in OWN:
            yield f"{node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Call):
            words = [ast.unparse(word) for word in (node.func, *node.args)]
            if "launch" in words and len(words) - words.index("launch") < 3:
                yield f"{node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("room", REACHED, ids=lambda room: room.name)
def test_no_room_that_serves_others_asks_its_own_process(room: Path) -> None:
    modules = sorted(room.rglob("*.py"))
    assert modules
    found = [
        f"{path.name}:{place}" for path in modules for place in asked(ast.parse(path.read_text()))
    ]
    assert found == []


def test_a_question_to_the_process_is_found() -> None:
    code = "import os\nhere = os.path.abspath(os.environ['A'])\nto_thread(launch, command)"
    places = [place.partition(":")[0] for place in asked(ast.parse(code))]
    assert sorted(places) == ["2", "2", "3"]


def test_surroundings_are_in_memory_only() -> None:
    secret = Surroundings({"KEY": "hunter2"}, "/project")
    assert "hunter2" not in f"{secret!r} {secret}"
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
