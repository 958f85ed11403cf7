"""Files kept with the conversations of real agents that change them by shell commands."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from acphold.journal.stores import open_journal
from tests.editor import DEADLINE
from tests.interop.client import prompt
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import WITH_SHELL, RealAgent
from tests.screen_terminal import terminal
from tests.snapshots.conftest import Project

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.mark.parametrize("agent", WITH_SHELL, ids=lambda it: it.name)
async def test_a_fork_at_an_earlier_prompt_has_the_files_as_a_command_had_left_them(
    agent: RealAgent, place: Place, model: ModelEndpoint, tmp_path: Path
) -> None:
    project = Project(place.work)
    project.top = place.work
    project.git("init", "-q")
    project.write("a.txt", "first\n")
    project.write("edit", "#!/bin/sh\necho again >> a.txt\necho made > made.txt\n").chmod(0o755)
    project.commit()
    env = agent.prepare(place.home, model.url)
    async with place.client(place.wrapped(agent.command()), **env) as client:
        session = await client.new_session(place.work)
        for times in (1, 2):
            await client.call("session/prompt", prompt(session, "USE_TOOL:shell CMD=./edit"))
            assert project.top.joinpath("a.txt").read_text() == "first\n" + "again\n" * times
            await until_kept(place.environment()["ACPHOLD_JOURNAL"], session, times)
        await client.leave()
    shown = await place.acphold(env, "show", session, "--json")
    entries = [json.loads(line) for line in shown.splitlines()]
    prompts = [it["seq"] for it in entries if it["kind"] == "prompt"]
    for name, words, times in (
        ("begun", [f"{session}@{prompts[1]}", "--before"], 1),
        ("first", [f"{session}@{prompts[0]}"], 1),
        ("last", [session], 2),
    ):
        await place.acphold(env, "continue", *words, "--files", str(tmp_path / name))
        assert (tmp_path / name / "a.txt").read_text() == "first\n" + "again\n" * times
        assert (tmp_path / name / "made.txt").read_text() == "made\n"
    assert place.wrong_lines() == []


@pytest.mark.parametrize("agent", WITH_SHELL, ids=lambda it: it.name)
async def test_work_in_a_tree_of_its_own_comes_back_by_a_merge_and_the_tree_goes(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    project = Project(place.work)
    project.top = place.work
    project.git("init", "-q")
    project.write("a.txt", "first\n")
    project.write("edit", "#!/bin/sh\necho again >> a.txt\n").chmod(0o755)
    project.commit()
    target = project.git("branch", "--show-current").strip()
    env = agent.prepare(place.home, model.url)
    (place.home / ".gitconfig").write_text("[user]\nname = Ada\nemail = ada@example.com\n")
    begin = ("chat", "--worktree", "--permission", "allow", "--", *agent.command())
    await place.acphold(env, *begin, typed="USE_TOOL:shell CMD=./edit\n")
    assert (project.top / "a.txt").read_text() == "first\n"
    rows = (await place.acphold(env, "list", "--json")).splitlines()
    # An import may have what codex of OpenAI keeps of it, under its other name.
    [listed] = [it for it in map(json.loads, rows) if not it.get("unstarted")]
    assert listed["cwd"].endswith("-work")
    shown = await place.acphold(env, "session", "merge", listed["sessionId"], "--yes")
    assert "a.txt +1 -0" in shown
    assert "Merged into" in shown
    assert (project.top / "a.txt").read_text() == "first\nagain\n"
    title = project.git("log", "-1", "--format=%s").strip()
    assert title == (listed["title"] or "").strip()
    delete = [sys.executable, "-m", "acphold", "session", "delete", listed["sessionId"]]
    with terminal(delete, place.environment(**env), columns=500) as one:
        one.until("Delete 1 session?")
        one.type("y\r", f"Also delete its work tree {listed['cwd']} and the branch acphold/work?")
        assert one.ended("y\r") == 0
    assert not place.work.with_name("work-work").exists()
    assert project.git("branch", "--format=%(refname:short)").split() == [target]


async def until_kept(location: str, session: str, turns: int) -> None:
    """Wait until the files were kept at the ends of so many turns: a prompt does not wait."""
    journal = open_journal(location)

    async def ends() -> int:
        rows = await journal.snapshots.of(session)
        return len({row.turn for row in rows if row.edge == "end" and row.is_kept})

    try:
        async with asyncio.timeout(DEADLINE):
            while await ends() < turns:  # noqa: ASYNC110 - another process writes
                await asyncio.sleep(0.05)
    finally:
        await journal.aclose()
