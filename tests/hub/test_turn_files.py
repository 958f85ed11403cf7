"""The files of a repository are kept at both ends of each turn, beside everything else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acp_wire.surroundings import Surroundings
from acphold.errors import AcpError, WorkspaceError
from acphold.journal.rows import RowChange
from acphold.journal.seams import TurnSnapshot
from acphold.journal.stores import open_journal
from acphold.live.agents.interface import Updates
from acphold.live.hub import bounds as hub_bounds, kept_files, kept_stores
from acphold.live.hub.forks import Forked
from acphold.live.hub.kept_files import fork_with_files, remains
from acphold.live.hub.kept_stores import is_due, stores_of, tidy
from acphold.live.server.principals import Principal
from acphold.machine import runtime_folder
from acphold.machine.program_group import ProgramGroup
from acphold.safety.snapshots import (
    bounds as snapshot_bounds,
    checkouts,
    snapshot,
    worktree,
)
from acphold.safety.snapshots.bounds import SnapshotLimits
from acphold.safety.snapshots.checkouts import Checkout
from acphold.safety.snapshots.git import GitError
from acphold.safety.snapshots.snapshot import NotTaken, Taken, take
from acphold.safety.snapshots.store import SnapshotStore
from acphold.safety.snapshots.worktree import LAYING, Included, include
from tests.editor import DEADLINE
from tests.hub.shared import Onlooker, Shared, shared
from tests.snapshots.conftest import EMPTY_TREE, Project, changes, digest
from tests.watched_processes import until


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    # Journals in databases that were copied from one another are one journal there.
    monkeypatch.setattr(runtime_folder, "_account_home", lambda: str(tmp_path / "home"))
    (folder := tmp_path / "work").mkdir()
    made = Project(folder)
    made.git("init", "-q", "-b", "main")
    made.write("a.txt", "first\n")
    made.commit()
    return made


async def kept(house: Shared, session: str, number: int) -> list[TurnSnapshot]:
    """Wait for this many rows of a session."""
    async with asyncio.timeout(DEADLINE):
        while len(rows := await house.journal.snapshots.of(session)) < number:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
    return rows


async def taken(house: Shared, session: str) -> None:
    """Wait until the snapshots that were begun are taken."""
    if (last := house.hub.conversation(session).turns.files._last) is not None:
        await asyncio.wait([last], timeout=DEADLINE)


async def begun(house: Shared, client: Onlooker, session: str) -> asyncio.Future[Any]:
    """A turn that runs at the agent, with its first snapshots taken."""
    turn = await house.begun(client, session, "go")
    await taken(house, session)
    return turn


async def ended(
    house: Shared, session: str, turn: asyncio.Future[Any], number: int
) -> list[TurnSnapshot]:
    """The snapshots of a session, so many, behind the end of a turn that runs."""
    await house.ended(session, turn)
    return await kept(house, session, number)


async def whole_turn(
    house: Shared, client: Onlooker, session: str, number: int = 0
) -> list[TurnSnapshot]:
    """The snapshots of a session, so many, behind one more turn."""
    return await ended(house, session, await begun(house, client, session), number)


async def upkeep(house: Shared) -> None:
    """Wait until the snapshots that were begun are taken, and the upkeep behind them is over."""
    async with asyncio.timeout(DEADLINE):
        while begun := [*house.desk._shared.files._taking]:
            await asyncio.wait(begun)


async def names(house: Shared, row: TurnSnapshot) -> set[str]:
    store = (await stores_of(house.journal)).find(row.store)
    assert store is not None
    return {one.path for one in changes(store, EMPTY_TREE, row.tree)}


async def test_both_ends_of_each_turn_are_kept_with_what_a_command_changed(
    journal: Path, project: Project
) -> None:
    before = digest(project.top / ".git")
    async with shared(journal) as house:
        client, session = await house.opened(project.top)
        for number in (1, 2):
            turn = await begun(house, client, session)
            project.write(f"made{number}.txt", "by a command")
            rows = await ended(house, session, turn, number * 2)
        assert [(row.edge, row.state) for row in rows] == [("begin", "whole"), ("end", "whole")] * 2
        assert rows[1].tree == rows[2].tree
        assert await names(house, rows[0]) == {"a.txt"}
        assert await names(house, rows[3]) == {"a.txt", "made1.txt", "made2.txt"}
        assert (rows[0].branch, rows[0].root) == ("main", str(project.top))
    assert digest(project.top / ".git") == before


@pytest.mark.parametrize("how", ["off", "no repository"])
async def test_where_no_files_are_kept_nothing_is_started(
    journal: Path, project: Project, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "no repository":
        shutil.rmtree(project.top / ".git")

    def fails(*_: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(ProgramGroup, "run", fails)
    async with shared(journal, snapshots=how != "off") as house:
        client, session = await house.opened(project.top)
        await whole_turn(house, client, session)
        assert await house.journal.snapshots.of(session) == []
        assert list(await stores_of(house.journal)) == []
        with pytest.raises(FileNotFoundError):
            os.listdir((await stores_of(house.journal)).folder)


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
async def test_folders_without_a_repository_are_not_looked_at_again_for_a_moment(
    journal: Path, project: Project, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_bounds, "NO_WORK_TREE_SECONDS", seconds)
    git = project.top / ".git"
    git.rename(project.top / "away")
    async with shared(journal) as house:
        client, session = await house.opened(project.top)
        for _ in range(2):
            await whole_turn(house, client, session)
            if not git.exists():  # between the two turns
                (project.top / "away").rename(git)
        await upkeep(house)
        rows = await house.journal.snapshots.of(session)
    assert [row.edge for row in rows] == ([] if seconds else ["begin", "end"])


@pytest.mark.parametrize("how", ["missing", "too old"])
async def test_without_a_git_that_can_do_it_the_person_is_told_once_and_nothing_else_breaks(
    journal: Path, project: Project, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (bin_folder := project.folder / "bin").mkdir()
    if how == "too old":
        (bin_folder / "git").write_text("#!/bin/sh\necho 'error: unknown option' >&2\nexit 129\n")
        (bin_folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin_folder))
    async with shared(journal) as house:
        client, session = await house.opened(project.top)
        for _ in range(3):
            rows = await whole_turn(house, client, session, 2)
        said = "git is not installed" if how == "missing" else "error: unknown option"
        assert [(row.state, row.reason) for row in rows] == [("refused", said)] * 2
        told = [line for line in client.lines if b"Files are not kept" in line]
        assert len(told) == 1
        assert said.encode() in told[0]


async def test_all_folders_are_kept_if_all_are_wanted_and_the_person_is_told_once(
    journal: Path, project: Project
) -> None:
    shutil.rmtree(project.top / ".git")
    async with shared(journal, snapshots="all") as house:
        client, session = await house.opened(project.top)
        for number in (1, 2):
            rows = await whole_turn(house, client, session, number * 2)
        assert {row.state for row in rows} == {"whole"}
        assert await names(house, rows[3]) == {"a.txt"}
        told = [line for line in client.lines if b"Files are kept" in line]
        assert len(told) == 1


class Gate:
    """A git that waits until the test lets it go on."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder := project.folder / "bin").mkdir()
        self._closed = project.folder / "closed"
        real = shutil.which("git")
        wait = f"while [ -e {self._closed} ]; do sleep 0.02; done"
        (folder / "git").write_text(f'#!/bin/sh\n{wait}\nexec {real} "$@"\n')
        (folder / "git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def close(self) -> None:
        self._closed.touch()

    def open(self) -> None:
        self._closed.unlink()


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for each snapshot that begins to be taken."""
    lines: list[str] = []

    def noted(*given: Any, **named: Any) -> Taken | NotTaken:
        lines.append("begun")
        return take(*given, **named)

    monkeypatch.setattr(snapshot, "take", noted)
    return lines


@pytest.fixture
def gate(project: Project, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(project, monkeypatch)


async def words(house: Shared, session: str) -> None:
    await house.agent.say(session, "I think")


async def a_question(house: Shared, session: str) -> None:
    option = {"optionId": "y", "name": "Yes", "kind": "allow_once"}
    asked = {"sessionId": session, "toolCall": {"toolCallId": "1"}, "options": [option]}
    with suppress(AcpError):  # nobody can be asked here
        await house.agent.ask_client("session/request_permission", **asked)


async def a_call(house: Shared, session: str) -> None:
    await words(house, session)
    call = b'{"sessionUpdate":"tool_call","toolCallId":"1","title":"Edit","status":"pending"}'
    await house.agent.listener.hear(Updates(session, "update", [call]))


async def a_write(house: Shared, session: str) -> None:
    asked = {"sessionId": session, "path": "/nowhere/x", "content": ""}
    with suppress(AcpError):
        await house.agent.ask_client("fs/write_text_file", **asked)


async def a_reading(house: Shared, session: str) -> None:
    with suppress(AcpError):
        await house.agent.ask_client("fs/read_text_file", sessionId=session, path="/nowhere/x")


async def an_end(house: Shared, session: str) -> None:
    await house.agent.end(session)


async def nothing(_: Shared, __: str) -> None:
    return None


@pytest.mark.parametrize(
    ("says", "state"),
    [
        (nothing, "whole"),
        (words, "likely"),
        (a_question, "likely"),
        (a_reading, "likely"),
        (a_call, "late"),
        (a_write, "late"),
        (an_end, "late"),
    ],
)
async def test_a_snapshot_is_as_sure_as_what_the_agent_said_before_it_ended(
    project: Project,
    gate: Gate,
    says: Callable[[Shared, str], Awaitable[None]],
    state: str,
    house: Shared,
) -> None:
    client, session = await house.opened(project.top)
    gate.close()
    turn = await house.begun(client, session, "go")
    await says(house, session)
    gate.open()
    await taken(house, session)
    rows = await house.journal.snapshots.of(session)
    assert [(row.edge, row.state) for row in rows][:1] == [("begin", state)]
    if says is not an_end:
        await house.agent.end(session)
    await turn


@pytest.mark.parametrize(
    ("says", "state"), [(nothing, "whole"), (words, "likely"), (a_call, "late")]
)
async def test_a_prompt_that_comes_before_the_last_turn_s_snapshot_is_taken_shares_it(
    project: Project,
    gate: Gate,
    says: Callable[[Shared, str], Awaitable[None]],
    state: str,
    takes: list[str],
    house: Shared,
) -> None:
    client, session = await house.opened(project.top)
    turn = await begun(house, client, session)
    gate.close()
    await house.ended(session, turn)
    turn = await house.begun(client, session, "go on")
    await says(house, session)
    gate.open()
    rows = await kept(house, session, 3)
    assert [(row.edge, row.state) for row in rows] == [
        ("begin", "whole"),
        ("end", state),
        ("begin", state),
    ]
    assert rows[1].tree == rows[2].tree
    assert len(takes) == 2
    await house.ended(session, turn)
    assert (await kept(house, session, 4))[3].state == "whole"


@pytest.mark.parametrize(
    ("says", "state"), [(nothing, "whole"), (words, "likely"), (a_call, "late"), (an_end, "late")]
)
async def test_an_end_is_as_sure_if_the_next_prompt_comes_with_other_folders(
    project: Project,
    gate: Gate,
    says: Callable[[Shared, str], Awaitable[None]],
    state: str,
    house: Shared,
) -> None:
    house.agent.can("resume", "additionalDirectories")
    client, session = await house.opened(project.top)
    turn = await begun(house, client, session)
    gate.close()
    await house.ended(session, turn)
    await client.load(session, cwd=project.top, additionalDirectories=[str(project.folder)])
    turn = await house.begun(client, session, "go on")
    await says(house, session)
    gate.open()
    rows = await kept(house, session, 3)
    assert [(row.edge, row.state) for row in rows[1:3]] == [("end", state), ("begin", state)]
    if says is not an_end:
        await house.agent.end(session)
    await turn


async def test_turns_that_end_before_a_snapshot_is_taken_share_the_next_one(
    project: Project, gate: Gate, takes: list[str], house: Shared
) -> None:
    client, session = await house.opened(project.top)
    gate.close()
    turn = await house.begun(client, session, "go")
    await until(lambda: takes)
    for _ in range(3):
        await house.ended(session, turn)
        turn = await house.begun(client, session, "go on")
    gate.open()
    rows = await kept(house, session, 7)
    assert [(row.edge, row.state) for row in rows] == [
        *[("begin", "late"), ("end", "late")] * 2,
        ("begin", "late"),
        ("end", "whole"),
        ("begin", "whole"),
    ]
    assert len(takes) == 2
    await house.ended(session, turn)


async def test_a_disk_that_hangs_holds_no_prompt_and_is_looked_at_once(
    project: Project, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    real, tried, answers = checkouts.checkout_of, list[int](), threading.Event()

    def hangs(folder: str) -> Checkout | None:
        tried.append(threading.get_ident())
        answers.wait(DEADLINE)
        return real(folder)

    client, session = await house.opened(project.top)
    monkeypatch.setattr(checkouts, "checkout_of", hangs)
    for _ in range(2):
        await house.turn(client, session, "go")
    await until(lambda: tried)
    assert len(tried) == 1
    assert threading.get_ident() not in tried
    assert await house.journal.snapshots.of(session) == []
    answers.set()
    await upkeep(house)
    rows = await house.journal.snapshots.of(session)
    assert [row.state for row in rows] == ["late", "late", "late", "whole"]
    await whole_turn(house, client, session)
    assert len(await kept(house, session, 6)) == 6


async def test_cancelled_and_failed_turns_have_an_end_too(project: Project, house: Shared) -> None:
    client, session = await house.opened(project.top)
    turn = await begun(house, client, session)
    project.write("made.txt")
    client.tell("session/cancel", {"sessionId": session})
    await turn
    rows = await kept(house, session, 2)
    assert await names(house, rows[1]) == {"a.txt", "made.txt"}


async def test_what_is_refused_says_why(
    journal: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project.top))
    async with shared(journal) as house:
        client, session = await house.opened(project.top)
        for number in (1, 2):
            rows = await whole_turn(house, client, session, 2)
            if number == 1:
                assert [row.state for row in rows] == ["refused"] * 2
                assert all("home folder" in row.reason for row in rows)
        assert len(rows) == 2  # after two refusals in a row it is left alone
        assert not [line for line in client.lines if b"Files are not kept" in line]


async def test_a_folder_in_which_git_hangs_costs_one_deadline(
    journal: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(project.top / ".gitignore")
    monkeypatch.setattr(snapshot_bounds, "SNAPSHOT_SECONDS", 0.5)
    tried = []

    def counted(*given: Any, **named: Any) -> Taken | NotTaken:
        taken = take(*given, **named)
        assert isinstance(taken, NotTaken)
        tried.append(taken.cause)
        return taken

    monkeypatch.setattr(snapshot, "take", counted)
    async with shared(journal) as house:
        client, session = await house.opened(project.top)
        for _ in range(2):
            await whole_turn(house, client, session)
        rows = await kept(house, session, 2)
        assert {row.state for row in rows} == {"refused"}
        assert all("too long" in row.reason for row in rows)
    assert tried.count("slow") == 1


@pytest.mark.slow
async def test_a_hundred_thousand_new_files_are_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    for number in range(500):
        (project.top / f"new{number}").mkdir()
        for name in range(200):
            os.close(os.open(project.top / f"new{number}" / str(name), os.O_CREAT))
    _client, session = await house.opened(project.top)
    house.hub.conversation(session).turns.files.begin(0, (str(project.top),))
    [row] = await kept(house, session, 1)
    assert "100,000 new files are not ignored" in row.reason


async def test_a_fork_has_the_files_of_its_turn_and_leaves_all_others_alone(
    project: Project, tmp_path: Path, house: Shared
) -> None:
    client = await house.client()
    (project.top / "sub").mkdir()
    session = await client.new(project.top / "sub")
    for number in (1, 2):
        turn = await begun(house, client, session)
        project.write("a.txt", f"turn {number}\n")
        project.write(f"made{number}.txt", "by a command")
        rows = await ended(house, session, turn, number * 2)
    row = await house.journal.session(session)
    there, made = await fork_with_files(
        *(house.journal, row, Surroundings.here(), str(tmp_path / "first")),
        at=rows[1].turn + 1,
    )
    assert (tmp_path / "first" / "a.txt").read_text() == "turn 1\n"
    assert (tmp_path / "first" / "made1.txt").exists()
    assert not (tmp_path / "first" / "made2.txt").exists()
    assert there.cwd == str(tmp_path / "first" / "sub")
    assert (await house.journal.session(made.session_id)).cwd == there.cwd
    assert made.turns == 1
    _, made = await fork_with_files(house.journal, row, Surroundings.here(), str(tmp_path / "last"))
    assert (made.turns, (tmp_path / "last" / "a.txt").read_text()) == (2, "turn 2\n")
    assert project.status(tmp_path / "last") == project.status()
    count = await house.journal.count()
    with pytest.raises(WorkspaceError, match="not empty"):
        await fork_with_files(house.journal, row, Surroundings.here(), str(tmp_path / "last"))
    assert await house.journal.count() == count


@pytest.mark.parametrize("when", ["copied", "failed", "cancelled"])
async def test_a_fork_that_fails_leaves_no_file_behind_that_was_included(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, house: Shared
) -> None:
    project.write(".gitignore", "*.local\n/out\n")
    project.write(".worktreeinclude", "*.local\n/out\n")
    project.write("a.local")
    project.write("out/deep/b")
    (tmp_path / "empty").mkdir()
    client, session = await house.opened(project.top)
    await whole_turn(house, client, session, 2)
    row = await house.journal.session(session)
    is_over, seen = threading.Event(), list[str]()
    real = include

    def slow(*given: Any) -> Included:
        done = real(*given)
        seen.extend(os.listdir(tmp_path / "empty"))
        is_over.wait(DEADLINE)
        return done

    async def fails(*_: object, **__: object) -> Forked:
        raise WorkspaceError("no space left")

    if when == "cancelled":
        monkeypatch.setattr(worktree, "include", slow)
    elif when == "failed":
        monkeypatch.setattr(kept_files, "fork", fails)
    forking = asyncio.create_task(
        fork_with_files(
            house.journal, row, Surroundings.here(), str(tmp_path / "empty"), include=True
        )
    )
    if when == "cancelled":
        await until(lambda: seen)
        assert {"a.local", "out", "a.txt"} <= {*seen}
        forking.cancel()
        asyncio.get_running_loop().call_soon(is_over.set)
    await asyncio.wait([forking])
    if when == "copied":
        assert (tmp_path / "empty" / "out" / "deep" / "b").exists()
    else:
        assert os.listdir(tmp_path / "empty") == []
        assert "empty" not in project.git("worktree", "list")


async def test_a_fork_that_is_cancelled_as_its_files_are_laid_out_leaves_none_behind(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    (tmp_path / "empty").mkdir()
    client, session = await house.opened(project.top)
    await whole_turn(house, client, session, 2)
    row = await house.journal.session(session)
    loop = asyncio.get_running_loop()

    def last(_: str) -> bool:
        loop.call_soon_threadsafe(forking.cancel)
        return False

    monkeypatch.setattr(worktree, "has_list", last)
    forking = asyncio.create_task(
        fork_with_files(house.journal, row, Surroundings.here(), str(tmp_path / "empty"))
    )
    await asyncio.wait([forking])
    assert forking.cancelled()
    assert os.listdir(tmp_path / "empty") == []
    assert "empty" not in project.git("worktree", "list")


async def test_a_client_has_a_session_copied_with_its_files(
    project: Project, tmp_path: Path, house: Shared
) -> None:
    client, session = await house.opened(project.top)
    for number in (1, 2):
        turn = await begun(house, client, session)
        project.write("a.txt", f"turn {number}\n")
        await ended(house, session, turn, number * 2)
    ask = {"sessionId": session}
    made = await client.call("_acphold/fork", {**ask, "files": True, "before": True})
    beside = project.top.with_name(f"{project.top.name}-fork")
    assert made["files"] == {"folder": str(beside)}
    assert (made["cwd"], made["turns"]) == (str(beside), 1)
    assert (beside / "a.txt").read_text() == "turn 1\n"
    made = await client.call("_acphold/fork", {**ask, "files": str(tmp_path / "named")})
    assert (tmp_path / "named" / "a.txt").read_text() == "turn 2\n"
    plain = await client.call("_acphold/fork", ask)
    assert (plain["turns"], plain["cwd"], "files" in plain) == (2, str(project.top), False)
    count = await house.journal.count()
    for folder in (str(project.top), "relative", "/na\0med"):
        refused = await client.refused("_acphold/fork", {**ask, "files": folder})
        assert "internal" not in str(refused)
    for at in (0, "x"):
        await client.refused("_acphold/fork", {**ask, "at": at})
    far = house.stranger(Principal(name="far", sees_all=True, is_here=False))
    await far.introduce(None, {})
    refused = await far.refused("_acphold/fork", {**ask, "files": str(tmp_path / "far")})
    assert "on this machine" in str(refused)
    assert await house.journal.count() == count


MARKER = b"only-in-the-files-of-a-deleted-session"


async def test_deleting_a_session_removes_its_files_from_the_disk(
    project: Project, house: Shared
) -> None:
    client = await house.client()
    sessions = [await client.new(project.top) for _ in range(2)]
    for session, text in zip(sessions, (MARKER, b"kept"), strict=True):
        project.write("a.txt", text)
        rows = await whole_turn(house, client, session, 2)
    folder = Path((await stores_of(house.journal)).folder)
    await house.desk.delete(sessions[0])
    assert await names(house, rows[1]) == {"a.txt"}
    await upkeep(house)
    [store] = await stores_of(house.journal)
    listed = project.git("-C", store.path, "cat-file", "--batch-all-objects", "--batch")
    assert MARKER.decode() not in listed
    assert "kept" in listed
    await house.desk.delete(sessions[1])
    await upkeep(house)
    assert {*os.listdir(folder)} == {".lock", ".tidied", "told"}


async def test_old_snapshots_go_and_those_of_the_first_and_last_turn_stay(
    project: Project, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client, session = await house.opened(project.top)
    for number in range(4):
        turn = await begun(house, client, session)
        project.write("a.txt", os.urandom(20_000))
        rows = await ended(house, session, turn, number * 2 + 2)
    tidied = os.path.join((await stores_of(house.journal)).folder, ".tidied")
    os.utime(tidied, (1, 1))
    monkeypatch.setattr(hub_bounds, "SNAPSHOT_AGE_MS", -60_000)
    await tidy(house.journal)
    assert await house.journal.snapshots.of(session) == rows  # the clock may have jumped
    yesterday = time.time() - hub_bounds.UPKEEP_EVERY_SECONDS - 60
    os.utime(tidied, (yesterday, yesterday))
    await whole_turn(house, client, session)
    async with asyncio.timeout(DEADLINE):
        while len(await house.journal.snapshots.of(session)) != 4:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)
    rows += await house.journal.snapshots.of(session)
    left = await house.journal.snapshots.of(session)
    assert left == [*rows[:2], *rows[-2:]]
    assert left[2].turn > rows[7].turn
    assert all([await names(house, row) for row in left])
    monkeypatch.setattr(hub_bounds, "SNAPSHOT_STORE_BYTES", 10_000)
    await tidy(house.journal)
    assert len(await house.journal.snapshots.of(session)) < 3


async def test_the_end_that_a_crash_has_cost_is_taken_by_the_next_turn(
    project: Project, house: Shared
) -> None:
    client, session = await house.opened(project.top)
    turn = await begun(house, client, session)
    [begin] = await kept(house, session, 1)
    rows = await ended(house, session, turn, 2)
    await house.journal.snapshots.drop(session, rows[1:])  # as if it had been killed
    project.write("made.txt")
    turn = await begun(house, client, session)
    rows = await kept(house, session, 3)
    assert [(row.turn == begin.turn, row.edge, row.state) for row in rows] == [
        (True, "begin", "whole"),
        (True, "end", "later"),
        (False, "begin", "whole"),
    ]
    await house.ended(session, turn)


async def test_upkeep_that_fails_drops_no_snapshot(
    project: Project, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client, session = await house.opened(project.top)
    for number in (1, 2):
        rows = await whole_turn(house, client, session, number * 2)
    await upkeep(house)

    def fails(*_: object, **__: object) -> None:
        raise GitError("no space left")

    monkeypatch.setattr(SnapshotStore, "keep", fails)
    monkeypatch.setattr(hub_bounds, "SNAPSHOT_STORE_BYTES", 0)
    await tidy(house.journal)
    assert await house.journal.snapshots.of(session) == rows
    monkeypatch.setattr(SnapshotStore, "keep", lambda *_, **__: None)
    await tidy(house.journal)
    assert await house.journal.snapshots.of(session) == rows[2:]


async def test_a_session_is_deleted_whatever_becomes_of_the_upkeep(
    project: Project, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    async def fails(_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(kept_stores, "tidy", fails)
    _client, session = await house.opened(project.top)
    await house.desk.delete(session)


async def test_a_folder_that_a_killed_fork_has_laid_out_is_its_sessions_even_if_that_is_archived(
    project: Project, house: Shared
) -> None:
    """Otherwise the next fork would take it for a remainder, and remove the files."""
    top = str(project.top)
    client, session = await house.opened(project.top)
    await whole_turn(house, client, session, 2)
    [store] = await stores_of(house.journal)
    note = {"folder": top, "project": top, "is_new": False}
    with open(f"{store.path}/{LAYING}-killed", "w") as left:  # noqa: ASYNC230 - a few bytes
        json.dump(note, left)
    assert await remains(house.journal) == {top: True}
    await house.journal.change(session, RowChange(archived=True))
    assert (await house.journal.session(session)).archived
    assert await remains(house.journal) == {top: True}


async def test_the_end_of_the_process_does_not_wait_for_upkeep(
    journal: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only for the last snapshots, which here may take as long as they like."""
    ended: list[str] = []

    async def endless(_: object) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("upkeep")

    monkeypatch.setattr(kept_stores, "tidy", endless)
    monkeypatch.setattr(hub_bounds, "LAST_SNAPSHOTS_SECONDS", 2 * DEADLINE)
    async with asyncio.timeout(DEADLINE):
        async with shared(journal) as house:
            client = await house.client()
            await house.desk.delete(await client.new(project.top))
        assert ended == ["upkeep"]


async def test_a_turn_does_not_wait_for_upkeep(
    project: Project, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    is_over = asyncio.Event()

    async def slow(_: object) -> None:
        await is_over.wait()

    monkeypatch.setattr(kept_stores, "tidy", slow)
    client, session = await house.opened(project.top)
    for number in (1, 2):
        rows = await whole_turn(house, client, session, number * 2)
    assert {row.state for row in rows} == {"whole"}
    is_over.set()


async def test_the_end_of_a_process_leaves_the_upkeep_to_whoever_comes_next(
    journal: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (slow := project.folder / "bin").mkdir()
    begun_mark = project.folder / "repacking"
    (slow / "git").write_text(
        f'#!/bin/sh\ncase " $* " in *" repack "*) touch {begun_mark}; exec sleep 60;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
    async with shared(journal) as house:
        client, session = await house.opened(project.top)
        folder = (await stores_of(house.journal)).folder
        os.makedirs(folder)
        os.mknod(os.path.join(folder, ".tidied"))
        os.utime(os.path.join(folder, ".tidied"), (1, 1))
        turn = await begun(house, client, session)
        await until(lambda: begun_mark.exists())
        await house.ended(session, turn)
        began = time.monotonic()
    assert time.monotonic() - began < 4
    opened = open_journal(journal)
    assert is_due(await stores_of(opened))
    await opened.aclose()


async def test_a_folder_is_kept_again_once_there_is_room_in_its_store(
    project: Project, monkeypatch: pytest.MonkeyPatch, house: Shared
) -> None:
    client, session = await house.opened(project.top)
    folder = (await stores_of(house.journal)).folder
    os.makedirs(folder)
    os.mknod(tidied := os.path.join(folder, ".tidied"))
    minute_ago = time.time() - 60  # so the upkeep is not due, but for the full store
    os.utime(tidied, (minute_ago, minute_ago))
    for limits in (SnapshotLimits(store=0, free=0), SnapshotLimits(free=0)):
        monkeypatch.setattr(snapshot, "take", partial(take, limits=limits))
        turn = await begun(house, client, session)
        async with asyncio.timeout(DEADLINE):
            while limits.store == 0 and os.stat(tidied).st_mtime < minute_ago + 30:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        rows = await ended(house, session, turn, 2 if limits.store == 0 else 4)
    assert [row.state for row in rows] == ["refused"] * 2 + ["whole"] * 2
    assert "full" in rows[0].reason


async def test_a_branch_with_any_name_is_kept(project: Project, house: Shared) -> None:
    project.git("symbolic-ref", "HEAD", os.fsdecode(b"refs/heads/caf\xe9"))
    client, session = await house.opened(project.top)
    await whole_turn(house, client, session)
    assert (await kept(house, session, 2))[0].branch == "caf\ufffd"
