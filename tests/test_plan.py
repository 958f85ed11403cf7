"""The plan of the house: which room may import which. See docs/architecture.md."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import acphold
from acphold.processes.own_program import own_python

SOURCE = Path(acphold.__file__).parent

ROWS = {
    "errors": 1,
    "logs": 1,
    "serve_options": 1,
    "version": 1,
    "known_agents": 1,
    "tasks": 1,
    "visible_text": 1,
    "newest": 1,
    "markdown_text": 2,
    "extras": 2,
    "schema": 2,
    "rpc": 3,
    "processes": 3,
    "transports": 4,
    "history": 4,
    "standing": 4,
    "journal": 5,
    "workspace": 5,
    "mcp": 5,
    "agents": 6,
    "bridges": 6,
    "redaction": 6,
    "snapshots": 6,
    "reports": 6,
    "lines": 6,
    "hub": 7,
    "imports": 7,
    "reading": 7,
    "origins": 8,
    "server": 8,
    "library": 11,
    "client": 9,
    "conformance": 12,
    "otel": 12,
    "sync": 12,
    "testing": 12,
    "types": 12,
    "presentation": 9,
    "exports": 13,
    "screen": 13,
    "web": 10,
    "cli": 14,
    "__init__": 15,
    "__main__": 15,
}
"""A room may use any room on a lower row; rooms on one row do not know each other."""


WIRE = {
    *("errors", "extras", "processes", "rpc", "schema", "tasks", "transports", "version"),
    *("markdown_text", "visible_text", "workspace"),
}
"""ACP without sessions: these rooms use each other alone."""

WALLS = {
    **dict.fromkeys(WIRE, WIRE),
    "conformance": WIRE,
    "imports": {*WIRE, "history", "journal", "redaction"},
}
"""Rooms that know only these others: each can be read, and could leave, with them alone."""


class Edge(NamedTuple):
    """One import: the file it stands in, and the room it reaches into."""

    importer: str
    imported: str

    @property
    def room(self) -> str:
        return self.importer.split("/")[0].removesuffix(".py")


@cache
def _nodes(path: Path) -> list[ast.AST]:
    """The nodes of a file that the tests below look at; all files together have 700,000 nodes."""
    looked_at = ast.Import | ast.ImportFrom | ast.Attribute | ast.Tuple | ast.List
    return [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, looked_at)
    ]


def import_edges(source: Path) -> Iterator[Edge]:
    """Every import of the package itself, late ones and those for types only included."""
    for path in sorted(source.rglob("*.py")):
        importer = str(path.relative_to(source))
        for node in _nodes(path):
            for module in _modules(node):
                parts = module.split(".")
                if parts[0] == "acphold":
                    # A module that is no room counts as the package itself, above all rooms.
                    room = parts[1] if len(parts) > 1 else ""
                    yield Edge(importer, room if room in ROWS else "__init__")


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
        if edge.imported != edge.room:
            assert ROWS[edge.imported] < ROWS[edge.room], f"{edge.importer} imports {edge.imported}"


def test_nothing_is_imported_through_a_wall() -> None:
    for edge in import_edges(SOURCE):
        if edge.room in WALLS and edge.imported != edge.room:
            assert edge.imported in WALLS[edge.room], f"{edge.importer} imports {edge.imported}"


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


def test_the_bounds_of_a_room_that_has_a_module_for_them_stand_there() -> None:
    """A time that somebody might tune is found beside the others; `wrap` starts without them."""
    for bounds in SOURCE.glob("*/bounds.py"):
        for path in bounds.parent.rglob("*.py"):
            times = re.findall(r"^[A-Z_]*SECONDS\b.* = [\d.]+$", path.read_text("utf-8"), re.M)
            if path not in (bounds, bounds.parent / "thin_wrap.py"):
                assert not times, f"{path} has {times}: bounds stand in {bounds}"


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


def test_what_is_imported_is_a_declared_dependency() -> None:
    places = packages_distributions()
    modules = {
        module.split(".")[0]
        for path in SOURCE.rglob("*.py")
        for node in _nodes(path)
        for module in _modules(node)
    }
    modules -= sys.stdlib_module_names | {"acphold", "compression"}  # the last from 3.14 on
    declared = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
    wanted = [*declared["dependencies"], *chain(*declared["optional-dependencies"].values())]
    required = {_plain(found[0]) for text in wanted if (found := re.match(r"[\w.-]+", text))}
    required -= {"acphold"}  # an extra may consist of others
    # Several packages may share the name of one module, as those of OpenTelemetry do.
    imported = {module: required & {*map(_plain, places[module])} for module in modules}
    assert [module for module, packages in imported.items() if not packages] == []
    assert required == set().union(*imported.values())


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()  # as the packaging specifications compare names


# -- modules that know a store -----------------------------------------------------------------

STORES = re.compile(r"journal/(stores\.py|sqlite/.*|postgresql/.*)")
"""Modules that may know a store by more than the interface."""

OTHERS = {
    "imports/databases.py": {"sqlite3"},  # databases of other agents
    "journal/words_in_memory.py": {"sqlite3"},  # its words, in memory, for all stores
}


def test_a_store_is_known_where_it_is_made_alone() -> None:
    """So that another one is a folder, a line in `journal/stores.py` and a fixture."""
    found: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        place = str(path.relative_to(SOURCE))
        for node in _nodes(path):
            names = {module for module in _modules(node) if module.startswith(_OF_STORES)}
            if isinstance(node, ast.ImportFrom):
                names |= {name.name for name in node.names} & {"SqliteJournal", "PostgresqlJournal"}
            if names and not STORES.fullmatch(place):
                found.setdefault(place, set()).update(names)
    assert found == OTHERS


_OF_STORES = ("sqlite3", "psycopg", "acphold.journal.sqlite", "acphold.journal.postgresql")


# -- modules that start programs --------------------------------------------------------------

STARTS = re.compile(
    r"(posix_)?spawn(_|[lv]\w*)?p?|exec[lv]\w*|fork(pty)?|popen|system|which|executable"
    r"|create_subprocess_\w+|ProcessPoolExecutor",
    re.IGNORECASE,
)
"""Names by which a program is started, or the one that runs us is named."""

MODULES = {"subprocess", "multiprocessing", "pty", "runpy"}

EXCUSED = {
    ("cli/doctor.py", "executable"): "tells it",
    ("conformance/exemplar_servers.py", "create_subprocess_exec"): "is an agent, to be looked at",
}


def test_programs_are_started_in_one_room() -> None:
    """It finds them where no stranger puts any, and tells Python where not to look."""
    found = {
        (str(path.relative_to(SOURCE)), name)
        for path in SOURCE.rglob("*.py")
        for node in _nodes(path)
        for name in _starts(node)
        if path.parent.name != "processes"
    }
    assert found == {*EXCUSED}
    for path in (SOURCE / "processes").glob("*.py"):
        assert path.name == "own_program.py" or "executable" not in map(_attribute, _nodes(path))
    assert own_python()[:2] == (sys.executable, "-P")


COMMANDED = {"mcp/bridge.py": "an agent starts it, by a command that we hand on"}
"""Modules below `cli` that may still name a command of ours."""


def test_commands_of_ours_are_started_by_commands_only() -> None:
    """A lower room that starts `acphold NAME` would import `cli`, unseen by the test above."""
    naming = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        for node in _nodes(path)
        if path.parent.name not in ("cli", "processes")
        and isinstance(node, ast.ImportFrom)
        and "own_command" in {name.name for name in node.names}
    }
    assert naming == {*COMMANDED}


def test_what_examples_start_with_our_python_is_not_looked_for_in_a_project() -> None:
    for path in (SOURCE.parents[1] / "examples").rglob("*.py"):
        for node in _nodes(path):
            if isinstance(node, ast.Tuple | ast.List):
                for word, option in pairwise([*node.elts, None]):
                    if _attribute(word) == "executable":
                        assert isinstance(option, ast.Constant), path
                        assert option.value in ("-P", "-I"), path


def _starts(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (name.name for name in names if name.name in MODULES)
        case ast.ImportFrom(module=str(module), names=names):
            yield from (module for _ in names if module in MODULES)
            if not module.startswith("acphold"):
                yield from (name.name for name in names if STARTS.fullmatch(name.name))
        case _:
            yield from (name for name in [_attribute(node)] if STARTS.fullmatch(name))


def _attribute(node: object) -> str:
    """`b` of `os.b`, and of other modules with such names; "" for anything else."""
    match node:
        case ast.Attribute(value=ast.Name(id="os" | "sys" | "asyncio" | "shutil"), attr=name):
            return name
    return ""
