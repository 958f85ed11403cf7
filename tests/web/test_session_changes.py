"""The changes of a session for the page: its files, the prompts before them, in bounded pieces."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.reports.session_diff import session_diff
from acphold.web import bounds
from tests.journal.conversations import Pieces, turn
from tests.origins.kept import KeptSession, edit as shown
from tests.snapshots.conftest import Project
from tests.web.in_process import Site, site


def edit(name: str, path: str, old: str | None, new: str) -> dict[str, Any]:
    diff = {"type": "diff", "path": path, "oldText": old, "newText": new}
    call = {"sessionUpdate": "tool_call", "toolCallId": name, "status": "completed"}
    return {**call, "title": name, "content": [diff]}


def two_turns(folder: Path) -> Pieces:
    """A file that two prompts changed, and one of the second alone."""
    one, other = str(folder / "one.py"), str(folder / "sub" / "other.py")
    return [
        *turn("Begin with  one", edit("1", one, None, "a\nb\n")),
        *turn("Go on", edit("2", one, "a\nb\n", "a\nc\n"), edit("3", other, None, "new\n")),
    ]


async def changes(served: Site, **query: object) -> Any:
    words = "&".join(f"{name}={value}" for name, value in query.items())
    answer = await served.get(f"/sessions/one/changes?{words}")
    assert answer.status == 200, answer.body
    return answer.json


async def test_each_file_has_its_patch_its_counts_and_the_prompts_that_changed_it(
    tmp_path: Path, web: Site
) -> None:
    await web.remember("one", two_turns(tmp_path), cwd=str(tmp_path))
    told = await changes(web)
    first, second = told["files"]
    assert (first["path"], first["added"], first["removed"]) == ("one.py", 2, 0)
    assert first["patch"].endswith("@@ -0,0 +1,2 @@\n+a\n+c\n")
    assert (second["path"], second["turns"], second["rest"]) == ("sub/other.py", [2], 0)
    assert (first["turns"], told["turns"], told["turn"]) == ([1, 2], 2, None)
    assert [(it["turn"], it["text"]) for it in told["prompts"]] == [
        (1, "Begin with one"),
        (2, "Go on"),
    ]
    (place,) = [it["seq"] for it in told["prompts"] if it["turn"] == 2]
    entries = (await web.get(f"/sessions/one/entries?before={place + 1}&limit=1")).json
    assert "Go on" in str(entries["entries"][0]["update"])


async def test_the_changes_since_the_last_prompt_are_those_of_one_turn(
    tmp_path: Path, web: Site
) -> None:
    await web.remember("one", two_turns(tmp_path), cwd=str(tmp_path))
    told = await changes(web, turn="last")
    assert told["turn"] == 2
    assert [(it["path"], it["added"], it["removed"]) for it in told["files"]] == [
        ("one.py", 1, 1),
        ("sub/other.py", 1, 0),
    ]
    assert told == await changes(web, turn=2)
    assert (await web.get("/sessions/one/changes?turn=3")).status == 404
    for odd in ("first", "last%0A", "1%0A", "0", "9999999999"):
        answer = await web.get(f"/sessions/one/changes?turn={odd}")
        assert answer.status == 400
        assert answer.json["error"] == "turn must be a number from 1 to 4294967295 or last"


async def test_a_session_without_a_prompt_has_changed_nothing_since(web: Site) -> None:
    await web.remember("one", [])
    assert (await changes(web, turn="last"))["files"] == []


async def test_a_change_that_has_no_patch_says_why(tmp_path: Path, web: Site) -> None:
    outside = turn("Go", edit("1", "/etc/other", "a\n", "b\n"))
    await web.remember("one", outside, cwd=str(tmp_path))
    (file,) = (await changes(web))["files"]
    assert file["gap"] == "it is outside of the session's folder"
    assert (file["patch"], file["added"]) == ("", 0)


async def test_a_long_patch_is_cut_at_a_line_and_is_whole_by_itself(tmp_path: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(10_000))
    made = turn("Go", edit("1", str(tmp_path / "long.txt"), None, text))
    async with site(tmp_path) as served:
        await served.remember("one", made, cwd=str(tmp_path))
        (cut,) = (await changes(served))["files"]
        assert len(cut["patch"]) <= bounds.PATCH_CHARACTERS
        assert cut["patch"].endswith("\n")
        (whole,) = (await changes(served, path="long.txt"))["files"]
        assert whole["patch"].startswith(cut["patch"])
        assert (whole["rest"], whole["added"], cut["added"]) == (0, 10_000, 10_000)
        assert cut["rest"] == whole["patch"].count("\n") - cut["patch"].count("\n")
        assert (await served.get("/sessions/one/changes?path=none.txt")).status == 404


async def test_all_files_together_are_bounded_and_the_rest_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CHANGED_FILES", 2)
    monkeypatch.setattr(bounds, "ALL_PATCHES_CHARACTERS", 200)
    edits = [edit(str(n), str(tmp_path / f"{n}.txt"), None, "a line\n" * 20) for n in range(3)]
    async with site(tmp_path) as served:
        await served.remember("one", turn("Go", *edits), cwd=str(tmp_path))
        told = await changes(served)
        assert (len(told["files"]), told["more"]) == (2, 1)
        assert sum(len(file["patch"]) for file in told["files"]) <= 200
        assert told["files"][1]["added"] == 20


async def test_a_session_that_is_too_long_for_a_page_is_left_to_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CHANGES_HISTORY_BYTES", 100)
    async with site(tmp_path) as served:
        await served.remember("one", two_turns(tmp_path))
        answer = await served.get("/sessions/one/changes")
        assert answer.status == 413
        assert "acphold diff" in answer.json["error"]


async def test_only_who_sees_all_sessions_sees_lines_that_stand_in_the_file_alone(
    tmp_path: Path,
) -> None:
    # An agent may report edits that it never made, to have a file quoted around them.
    (path := tmp_path / "key.txt").write_text("only on the disk\nc\n")
    async with site(tmp_path) as served:
        made_up = turn("Go on", edit("1", str(path), "b\n", "c\n"))
        await served.remember("one", made_up, cwd=str(tmp_path))
        guest = await served.new_token(session_id="one")
        assert b"only on the disk" in (await served.get("/sessions/one/changes")).body
        shown = await served.get("/sessions/one/changes", token=guest)
        assert shown.status == 200
        assert b"only on the disk" not in shown.body


async def test_changes_are_computed_one_after_the_other_and_only_so_many_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[int] = [0, 0]
    statuses: list[int] = []
    all_came = threading.Event()

    async def watched(*given: Any, by_turn: bool) -> Any:
        running[0] += 1
        running[1] = max(running)
        assert await asyncio.to_thread(all_came.wait, 30)
        try:
            return await session_diff(*given, by_turn=by_turn)
        finally:
            running[0] -= 1

    monkeypatch.setattr("acphold.live.origins.kept_changes.session_diff", watched)

    async def ask(served: Site) -> None:
        statuses.append((await served.get("/sessions/one/changes")).status)
        if statuses.count(503) == 9 - bounds.WAITING_CHANGES:
            all_came.set()

    async with site(tmp_path) as served:
        await served.remember("one", two_turns(tmp_path), cwd=str(tmp_path))
        await asyncio.gather(*(ask(served) for _ in range(10)))
    assert running[1] == 1
    assert statuses.count(200) == bounds.WAITING_CHANGES + 1
    assert set(statuses) == {200, 503}


async def test_kept_files_show_all_that_changed_and_only_to_those_who_see_all(
    tmp_path: Path,
) -> None:
    (tmp_path / "work").mkdir()
    project = Project(tmp_path / "work")
    project.git("init", "-q")
    project.write("a.txt", "one\n")

    def keep() -> None:
        session = KeptSession(tmp_path / "journal.db", project, "one")

        def work() -> None:
            project.write("a.txt", "ONE\n")
            project.write("b.bin", b"\0\1")
            project.write(".env")

        session.turn("Louder", shown("1", "a.txt", "one\n", "ONE\n"), does=work, end="late")

    await asyncio.to_thread(keep)
    async with site(tmp_path) as served:
        told = await changes(served)
        assert told["kept"]
        assert told["notes"] == [
            "turn 1: its last snapshot was late and may have changes of later turns",
            "not kept, so not shown: .env (may contain a secret)",
        ]
        first, second = told["files"]
        assert (first["path"], first["added"], first["removed"]) == ("a.txt", 1, 1)
        assert second["patch"] == ""
        assert (second["gap"], second["turns"]) == ("it is no text", [1])
        assert [it["text"] for it in told["prompts"]] == ["Louder"]
        assert (await changes(served, turn="last"))["files"] == told["files"]
        assert (await changes(served, path="a.txt"))["files"] == [first]
        guest = await served.new_token("watch", session_id="one")
        told = (await served.get("/sessions/one/changes", guest)).json
        assert (told["kept"], [it["path"] for it in told["files"]]) == (False, ["a.txt"])


async def test_who_may_copy_a_session_with_its_files_is_told_where_they_were_kept(
    tmp_path: Path,
) -> None:
    (tmp_path / "work").mkdir()
    project = Project(tmp_path / "work")
    project.git("init", "-q")

    def keep() -> None:
        session = KeptSession(tmp_path / "journal.db", project, "one")
        session.turn("Both")
        session.turn("Neither", begin="missing", end="missing")
        session.turn("One", end="refused")

    await asyncio.to_thread(keep)
    async with site(tmp_path) as served:
        may = await served.new_token("watch", "manage", "files")
        first, last = (await served.get("/sessions/one/kept", may)).json["turns"]
        assert (first["turn"], first["before"], first["after"]) == (0, True, True)
        assert (last["turn"] > 0, last["before"], last["after"]) == (True, True, False)
        for scope in ("watch", "manage"):
            other = await served.new_token(scope)
            assert (await served.get("/sessions/one/kept", other)).status == 403
        assert (await served.get("/sessions/none/kept", may)).status == 404
