"""A change that is asked for is compared with the file as it is, for who may see the file."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

import acphold
from tests.editor import scripted_agent
from tests.web.conftest import Served, serving

README = "# webapp\nRun `make`.\n"
OPTIONS = [{"optionId": "go", "name": "Go on", "kind": "allow_once"}]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, agent=tuple(scripted_agent())) as found:
        yield found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project, with a file, a secret, and things that are no text; and a file beside it."""
    project = tmp_path / "webapp"
    (project / ".ssh").mkdir(parents=True)
    (project / "README.md").write_text(README)
    (project / ".ssh" / "id_rsa").write_text("the key\n")
    (project / ".env").write_text("TOKEN=the key\n")
    (project / "binary").write_bytes(b"the\0key")
    (project / "latin").write_bytes("der Schlüssel".encode("latin-1"))
    (tmp_path / "outside.txt").write_text("the key\n")
    (project / "link.txt").symlink_to("README.md")
    (project / "out.txt").symlink_to(tmp_path / "outside.txt")
    (project / "folder").symlink_to(tmp_path)
    os.mkfifo(project / "pipe")
    with (project / "huge.txt").open("wb") as huge:
        huge.truncate(2 << 30)
    return project


def diff(path: str, new: str, old: str | None = None) -> dict[str, Any]:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


@asynccontextmanager
async def asked(served: Served, home: Path, *diffs: dict[str, Any]) -> AsyncIterator[str]:
    """A session in which the agent asks for these changes; the address of its answer."""

    async def leave_it(_: acphold.PermissionQuestion) -> None:
        await asyncio.Event().wait()

    token = served.token()
    async with served.session(token, cwd=home, on_permission=leave_it) as session:
        call = {"toolCallId": "t1", "title": "Write", "kind": "edit", "content": [*diffs]}
        step = {"ask": ["session/request_permission", {"toolCall": call, "options": OPTIONS}]}
        turn = session.prompt(json.dumps([step]))
        async with httpx2.AsyncClient(timeout=30) as web:
            for _ in range(200):
                told = await web.get(f"{served.url}/inbox", headers=by(token))
                mine = [it for it in told.json()["questions"] if it["sessionId"] == session.id]
                if mine:
                    break
                await asyncio.sleep(0.05)
        yield f"{served.url}/sessions/{session.id}/present?question={mine[0]['id']}"
        session.cancel()
        await turn


def by(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def present(address: str, token: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=30) as web:
        return await web.get(address, headers=by(token))


async def test_a_change_is_compared_with_the_file_as_it_is(served: Served, home: Path) -> None:
    changes = (
        diff(str(home / "README.md"), "# webapp\nRun `uv run webapp`.\n"),
        diff("README.md", "Run `uv`.", "Run `make`."),
        diff("README.md", "x", "a line that is not there"),
        diff("new.txt", "one\n"),
    )
    async with asked(served, home, *changes) as address:
        told = await present(address, served.token())
    is_present, readme = "", str(home / "README.md")
    new = [["+", "one", 0, 1]]
    assert [(it["name"], it.get("text"), it["lines"]) for it in changes_in(told)] == [
        (readme, is_present, changed("Run `make`.", "Run `uv run webapp`.")),
        ("README.md", is_present, changed("Run `make`.", "Run `uv`.")),
        (
            "README.md",
            "The file has other text than the agent says",
            [["-", "a line that is not there", 1, 0], ["+", "x", 0, 1]],
        ),
        ("new.txt", "a new file", new),
    ]


def changes_in(told: httpx2.Response) -> list[dict[str, Any]]:
    """The changes of the question, as every face draws them."""
    return [it for it in told.json()["shows"]["blocks"] if it["kind"] == "diff"]


def changed(old: str, new: str) -> list[list[object]]:
    """The second line of the README."""
    return [[" ", "# webapp", 1, 1], ["-", old, 2, 0], ["+", new, 0, 2]]


async def test_nothing_is_shown_of_a_secret_a_link_another_folder_or_what_is_no_text(
    served: Served, home: Path
) -> None:
    paths = (
        *(f"{Path.home()}/.ssh/id_rsa", ".ssh/id_rsa", ".env", "../outside.txt"),
        *("folder/outside.txt", "link.txt", "out.txt", "pipe", "huge.txt", "binary", "latin"),
        *("/dev/zero", "/etc/passwd", "README.md/../.env", "a/../../outside.txt", ".", ""),
    )
    changes = [diff(path, "new\n") for path in (*paths, "README.md")]
    async with asked(served, home, *changes) as address:
        told = await present(address, served.token())
    texts = [it["text"] for it in changes_in(told)]
    assert texts == ["as the agent says"] * len(paths) + [""]
    assert "the key" not in told.text


async def test_nothing_is_shown_to_who_may_not_see_files(served: Served, home: Path) -> None:
    async with asked(served, home, diff("README.md", "new\n")) as address:
        scopes = served.token("--scope", "watch", "--scope", "prompt", "--scope", "answer")
        told = await present(address, scopes)
        assert (told.status_code, "webapp" in told.text) == (403, False)
        session_id = address.split("/")[4]
        shared = served.token("--session", session_id, "--scope", "watch", "--scope", "answer")
        told = await present(address, shared)
        assert "webapp" not in told.text
        told = await present(f"{address}0", served.token())
        assert told.status_code == 404
