"""A client has a session copied, with its files, by a real `acphold wrap`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import acphold
from acphold import CapabilityError, RemoteError
from acphold.journal.stores import open_journal
from tests.client.far_agent import FarAgent, in_session
from tests.editor import DEADLINE, scripted_agent, wrap_command
from tests.snapshots.conftest import Project


async def until_kept(journal: Path, session_id: str, ends: int) -> None:
    """Wait until the files were kept at so many ends of turns."""
    opened = open_journal(journal)
    try:
        async with asyncio.timeout(DEADLINE):
            while len(await opened.snapshots.of(session_id)) < ends:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
    finally:
        await opened.aclose()


async def test_a_copy_is_in_a_folder_with_the_files_of_then_and_can_be_opened(
    journal: Path, tmp_path: Path
) -> None:
    (tmp_path / "work").mkdir()
    project = Project(tmp_path / "work")
    project.git("init", "-q")
    project.write("a.txt", "then")
    command = wrap_command(scripted_agent(), f"--journal={journal}")
    async with asyncio.timeout(DEADLINE), acphold.connect(*command) as agent:
        session = await agent.new_session(cwd=project.top)
        await session.prompt(json.dumps([{"say": "Done."}]))
        await session.prompt(json.dumps([{"say": "Done."}]))
        await until_kept(journal, session.id, 4)
        project.write("a.txt", "now")
        made = await session.fork(before=True, files=True)
        assert made.files is not None
        assert "not a git repository" not in made.files.why_plain
        assert Path(made.cwd, "a.txt").read_text() == "then"  # noqa: ASYNC240 - a moment
        copy = await agent.load_session(made.session_id, cwd=made.cwd)
        assert (made.turns, copy.cwd) == (1, made.cwd)
        with pytest.raises(RemoteError, match="not empty"):
            await session.fork(before=True, files=made.cwd)


async def test_an_agent_without_acphold_in_front_of_it_copies_nothing() -> None:
    async with in_session(FarAgent()) as session:
        with pytest.raises(CapabilityError):
            await session.fork()
