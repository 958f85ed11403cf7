"""The files of all turns go with a session: `diff` and a fork from an earlier turn work on
the other machine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from msgspec.structs import replace

from acphold.errors import WorkspaceError
from acphold.journal.seams import TurnSnapshot
from acphold.live.hub import bounds, move_giver, move_taker
from acphold.live.hub.moves import MovedSession, MoveLine, SessionOffer
from acphold.safety.snapshots.bounds import PackLimits
from acphold.safety.snapshots.packs import make_pack
from acphold.safety.snapshots.store import SnapshotStore
from tests.cli.command_line import CommandLine
from tests.hub.moving import Machine, machines, move, origin
from tests.origins.kept import KeptSession, edit
from tests.raw_entries import CONVERSATION


@pytest.fixture
def session(tmp_path: Path) -> KeptSession:
    """Three turns on the first of two machines that both have a clone."""
    project = origin(tmp_path)

    async def begin() -> Machine:
        async with machines(tmp_path, project) as made:
            for machine in made:
                await machine.remember("known", *CONVERSATION)
        return made[0]

    here = asyncio.run(begin())
    session = KeptSession(here.folder / "journal.db", here.project, "s-1")
    before = "first\n"
    for number in (1, 2, 3):
        text = f"turn {number}\n"
        shown = edit(f"e{number}", str(here.clone / "a.txt"), before, text)
        does: Callable[[], object] = partial(here.project.write, "a.txt", text)
        if number == 1:
            does = partial(both, does, partial(here.project.write, ".env", "TOKEN=x"))
        session.turn(f"Turn {number}", shown, does=does)
        before = text
    return session


def both(*works: Callable[[], object]) -> None:
    for work in works:
        work()


def moved(tmp_path: Path, *, is_there: bool = True) -> list[TurnSnapshot]:
    """Move the session there, or back here; return the snapshots that the taker has of it then."""

    async def run() -> list[TurnSnapshot]:
        async with machines(tmp_path) as made:
            giving, taking = made if is_there else reversed(made)
            given, _, _ = await move(giving, taking)
            assert isinstance(given, MovedSession), given
            return [*await taking.journal.snapshots.of("s-1")]

    return asyncio.run(run())


def place_of(machine: CommandLine, words: str) -> int:
    """The entry of the session with this prompt."""
    lines = machine.run("show", "s-1", "--json").out.splitlines()
    return next(int(json.loads(line)["seq"]) for line in lines if f'"{words}"' in line)


def test_diff_and_a_fork_of_an_earlier_turn_work_where_a_session_went(
    tmp_path: Path, session: KeptSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = moved(tmp_path)
    laid = tmp_path / "there" / "clone-s1"
    assert [(it.edge, it.root, it.is_kept) for it in rows] == [
        (edge, str(laid), True) for _ in range(3) for edge in ("begin", "end")
    ]
    assert not (laid / ".env").exists()
    assert (".env", rows[-1].left_out[0][1]) in rows[1].left_out
    monkeypatch.chdir(laid)
    there = CommandLine(tmp_path / "there" / "journal.db")
    done = there.run("diff", "s-1", "--turn", "1")
    assert (done.code, "-first\n+turn 1\n" in done.out) == (0, True), done.all
    at = place_of(there, "Turn 2")
    folder = tmp_path / "forked"
    done = there.run("continue", f"s-1@{at}", "--files", str(folder))
    assert done.code == 0, done.err
    assert (folder / "a.txt").read_text() == "turn 2\n"


def test_on_its_way_back_into_a_new_folder_it_has_each_snapshot_once_and_diff_shows_all_turns(
    tmp_path: Path, session: KeptSession
) -> None:
    moved(tmp_path)
    rows = moved(tmp_path, is_there=False)
    assert (len(rows), len({it.root for it in rows})) == (6, 2)
    assert all(it.is_kept for it in rows)
    here = CommandLine(tmp_path / "here" / "journal.db")
    done = here.run("diff", "s-1", "--turn", "1")
    assert (done.code, "-first\n+turn 1\n" in done.out) == (0, True), done.all
    assert ": turn 1\n" in done.out
    assert "-first\n+turn 3\n" in here.run("diff", "s-1").out
    at = place_of(here, "Turn 1")
    done = here.run("continue", f"s-1@{at}", "--files", str(tmp_path / "forked"))
    assert (done.code, (tmp_path / "forked" / "a.txt").read_text()) == (0, "turn 1\n"), done.err


async def test_of_a_changed_file_that_both_have_only_the_difference_is_sent(
    tmp_path: Path,
) -> None:
    project = origin(tmp_path)
    large = "".join(f"{number * 7919 % 100_003}\n" for number in range(100_000))
    project.write("large.txt", large)
    project.commit()
    async with machines(tmp_path, project) as (here, there):
        await here.remember("s-1", *CONVERSATION)
        await here.keep("s-1")
        await here.remember("s-1", *CONVERSATION)
        (here.clone / "large.txt").write_text(f"{large}one more\n")
        await here.keep("s-1")
        given, _, size = await move(here, there)
        assert isinstance(given, MovedSession), given
        laid = Path((await there.journal.session("s-1")).cwd) / "large.txt"
        assert laid.read_text() == f"{large}one more\n"
    assert size < 50_000 < len(large)


def test_earlier_files_that_are_too_large_stay_and_the_reason_is_told(
    tmp_path: Path, session: KeptSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(store: SnapshotStore, *trees: str, **named: Any) -> BinaryIO:
        if len(trees) > 2:
            raise WorkspaceError("too large")
        return make_pack(store, *trees, **named)

    monkeypatch.setattr(move_giver, "make_pack", small)
    rows = moved(tmp_path)
    # The first one is the commit, which the clone there has.
    assert [it.is_kept for it in rows] == [True, False, False, True, True, True]
    there = CommandLine(tmp_path / "there" / "journal.db")
    at = place_of(there, "Turn 1")
    done = there.run("continue", f"s-1@{at}", "--files", str(tmp_path / "forked"))
    assert "it was not sent when the session moved here" in done.err


LIES: tuple[dict[str, Any] | str, ...] = (
    {"cwd": "../.."},
    {"cwd": "/etc"},
    {"tree": "--all"},
    {"turn": 1 << 40},
    {"commit": "HEAD"},
    {"state": "refused"},
    "without the last snapshot",
    "too many",
)


def test_an_earlier_snapshot_that_no_giver_offers_is_refused(
    tmp_path: Path, session: KeptSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie: dict[str, Any] | str

    async def lies(self: MoveLine, frame: object) -> None:
        if isinstance(frame, SessionOffer):
            first, *others = frame.earlier
            if lie == "without the last snapshot":
                frame = replace(frame, files=None)
            elif isinstance(lie, str):
                monkeypatch.setattr(bounds, "EARLIER_SNAPSHOTS", len(others))
            else:
                frame = replace(frame, earlier=(replace(first, **lie), *others))
        await send(self, frame)  # type: ignore[arg-type]

    send = MoveLine.send
    monkeypatch.setattr(MoveLine, "send", lies)

    async def run() -> None:
        nonlocal lie
        async with machines(tmp_path) as (here, there):
            for lie in LIES:
                _, taken, _ = await move(here, there)
                assert "offers an invalid session" in str(taken), lie
                assert [await it.owns("s-1") for it in (here, there)] == [True, False]

    asyncio.run(run())


def test_files_that_are_larger_than_a_taker_reads_leave_the_session_where_it_is(
    tmp_path: Path, session: KeptSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move_taker, "PACK_LIMITS", PackLimits(pack=100))

    async def run() -> None:
        async with machines(tmp_path) as (here, there):
            (here.clone / "new.txt").write_bytes(os.urandom(1000))
            await here.remember("s-1", *CONVERSATION)
            await here.keep("s-1")
            _, taken, _ = await move(here, there)
            assert "the files are too large" in str(taken)
            assert [await it.owns("s-1") for it in (here, there)] == [True, False]

    asyncio.run(run())
