"""The plan of the house: which distribution, wing and room may import which. See
docs/architecture.md."""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

import acp_wire
import acphold
from acp_wire.processes.own_python import own_python
from tests.distributions import FOLDERS, PROJECTS, ROOT, required

SOURCE = Path(acphold.__file__).parent

SOURCES = {package: folder / "src" / package for package, folder in FOLDERS.items()}

DISTRIBUTIONS = {
    "acp_wire": 1,
    "acp_check": 2,
    "acphold": 3,
}
"""A distribution may import those with lower numbers."""

WINGS = {
    "machine": 0,
    "mcp_servers": 1,
    "safety": 1,
    "conversation": 2,
    "errors": 3,
    "logs": 3,
    "serve_options": 3,
    "version": 3,
    "known_agents": 3,
    "quick_start": 3,
    "extras": 4,
    "journal_location": 4,
    "journal": 5,
    "imports": 6,
    "live": 7,
    "client": 8,
    "web": 8,
    "library": 9,
    "otel": 10,
    "reader": 10,
    "sync": 10,
    "testing": 10,
    "types": 10,
    "faces": 11,
    "__init__": 12,
    "__main__": 12,
}
"""The wings of acphold, and the modules beside them. One may use those with lower numbers, of a
wing what it exports; those with one number do not know each other."""

ROOMS = {
    "acp_wire": {
        **dict.fromkeys(
            (
                "errors",
                "newest",
                "state_folder",
                "surroundings",
                "tasks",
                "version",
                "visible_text",
            ),
            1,
        ),
        **dict.fromkeys(("extras", "markdown_text", "schema"), 2),
        **dict.fromkeys(("processes", "rpc"), 3),
        "transports": 4,
        "workspace": 5,
    },
    "acphold.safety": {
        "errors": 1,
        "budget": 2,
        **dict.fromkeys(("redaction", "snapshots"), 3),
        "standing": 4,
    },
    "acphold.conversation": {
        "errors": 1,
        "history": 2,
        "reports": 3,
        "presentation": 4,
        "exports": 5,
    },
    "acphold.live": {
        **dict.fromkeys(("agents", "lines"), 1),
        **dict.fromkeys(("hub", "reading"), 2),
        **dict.fromkeys(("origins", "server"), 3),
    },
    "acphold.faces": {"screen": 1, "cli": 2},
}
"""The rooms of acp-wire and of the wings that have some, by the same rule; a wing without any is
one room."""

WALLS: dict[str, set[str]] = {
    "acphold.machine": set(),
    "acphold.safety": {"acphold.machine"},
    "acphold.mcp_servers": set(),
    "acphold.conversation": {"acphold.machine", "acphold.safety"},
    "acphold.imports": {
        *("acphold.errors", "acphold.journal", "acphold.conversation", "acphold.safety"),
        "acphold.machine",
    },
    "acphold.live.lines": set(),
}
"""Wings and rooms that know only these others: each can be read with them alone.
docs/architecture.md names them."""

CHECKED = {"acphold.faces"}
"""Where acphold imports acp-check: `acphold check`, and the agent of the demo."""


class Source(NamedTuple):
    """What these tests and those of the docstrings look at in a file: few of the 700,000 nodes of
    all files, and the members and the bases of each class."""

    nodes: Sequence[ast.AST]
    classes: list[tuple[str, set[str], set[str]]]


class Edge(NamedTuple):
    """An import: the module it stands in, and the one that it names."""

    importer: str
    imported: str


@cache
def source(path: Path) -> Source:
    looked_at = ast.Import | ast.ImportFrom | ast.Attribute | ast.Tuple | ast.List
    gc.disable()  # which would take longer than all that is done here
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, looked_at)]
        return Source(nodes, [*_classes(tree.body)])
    finally:
        gc.enable()


def _nodes(path: Path) -> Sequence[ast.AST]:
    return source(path).nodes


def _classes(nodes: list[ast.stmt]) -> Iterator[tuple[str, set[str], set[str]]]:
    for node in nodes:
        if isinstance(node, ast.If):  # for type checkers alone
            yield from _classes(node.body)
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(it).partition("[")[0].split(".")[-1] for it in node.bases}
            yield node.name, {*_members(node)}, bases


def _members(node: ast.ClassDef) -> Iterator[str]:
    for it in ast.walk(node):
        match it:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


@cache
def modules_of_ours() -> dict[str, Path]:
    return {
        _dotted(path): path for source in SOURCES.values() for path in sorted(source.rglob("*.py"))
    }


def _dotted(path: Path) -> str:
    """The name by which a module is imported."""
    source = next(source for source in SOURCES.values() if source in path.parents)
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def import_edges() -> tuple[Edge, ...]:
    """Every import of a module of ours, late ones and those for types only included."""
    ours = modules_of_ours()
    return tuple(
        Edge(importer, imported)
        for importer, path in ours.items()
        for imported in {*_imported(path, ours)}
        if imported != importer
    )


def _imported(path: Path, modules: Collection[str]) -> Iterator[str]:
    """Those of `modules` that a file imports: `from a import b` imports `a.b` if that is one."""
    for node in _nodes(path):
        names = [name.name for name in node.names] if isinstance(node, ast.ImportFrom) else [""]
        for module in _modules(node):
            for name in names:
                found = f"{module}.{name}"
                yield from {found if found in modules else module} & set(modules)


def _modules(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [name.name for name in names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case ast.ImportFrom():
            raise AssertionError("relative imports hide the room they come from")
    return []


def _package(module: str) -> str:
    return module.split(".")[0]


def _place(module: str, inside: str) -> str:
    """The name directly below `inside` that a module stands in; "__init__" for itself."""
    below = module.removeprefix(inside).removeprefix(".")
    return below.split(".")[0] or "__init__"


def _is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def test_every_distribution_imports_those_below_it() -> None:
    for edge in import_edges():
        importer, imported = _package(edge.importer), _package(edge.imported)
        if importer != imported:
            assert DISTRIBUTIONS[imported] < DISTRIBUTIONS[importer], edge
        if (importer, imported) == ("acphold", "acp_check"):
            assert any(_is_inside(edge.importer, place) for place in CHECKED), edge


MOST_NAMES = {"acp_check": 71, "acphold": 240}
"""The names that each takes of acp-wire; they may fall."""

PRIVATE = """
    ARCHIVE_SESSION AUTH_REQUIRED AgentError Answer AsgiSocket AuthMethod
    CANCEL_REQUEST Checkpoint CutNotification Dial ENDPOINT EagerTasks ExportError
    Extensible FOLDER FORK_SESSION FileAccessError FileTooLargeError Files INVISIBLE
    IncidentError InvalidRequestError LineBuffer MAX_MESSAGE MissingExtraError
    MissingFileError Newest NotTextError ONE_STREAM OfferingTransport
    OutsideRootsError Oversize PARSE_ERROR PeerError PendingCall PipeTransport Program
    REALM REQUESTS RemoteRefusalError RequestReceived Roots Route SAFELY SettingsError
    StderrRelay Surroundings TOKEN_VARIABLE TaskSet TerminalStartError Terminals
    Threads Token Turnstile UNREADABLE UPDATE_KINDS UnknownTerminalError
    UnknownVariant UpdateForm Workspace WorkspaceError allow_all as_remote become
    beside claim_stdio close_others_on_exec code code_block contents describe end
    end_programs exact explanation field_types find_problem finish first free_self
    has_capability has_packages incident is_loopback is_same_folder is_url json_value
    known_servers leave_outer_guard on_incident on_one_line on_path open_fd origin_of
    own_python plain post process_tree quantity refusal repair replace replace_file
    resolve_folder schema session_id_in shortfalls spawn split state_folder
    take_unpacked text_of tick timeout visible visible_json write_private
"""
"""Those that acphold takes beyond the public ones: private to the two."""


@pytest.mark.parametrize("package", ["acp_wire", "acp_check"])
def test_the_tests_of_a_distribution_know_nothing_of_acphold(package: str) -> None:
    """They neither import nor start it; helpers are in their own folder and that of acp-wire."""
    folders = [FOLDERS[name] for name in ("acp_wire", package)]
    files = sorted((FOLDERS[package] / "tests").rglob("*.py"))
    named = {(path, name) for path in files for node in _nodes(path) for name in _modules(node)}
    assert len(files) > 30
    assert [it for it in files if '"-m", "acphold"' in it.read_text("utf-8")] == []
    for path, name in named:
        assert _package(name) != "acphold", path
        if _package(name) == "tests" and name != "tests":
            places = [folder / name.replace(".", "/") for folder in folders]
            assert any(it.is_dir() or it.with_suffix(".py").is_file() for it in places), path


@pytest.mark.parametrize("package", MOST_NAMES)
def test_no_more_names_of_acp_wire_are_taken(package: str) -> None:
    taken = {
        (node.module, name.name)
        for path in SOURCES[package].rglob("*.py")
        for node in _nodes(path)
        if isinstance(node, ast.ImportFrom) and _package(str(node.module)) == "acp_wire"
        for name in node.names
    }
    assert len(taken) <= MOST_NAMES[package]
    if package == "acphold":
        public = {*dir(acp_wire), *dir(acp_wire.schema)}
        assert sorted({name for _, name in taken} - public) == PRIVATE.split()


def test_every_wing_imports_those_below_it() -> None:
    for edge in import_edges():
        if _package(edge.importer) == _package(edge.imported) == "acphold":
            wing, other = _place(edge.importer, "acphold"), _place(edge.imported, "acphold")
            assert wing == other or WINGS[other] < WINGS[wing], edge


def test_a_wing_exports_what_others_import_and_nothing_else() -> None:
    used: dict[str, set[str]] = {wing: set() for wing in _wings()}
    for edge in import_edges():
        wing = _place(edge.imported, "acphold")
        if wing in used and not _is_inside(edge.importer, f"acphold.{wing}"):
            used[wing].add(edge.imported.removeprefix(f"acphold.{wing}").removeprefix("."))
    assert {wing: sorted(names - {""}) for wing, names in used.items()} == {
        wing: sorted(getattr(import_module(f"acphold.{wing}"), "EXPORTS", "").split())
        for wing in used
    }


def _wings() -> list[str]:
    return [path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()]


def test_the_wings_are_at_most_twelve() -> None:
    assert len(_wings()) <= 12


def test_every_room_imports_those_below_it() -> None:
    for inside, rows in ROOMS.items():
        for edge in import_edges():
            if _is_inside(edge.importer, inside) and _is_inside(edge.imported, inside):
                room, other = _place(edge.importer, inside), _place(edge.imported, inside)
                if room != other and "__init__" not in (room, other):
                    assert rows[other] < rows[room], edge


def test_nothing_is_imported_through_a_wall() -> None:
    for edge in import_edges():
        for place, known in WALLS.items():
            if _is_inside(edge.importer, place) and _package(edge.imported) == "acphold":
                assert any(_is_inside(edge.imported, it) for it in {place, *known}), edge


def test_every_module_stands_in_a_place_of_the_plan() -> None:
    places = {"acphold": {*WINGS}} | {inside: {*rows, "__init__"} for inside, rows in ROOMS.items()}
    for module in modules_of_ours():
        for inside, known in places.items():
            if _is_inside(module, inside):
                assert _place(module, inside) in known, module


def test_no_modules_of_a_room_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for edge in import_edges():
        if _room(edge.importer) == _room(edge.imported):
            graph.setdefault(edge.importer, set()).add(edge.imported)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def _room(module: str) -> str:
    """The room of a module, or the wing, or the distribution, whatever is smallest."""
    for inside in ROOMS:
        if module.startswith(f"{inside}."):
            return f"{inside}.{_place(module, inside)}"
    package = _package(module)
    return package if package != "acphold" else f"acphold.{_place(module, 'acphold')}"


def test_the_bounds_of_a_room_that_has_a_module_for_them_stand_there() -> None:
    """A time that somebody might tune is found beside the others; `wrap` starts without them."""
    for bounds in (path for source in SOURCES.values() for path in source.rglob("bounds.py")):
        for path in bounds.parent.rglob("*.py"):
            times = re.findall(r"^[A-Z_]*SECONDS\b.* = [\d.]+$", path.read_text("utf-8"), re.M)
            if path not in (bounds, bounds.parent / "front.py"):
                assert not times, f"{path} has {times}: bounds stand in {bounds}"


def test_what_is_imported_is_a_declared_dependency() -> None:
    """Of each distribution alone, so that each can be installed alone."""
    places = packages_distributions()
    for package, source in SOURCES.items():
        modules = {
            module.split(".")[0]
            for path in source.rglob("*.py")
            for node in _nodes(path)
            for module in _modules(node)
        }
        modules -= sys.stdlib_module_names | {*SOURCES, "compression"}  # the last from 3.14 on
        wanted = required(PROJECTS[package])
        named = {_plain(found[0]) for text in wanted if (found := re.match(r"[\w.-]+", text))}
        named -= {name.replace("_", "-") for name in SOURCES}
        # Several packages may share the name of one module, as those of OpenTelemetry do.
        imported = {module: named & {*map(_plain, places[module])} for module in modules}
        assert [module for module, packages in imported.items() if not packages] == [], package
        assert named == set().union(*imported.values()), package


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()  # as the packaging specifications compare names


# -- modules that know a store -----------------------------------------------------------------

STORES = re.compile(r"acphold\.journal\.(stores|sqlite|postgresql)(\..*)?")
"""Modules that may know a store by more than the interface."""

OTHERS = {
    "acphold.imports.databases": {"sqlite3"},  # databases of other agents
    "acphold.journal.hits": {"sqlite3"},  # its words, in memory, for all stores
}


def test_a_store_is_known_where_it_is_made_alone() -> None:
    """So that another one is a folder, a line in `journal/stores.py` and a fixture."""
    found: dict[str, set[str]] = {}
    for place, path in modules_of_ours().items():
        for node in _nodes(path):
            names = {module for module in _modules(node) if module.startswith(_OF_STORES)}
            if isinstance(node, ast.ImportFrom):
                names |= {name.name for name in node.names} & {"SqliteJournal", "PostgresqlJournal"}
            if names and not STORES.fullmatch(place):
                found.setdefault(place, set()).update(names)
    assert found == OTHERS


_OF_STORES = (
    "sqlite3",
    "psycopg",
    "acphold.journal.sqlite",
    "acphold.journal.postgresql",
)


# -- modules that start programs --------------------------------------------------------------

STARTS = re.compile(
    r"(posix_)?spawn(_|[lv]\w*)?p?|exec[lv]\w*|fork(pty)?|popen|system|which|executable"
    r"|create_subprocess_\w+|ProcessPoolExecutor",
    re.IGNORECASE,
)
"""Names by which a program is started, or the one that runs us is named."""

MODULES = {"subprocess", "multiprocessing", "pty", "runpy"}

EXCUSED = {
    ("acphold.faces.cli.doctor", "executable"): "tells it",
    ("acp_check.exemplar_servers", "create_subprocess_exec"): "is an agent, to be looked at",
}


LAUNCHERS = {"processes", "machine"}


def test_programs_are_started_in_two_rooms() -> None:
    """It finds them where no stranger puts any, and tells Python where not to look."""
    found = {
        (module, name)
        for module, path in modules_of_ours().items()
        for node in _nodes(path)
        for name in _starts(node)
        if path.parent.name not in LAUNCHERS
    }
    assert found == {*EXCUSED}
    for path in (path for path in modules_of_ours().values() if path.parent.name in LAUNCHERS):
        assert path.name == "own_python.py" or "executable" not in map(_attribute, _nodes(path))
    assert own_python()[:2] == (sys.executable, "-P")


def test_the_faces_read_sessions_by_what_programs_open() -> None:
    readers = {
        module
        for module, path in modules_of_ours().items()
        for node in _nodes(path)
        if isinstance(node, ast.Call) and module.startswith("acphold.faces.")
        if getattr(node.func, "id", "") == "LocalReader"
    }
    assert readers == set(), "`acphold.reader.open` opens it"


COMMANDED = {
    "acphold.live.agents.identity": "compares it, and starts nothing",
    "acphold.live.server.checked_params": "an agent starts it, as a bridge to a server",
}
"""Modules below `cli` that may still name a command of ours."""


def test_commands_of_ours_are_started_by_commands_only() -> None:
    """A lower room that starts `acphold NAME` would import `cli`, unseen by the test above."""
    naming = {
        module
        for module, path in modules_of_ours().items()
        for node in _nodes(path)
        if path.parent.name not in ("cli", "processes")
        and isinstance(node, ast.ImportFrom)
        and "own_command" in {name.name for name in node.names}
    }
    assert naming == {*COMMANDED}


def test_what_examples_start_with_our_python_is_not_looked_for_in_a_project() -> None:
    for path in (ROOT / "examples").rglob("*.py"):
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
            if _package(module) not in SOURCES:
                yield from (name.name for name in names if STARTS.fullmatch(name.name))
        case _:
            yield from (name for name in [_attribute(node)] if STARTS.fullmatch(name))


def _attribute(node: object) -> str:
    """`b` of `os.b`, and of other modules with such names; "" for anything else."""
    match node:
        case ast.Attribute(value=ast.Name(id="os" | "sys" | "asyncio" | "shutil"), attr=name):
            return name
    return ""
