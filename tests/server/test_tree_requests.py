"""Work trees of sessions, as a client sees them: brought back, or removed with the session."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from acp_wire.surroundings import Surroundings
from acphold.journal.access import SCOPES
from acphold.journal.stores import open_journal
from acphold.live.hub import session_trees
from acphold.live.hub.session_trees import make_tree
from acphold.live.reading.local_reader import LocalReader
from acphold.live.server.principals import Principal
from acphold.safety.snapshots.branches import NewTree, new_tree
from tests.hub.shared import Onlooker, Shared
from tests.snapshots.conftest import Project, begun

METHOD = "_acphold/worktree"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.com\n")
    monkeypatch.setenv("HOME", str(home))
    made = begun(tmp_path)
    made.write("a.txt", "a\n")
    made.commit()
    return made


@pytest.fixture
def tree(project: Project) -> NewTree:
    """A work tree with a commit and a file that is not committed."""
    made = new_tree(str(project.top))
    Path(made.cwd, "a.txt").write_text("a\nb\n")
    project.git("commit", "-qam", "Add b", at=Path(made.cwd))
    Path(made.cwd, "c.txt").write_text("c\n")
    return made


async def look(client: Onlooker, session: str, **more: str) -> Any:
    return await client.call(METHOD, {"sessionId": session, **more})


async def test_a_client_sees_what_would_come_commits_and_merges_it(
    project: Project, tree: NewTree, house: Shared
) -> None:
    client, session = await house.opened(Path(tree.cwd))
    target = project.git("branch", "--show-current").strip()
    seen = await look(client, session)
    assert (seen["source"], seen["target"]) == ("acphold/work", target)
    assert (seen["into"], seen["isOurs"]) == (str(project.top), True)
    assert (seen["commits"], seen["files"]) == (["Add b"], [["a.txt", 1, 0]])
    assert seen["uncommitted"] == ["c.txt"]
    assert seen["numbers"] == {
        **{"commits": 1, "files": 1, "uncommitted": 1},
        **{"changed": 0, "conflicts": 0},
    }
    # Only a yes to what is there now counts.
    put(tree.cwd, "d.txt")
    refused = await client.refused(METHOD, {"sessionId": session, "do": "commit", **mark(seen)})
    assert "has changed since you saw it" in str(refused)
    seen = await look(client, session)
    then = await look(client, session, do="commit", **mark(seen))
    assert (then["commits"], "uncommitted" in then) == (["Work of an agent", "Add b"], False)
    refused = await client.refused(METHOD, {"sessionId": session, "do": "merge", **mark(seen)})
    assert "has changed since you saw it" in str(refused)
    done = await look(client, session, do="merge", **mark(then))
    assert (done["isMerged"], "commits" in done) == (True, False)
    assert (project.top / "d.txt").read_text() == "d\n"
    assert project.git("log", "-1", "--format=%an").strip() == "Ada"


def put(folder: str, name: str) -> None:
    Path(folder, name).write_text(f"{name[0]}\n")


def is_there(folder: str) -> bool:
    return os.path.exists(folder)


def mark(seen: Any) -> dict[str, str]:
    return {"seen": seen["mark"]}


async def test_what_cannot_be_merged_is_refused_and_said(
    project: Project, tree: NewTree, house: Shared
) -> None:
    client, session = await house.opened(Path(tree.cwd))
    (project.top / "a.txt").write_text("mine\n")
    seen = await look(client, session)
    assert seen["changed"] == ["a.txt"]
    refused = await client.refused(METHOD, {"sessionId": session, "do": "merge", **mark(seen)})
    assert f"git -C {project.top} merge acphold/work" in str(refused)
    assert (project.top / "a.txt").read_text() == "mine\n"
    project.git("switch", "-q", "-c", "other")
    target = seen["target"]
    project.git("branch", "-D", "-q", target)
    assert (await look(client, session))["problem"].endswith("is gone")
    elsewhere = await client.new(project.top)
    assert await look(client, elsewhere) == {}


async def test_nothing_is_merged_while_a_turn_runs(
    project: Project, tree: NewTree, house: Shared
) -> None:
    client, session = await house.opened(Path(tree.cwd))
    turn = await house.begun(client, session, "go")
    seen = await look(client, session)
    refused = await client.refused(METHOD, {"sessionId": session, "do": "merge", **mark(seen)})
    assert "a turn is running" in str(refused)
    await house.ended(session, turn)
    await look(client, session, do="merge", **mark(seen))
    assert (project.top / "a.txt").read_text() == "a\nb\n"


async def test_nothing_is_merged_while_a_turn_runs_in_another_process(
    project: Project, tree: NewTree, house: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, session = await house.opened(Path(tree.cwd))
    assert (await house.turn(client, session, "go"))["stopReason"] == "end_turn"
    await client.call("session/close", {"sessionId": session})
    seen = await look(client, session)

    async def running(reader: LocalReader, session_id: str) -> str:
        assert session_id == session
        return "running"

    monkeypatch.setattr(LocalReader, "live_state", running)
    refused = await client.refused(METHOD, {"sessionId": session, "do": "merge", **mark(seen)})
    assert "a turn is running" in str(refused)


async def test_a_deleted_session_takes_its_work_tree_along_if_it_was_seen(
    project: Project, tree: NewTree, house: Shared
) -> None:
    client, session = await house.opened(Path(tree.cwd))
    seen = await look(client, session)
    gone = {"sessionId": session, "_meta": {"acphold/worktree": "x"}}
    refused = await client.refused("session/delete", gone)
    assert "its work tree: this has changed" in str(refused)
    assert is_there(tree.cwd)
    gone["_meta"] = {"acphold/worktree": seen["mark"]}
    may = frozenset(SCOPES) - {"files"}
    guest = house.stranger(Principal(name="far", sees_all=True, is_here=False, scopes=may))
    await guest.introduce(None, {})
    assert "files" in str(await guest.refused("session/delete", gone))
    assert await client.call("session/delete", gone) == {}
    assert not is_there(tree.cwd)
    assert "acphold/work" not in project.git("branch")


async def test_a_work_tree_in_which_others_work_or_that_is_locked_stays(
    project: Project, tree: NewTree, house: Shared
) -> None:
    os.mkdir(os.path.join(tree.cwd, "sub"))
    client, session = await house.opened(Path(tree.cwd))
    other = await client.new(Path(tree.cwd, "sub"))
    await house.ended(other, await house.begun(client, other, "go"))
    seen = await look(client, session)
    assert "isOurs" not in seen
    gone = {"sessionId": session, "_meta": {"acphold/worktree": seen["mark"]}}
    await client.refused("session/delete", gone)
    await client.call("session/delete", {"sessionId": other})
    project.git("worktree", "lock", "--reason", "on a stick", tree.cwd)
    seen = await look(client, session)
    gone["_meta"] = {"acphold/worktree": seen["mark"]}
    stays = (await client.call("session/delete", gone))["_meta"]["acphold/stays"]
    assert stays == f"the work tree {tree.cwd} is locked (on a stick)"
    assert is_there(tree.cwd)


async def test_nothing_is_left_of_a_work_tree_whose_making_was_cancelled(
    journal: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, begun, may_go_on = list[NewTree](), threading.Event(), threading.Event()

    def slowly(cwd: str) -> NewTree:
        made.append(new_tree(cwd))
        begun.set()
        assert may_go_on.wait(20)
        return made[0]

    monkeypatch.setattr(session_trees, "new_tree", slowly)
    here = Surroundings({}, str(project.top))
    async with aclosing(open_journal(str(journal))) as kept:
        making = make_tree(kept, str(project.top), here, include=False)
        task = asyncio.create_task(making)
        assert await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not is_there(made[0].cwd)
    assert project.git("worktree", "list").count("\n") == 1
