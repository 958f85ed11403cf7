"""Origins of lines: for users who may see all sessions, in requests of bounded size."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from acphold.web import bounds, file_changes
from tests.origins.kept import KeptSession
from tests.snapshots.conftest import Project, begun
from tests.web.in_process import site


def asked(project: Project, lines: list[list[int]], path: bytes = b"a.txt") -> dict[str, Any]:
    root = project.git("rev-list", "--max-parents=0", "HEAD").strip()
    content = (project.top / "a.txt").read_bytes()
    file = {"path": b64encode(path).decode(), "content": b64encode(content).decode()}
    return {"project": {"roots": [root], "remotes": []}, "files": [{**file, "lines": lines}]}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = begun(tmp_path)
    made.write("a.txt", "one\n")
    made.commit("begin, in work")
    return made


def keep(folder: Path, project: Project) -> None:
    session = KeptSession(folder / "journal.db", project, "one")
    session.turn("Longer", does=lambda: project.write("a.txt", "one\nnumber two of them\n"))


async def test_a_line_is_known_by_its_project_and_by_nothing_else(
    tmp_path: Path, project: Project
) -> None:
    await asyncio.to_thread(keep, tmp_path, project)
    (tmp_path / "other").mkdir()
    other = Project(tmp_path / "other")
    other.git("init", "-q")
    other.write("a.txt", "one\nnumber two of them\n")
    other.commit("begin, elsewhere")
    async with site(tmp_path) as served:
        told = (await served.post("/origins", **asked(project, [[1, 2]]))).json
        first, second = told["runs"]
        assert (first["origin"]["how"], first["first"], first["last"]) == ("unknown", 1, 1)
        assert (second["origin"]["how"], second["first"], second["last"]) == ("seen", 2, 2)
        assert [it["prompt"] for it in told["turns"]] == ["Longer"]
        for stranger in (other, None):
            words = asked(stranger or project, [[1, 2]])
            words["project"] = words["project"] if stranger else {"roots": [], "remotes": []}
            told = (await served.post("/origins", **words)).json
            assert [it["origin"] for it in told["runs"]] == [
                {"how": "unknown", "claims": [], "reason": file_changes.NO_PROJECT}
            ]


async def test_it_is_for_who_may_see_all_sessions(tmp_path: Path, project: Project) -> None:
    await asyncio.to_thread(keep, tmp_path, project)
    async with site(tmp_path) as served:
        for token in (
            await served.new_token("watch", session_id="one"),
            await served.new_token("prompt"),
        ):
            answer = await served.post("/origins", token, **asked(project, [[1, 2]]))
            assert answer.status == 403
        assert (await served.get("/origins")).status == 405
        assert (await served.get("/origins", method="POST")).status == 415


async def test_who_sends_slowly_keeps_nobody_waiting(tmp_path: Path, project: Project) -> None:
    await asyncio.to_thread(keep, tmp_path, project)
    async with site(tmp_path) as served:
        scope = served.scope("/origins", None, "POST", {"content_type": "application/json"})
        begun, never = asyncio.Event(), asyncio.Event()

        async def receive() -> dict[str, Any]:
            if begun.is_set():
                await never.wait()
            begun.set()
            return {"type": "http.request", "body": b"{", "more_body": True}

        async def send(_: Any) -> None: ...

        slow = asyncio.ensure_future(served.app(scope, receive, send))
        await begun.wait()
        assert (await served.post("/origins", **asked(project, [[1, 2]]))).status == 200
        slow.cancel()
        await asyncio.wait([slow])


async def test_what_is_asked_is_bounded(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(keep, tmp_path, project)
    async with site(tmp_path) as served:
        for lines in (
            *([], [[0, 1]], [[1, 4]], [[2, 1]], [[2, 2], [1, 1]], [[1, 1], [1, 1]]),
            [[1, 10**9], [10**9, 1]],
        ):
            answer = await served.post("/origins", **asked(project, lines))
            assert answer.status == 400, lines
        for path in (b"../a.txt", b"./a.txt", b"/a.txt", b"", b"a\0b"):
            assert (await served.post("/origins", **asked(project, [[1, 2]], path))).status == 400
        for path in (b"a.txt\nb", b"\xff"):
            answer = await served.post("/origins", **asked(project, [[1, 2]], path))
            assert answer.status == 200, answer.body
            [run] = answer.json["runs"]
            assert run["origin"]["how"] == "unknown"
        assert (
            await served.post("/origins", **asked(project, [[1, 2]], b"a" * 4097))
        ).status == 413
        monkeypatch.setattr(bounds, "ASKED_LINES", 3)
        twice = asked(project, [[1, 2]])
        twice["files"] *= 2
        answer = await served.post("/origins", **twice)
        assert (answer.status, b"more than 3 lines" in answer.body) == (413, True)
        many = asked(project, [[1, 1]])
        many["files"] *= 501
        assert (await served.post("/origins", **many)).status == 400
        monkeypatch.setattr(file_changes, "LARGEST", 10)
        assert (await served.post("/origins", **asked(project, [[1, 2]]))).status == 413
