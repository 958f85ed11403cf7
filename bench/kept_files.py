"""What keeping files costs: the turns of a session beside `git status`, in processor time and in
the time that a prompt and `ask` take; laying a snapshot out; and a month of work: the size of the
store, and its upkeep.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, perf_counter, sleep

from acp_wire.surroundings import Surroundings
from acphold.safety.snapshots.bounds import SnapshotLimits
from acphold.safety.snapshots.checkouts import Checkout, checkout_of
from acphold.safety.snapshots.snapshot import Taken, take
from acphold.safety.snapshots.store import SnapshotStore, Stores
from acphold.safety.snapshots.worktree import lay
from bench.memory import server_of
from bench.programs import scripted_agent, wrap
from bench.run import Run
from bench.table import Figure, Goal
from bench.wire import Wire, session_with

FILES_IN_FOLDER = 20

SIZE = 3_000
"""Bytes of a file: about those of source code."""

DAYS, TURNS, CHANGED = 22, 60, 4
"""A month of work: its days, the turns of each, and the files that change in one."""

FIRST_SECONDS = 300.0
"""Seconds that the first snapshot may take."""

STATUS, MORE_MS = 1.5, 8.0
"""A turn may cost so many times `git status`, and so many milliseconds more."""

PROMPT_MS, ASK_MS = 5.0, 100.0
"""Milliseconds that a prompt, and `ask`, may take longer because files are kept."""

TURNS_MEASURED = 10

TRIES = 20
"""A snapshot that has taken too long, on a busy machine, is gone on with by the next."""

QUIET_SECONDS = 0.3
"""Once nothing has used the processor for so long, the snapshots of a turn are taken."""

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
    for files in (100, number, run.size(100_000, 2_000)):
        yield from _turns(run, top if files == number else _project(run.fresh("of"), files), files)
    yield _asked(run, top, number)
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
    for _ in range(TRIES):
        taken = take(stores, checkout, Surroundings.here(), limits=BOUNDS)
        if isinstance(taken, Taken):
            return taken
    raise RuntimeError(f"no snapshot in {TRIES} tries: {taken}")


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


def _turns(run: Run, top: Path, number: int) -> Iterator[Figure]:
    """The turns of a session, with and without changed files, at the pace of a person."""
    plain = run.fresh("plain")
    plain.mkdir()
    words = random.Random(4)
    with (
        session_with(wrap(scripted_agent(), run.fresh("journal.db"))) as elsewhere,
        _in_project(run, top) as (wire, programs),
    ):
        _in_folder(elsewhere, plain)
        waits: dict[str, list[float]] = {"here": [], "there": []}
        for changed in (0, CHANGED):
            before = _cpu(wire)
            allowed: list[float] = []
            for _ in range(TURNS_MEASURED):
                waits["here"].append(_timed(wire.prompt, "flood 0"))
                if changed:
                    _change(top, words)
                _await_quiet(wire, programs)
                allowed.append(STATUS * _status_cpu(top) + MORE_MS)
                waits["there"].append(_timed(elsewhere.prompt, "flood 0") + PROMPT_MS)
            what = f"{changed} changed" if changed else "none changed"
            yield Figure(
                f"CPU of a turn, {number:,} files, {what}",
                "ms",
                [(_cpu(wire) - before) / TURNS_MEASURED],  # in ticks of 10 ms
                f"{STATUS:g} x `git status` + {MORE_MS:g} ms",
                allowed,
                goals=(Goal(1, ratio=True),),
                paired=False,
            )
    yield Figure(
        f"a prompt and its answer, {number:,} files",
        "ms",
        waits["here"],
        f"no repository + {PROMPT_MS:g} ms",
        waits["there"],
        goals=(Goal(1, ratio=True),),
    )


@contextmanager
def _in_project(run: Run, top: Path) -> Iterator[tuple[Wire, set[str]]]:
    """A session in a project whose first snapshot is taken, and the programs that it runs."""
    journal = run.fresh("journal.db")
    with session_with(wrap(scripted_agent(), journal)) as wire:
        _in_folder(wire, top)
        programs = _programs(wire)
        wire.prompt("flood 0")
        _await_first(journal)
        for _ in range(2):  # the first upkeep, too
            wire.prompt("flood 0")
            _await_quiet(wire, programs)
        yield wire, programs


def _timed(work: Callable[[str], object], text: str) -> float:
    began = perf_counter()
    work(text)
    return (perf_counter() - began) * 1e3


def _cpu(wire: Wire) -> float:
    """Milliseconds of processor time of a program and of the children that it has waited for."""
    fields = Path(f"/proc/{server_of(wire)}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * 1e3 / os.sysconf("SC_CLK_TCK")


def _programs(wire: Wire) -> set[str]:
    """The programs that a program runs."""
    found: set[str] = set()
    for children in Path(f"/proc/{server_of(wire)}/task").glob("*/children"):
        with suppress(OSError):  # this thread has ended
            found.update(children.read_text().split())
    return found


def _await_quiet(wire: Wire, programs: set[str]) -> None:
    """Wait until a program does nothing and runs no programs but these."""
    last, since, until = -1.0, monotonic(), monotonic() + FIRST_SECONDS
    while monotonic() < until:
        now = _cpu(wire)
        if now != last or _programs(wire) != programs:
            last, since = now, monotonic()
        elif monotonic() - since > QUIET_SECONDS:
            return
        sleep(0.02)


def _status_cpu(top: Path) -> float:
    """The milliseconds of processor time of `git status`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _timed_status(top)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return used * 1e3


def _asked(run: Run, top: Path, number: int) -> Figure:
    """How long `acphold ask` takes with files kept, and without."""
    journal = {name: run.fresh("journal.db") for name in ("true", "false")}

    def ask(value: str) -> float:
        settings = run.fresh("settings.toml")
        settings.write_text(f"[defaults]\nsnapshots = {value}\n", encoding="utf-8")
        env = {"ACPHOLD_SETTINGS": str(settings), "ACPHOLD_JOURNAL": str(journal[value])}
        began = perf_counter()
        words = ["ask", "--cwd", str(top), "flood 0", "--", *scripted_agent()]
        subprocess.run(
            [sys.executable, "-m", "acphold", *words],
            env={**os.environ, **env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=True,
        )
        return (perf_counter() - began) * 1e3

    both = run.in_turns({"true": lambda: ask("true"), "false": lambda: ask("false") + ASK_MS})
    return Figure(
        f"`ask`, {number:,} files",
        "ms",
        both["true"],
        f"`snapshots = false` + {ASK_MS:g} ms",
        both["false"],
        goals=(Goal(1, ratio=True),),
    )


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
