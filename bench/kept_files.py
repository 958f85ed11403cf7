"""What keeping files costs: a snapshot beside `git status`, the prompt that waits for it, laying
one out, and a month of work: the size of the store, and its upkeep.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, perf_counter, sleep

from acphold.snapshots.bounds import SnapshotLimits
from acphold.snapshots.checkouts import Checkout, checkout_of
from acphold.snapshots.snapshot import Taken, take
from acphold.snapshots.store import SnapshotStore, Stores
from acphold.snapshots.worktree import lay
from bench.programs import scripted_agent, wrap
from bench.run import Run
from bench.table import Figure, Goal
from bench.wire import Wire, session_with

FILES_IN_FOLDER = 20

SIZE = 3_000
"""Bytes of a file: about those of source code."""

DAYS, TURNS, CHANGED = 22, 60, 4
"""A month of work: its days, the turns of each, and the files that change in one."""

FIRST_SECONDS = 120.0
"""Seconds that the first snapshot may take."""

BOUNDS = SnapshotLimits(free=0)


def figures(run: Run) -> Iterator[Figure]:
    """Snapshots of a project, and a month of them."""
    number = run.size(10_000, 1_000)
    top = _project(run.fresh("project"), number)
    stores = Stores(str(run.fresh("files")))
    checkout = checkout_of(str(top))
    assert checkout is not None
    began = perf_counter()
    taken = _taken(stores, checkout)
    yield Figure(f"the first snapshot of {number:,} files", "s", [perf_counter() - began])
    ways = {
        "take": lambda: _timed_take(stores, checkout),
        "status": lambda: _timed_status(top),
    }
    both = run.in_turns(ways)
    yield Figure(
        f"a snapshot of {number:,} files, none changed",
        "ms",
        both["take"],
        "`git status`",
        both["status"],
        goals=(Goal(50), Goal(4, ratio=True)),
    )
    yield Figure(f"the same with {CHANGED} changed", "ms", _with_changes(run, stores, checkout))
    plain = run.fresh("plain")
    plain.mkdir()
    yield _held(run, "a turn with its files kept", top)
    yield _held(run, "a turn outside of every repository", plain)
    store = stores.find(taken.store)
    assert store is not None
    samples = []
    for _ in range(3):
        folder = str(run.fresh("laid"))
        began = perf_counter()
        lay(store, taken.tree, folder, project=str(top), commit=taken.head.commit)
        samples.append(perf_counter() - began)
    yield Figure(f"{number:,} files laid out in a new work tree", "s", samples)
    yield from _month(run)


def _project(top: Path, number: int) -> Path:
    words = random.Random(1)
    for place in range(number):
        folder = top / f"folder{place // FILES_IN_FOLDER}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{place}.py").write_bytes(_text(words))
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "all"],
    ):
        subprocess.run(["git", "-C", os.fspath(top), *command], check=True)
    return top


def _text(words: random.Random) -> bytes:
    """Text that packs about as well as a program's source."""
    text = b" ".join(b"name%d" % words.randrange(400) for _ in range(SIZE // 8))
    return text[:SIZE]


def _taken(stores: Stores, checkout: Checkout) -> Taken:
    taken = take(stores, checkout, limits=BOUNDS)
    assert isinstance(taken, Taken), taken
    return taken


def _timed_take(stores: Stores, checkout: Checkout) -> float:
    began = perf_counter()
    _taken(stores, checkout)
    return (perf_counter() - began) * 1e3


def _timed_status(top: Path) -> float:
    began = perf_counter()
    subprocess.run(
        ["git", "-C", os.fspath(top), "status", "--porcelain", "-uall"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return (perf_counter() - began) * 1e3


def _change(top: Path, words: random.Random) -> None:
    """Change some files: a line more in each."""
    files = sorted(top.glob("folder*/*.py"))
    for path in words.sample(files, CHANGED):
        with path.open("ab") as file:
            file.write(b"\n" + _text(words)[:60])


def _with_changes(run: Run, stores: Stores, checkout: Checkout) -> list[float]:
    words = random.Random(2)
    samples = []
    for _ in range(run.rounds):
        _change(Path(checkout.top), words)
        samples.append(_timed_take(stores, checkout))
    return samples


def _held(run: Run, what: str, top: Path) -> Figure:
    """How long a turn takes with snapshots, and without."""
    samples: dict[str, list[float]] = {}
    for name, value in (("true", "true"), ("false", "false")):
        settings = run.fresh("settings.toml")
        settings.write_text(f"[defaults]\nsnapshots = {value}\n", encoding="utf-8")
        os.environ["ACPHOLD_SETTINGS"] = os.fspath(settings)
        try:
            journal = run.fresh("journal.db")
            with session_with(wrap(scripted_agent(), journal)) as wire:
                _in_folder(wire, top)
                wire.prompt("flood 0")
                if value == "true" and (top / ".git").exists():
                    _await_first(journal)
                samples[name] = [_timed_turn(wire) for _ in range(run.rounds)]
        finally:
            del os.environ["ACPHOLD_SETTINGS"]
    return Figure(what, "ms", samples["true"], "`snapshots = false`", samples["false"])


def _in_folder(wire: Wire, top: Path) -> None:
    """A new session in a project."""
    asked: dict[str, object] = {"cwd": os.fspath(top), "mcpServers": []}
    wire.session_id = str(wire.call("session/new", asked)["sessionId"])


def _await_first(journal: Path) -> None:
    """Wait until the first snapshot is taken."""
    until = monotonic() + FIRST_SECONDS
    stores = journal.with_name(f"{journal.name}-files")
    while not [*stores.glob("*/roots/*/tree")]:
        if monotonic() > until:
            raise TimeoutError("no snapshot was taken")
        sleep(0.1)


def _timed_turn(wire: Wire) -> float:
    sleep(0.5)  # the snapshot at the end of the turn before
    began = perf_counter()
    wire.prompt("flood 0")
    return (perf_counter() - began) * 1e3


def _month(run: Run) -> Iterator[Figure]:
    """A month of somebody's work in one project, with upkeep each day."""
    number = run.size(2_000, 200)
    turns = run.size(TURNS, 5)
    top = _project(run.fresh("month"), number)
    stores = Stores(str(run.fresh("files")))
    checkout = checkout_of(str(top))
    assert checkout is not None
    words = random.Random(3)
    trees: list[str] = []
    upkeep = []
    store = None
    for _ in range(DAYS):
        for _ in range(turns):
            _change(top, words)
            taken = _taken(stores, checkout)
            trees.append(taken.tree)
            store = stores.find(taken.store)
        assert store is not None
        upkeep.append(_kept(store, trees))
    assert store is not None
    sources = sum(path.stat().st_size for path in top.glob("folder*/*.py"))
    what = f"a month: {DAYS * turns:,} turns, {number:,} files"
    yield Figure(f"{what}, the store", "MB", [store.size() / 1e6], "sources", [sources / 1e6])
    yield Figure("upkeep of a day in that month", "s", upkeep)


def _kept(store: SnapshotStore, trees: list[str]) -> float:
    began = perf_counter()
    store.keep(trees, monotonic() + 600)
    return perf_counter() - began
