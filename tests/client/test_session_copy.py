"""A client has a session copied, with its files, by a real `acphold wrap`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acphold import CapabilityError, RemoteError
from tests.client.far_agent import FarAgent, in_session
from tests.client.test_remote_queue import wrapped
from tests.snapshots.conftest import Project


async def test_a_copy_is_in_a_folder_with_the_files_of_then_and_can_be_opened(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[defaults]\nsnapshots = true\n")
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    (tmp_path / "work").mkdir()
    project = Project(tmp_path / "work")
    project.git("init", "-q")
    project.write("a.txt", "then")
    async with wrapped(journal) as agent:
        session = await agent.new_session(cwd=project.top)
        await session.prompt(json.dumps([{"say": "Done."}]))
        await session.prompt(json.dumps([{"say": "Done."}]))
        project.write("a.txt", "now")
        made = await session.fork(before=True, files=True)
        assert made.files is not None
        assert "no git repository" not in made.files.why_plain
        assert Path(made.cwd, "a.txt").read_text() == "then"  # noqa: ASYNC240 - a moment
        copy = await agent.load_session(made.session_id, cwd=made.cwd)
        assert (made.turns, copy.cwd) == (1, made.cwd)
        with pytest.raises(RemoteError, match="not empty"):
            await session.fork(before=True, files=made.cwd)


async def test_an_agent_without_acphold_in_front_of_it_copies_nothing() -> None:
    async with in_session(FarAgent()) as session:
        with pytest.raises(CapabilityError):
            await session.fork()
