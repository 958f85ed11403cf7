"""Imported sessions load in other clients, even after their files are deleted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.imports import claude_home, codex_home, soak, test_gemini, test_opencode
from tests.interop.client import introduction, opening, prompt
from tests.interop.conversation import text, timeline
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import (
    CLAUDE,
    CODEX_OF_OPENAI,
    GEMINI,
    GOOSE,
    OPENCODE,
    RealAgent,
)
from tests.interop.test_acpx import Acpx, methods, updates
from tests.interop.test_official_sdks import python_agent, python_client, ts_client
from tests.interop.wire import Json

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

ACPHOLD = [sys.executable, "-m", "acphold"]


@pytest.fixture
def rows(place: Place, monkeypatch: pytest.MonkeyPatch) -> list[Json]:
    """The sessions of the list, imported from a home folder that is gone."""
    for module in (claude_home, codex_home, test_gemini, test_opencode):
        monkeypatch.setattr(module, "CWD", str(place.work))
    (there := place.home / "there").mkdir()
    soak.fill(there)
    acphold(place, "import", "--from", str(there))
    shutil.rmtree(there)
    return [json.loads(line) for line in acphold(place, "list", "--json").splitlines()]


def acphold(place: Place, *words: str) -> str:
    """Run a command, which must succeed and complain of nothing, and return its output."""
    env = place.environment(HOME=str(place.home))
    done = subprocess.run([*ACPHOLD, *words], env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def in_front(place: Place, row: Json) -> list[str]:
    """The command of an agent under the name of the one that held the session."""
    return place.wrapped(python_agent(), "--name", row["agent"])


def prompts(turns: int) -> str:
    return "".join(f"prompt {turn}" for turn in range(turns))


async def test_every_imported_session_is_listed_and_loads_in_the_official_clients(
    place: Place, rows: list[Json]
) -> None:
    assert len({row["agent"] for row in rows}) == 4
    for number, row in enumerate(rows):
        client_of = (python_client, ts_client)[number % 2]
        async with place.client(client_of(in_front(place, row))) as client:
            await client.call("initialize", introduction())
            listed = (await client.call("session/list", {"cwd": str(place.work)}))["sessions"]
            assert row["sessionId"] in [found["sessionId"] for found in listed]
            await client.call("session/load", opening(place.work, row["sessionId"]))
            seen = client.updates(row["sessionId"])
        last = text(seen, "user_message_chunk").rpartition(" ")[2]
        assert text(seen, "user_message_chunk") == prompts(int(last) + 1)
        assert f"answer {last}" in text(seen)
    assert place.wrong_lines() == []


async def test_acpx_goes_on_with_an_imported_session(place: Place, rows: list[Json]) -> None:
    for number, row in enumerate({row["agent"]: row for row in rows}.values()):
        acpx = Acpx(place, in_front(place, row), place.environment(HOME=str(place.home)))
        resume = ("--resume-session", row["sessionId"])
        await acpx.call("sessions", "new", "--name", f"old{number}", *resume)
        turn = await acpx.call("prompt", "-s", f"old{number}", "and now?")
        # It begins anew, silently, where it could not go on.
        assert {"session/load", "session/resume"} & set(methods(turn))
        said = text(updates(turn))
        assert "passed on with your prompt" in said
        assert "You said: and now?" in said
    await place.family.gone()
    assert place.wrong_lines() == []


def shown(updates: list[Json]) -> list[object]:
    """The texts, and the calls with their ids, titles and statuses."""
    return [
        [item.get(name) for name in ("toolCallId", "title", "status")]
        if "toolCallId" in item
        else "".join(block.get("text", "") for block in item["content"]).strip()
        for item in timeline(updates)
    ]


@pytest.mark.parametrize(
    "agent",
    [CODEX_OF_OPENAI, CLAUDE, OPENCODE, GEMINI, GOOSE],
    ids=lambda agent: agent.name,
)
async def test_the_files_that_an_agent_leaves_are_imported_as_it_was_shown(
    agent: RealAgent, place: Place, model: ModelEndpoint
) -> None:
    env = agent.prepare(place.home, model.url)
    async with place.client(agent.command(), **env) as client:
        session_id = await client.new_session(place.work)
        for said in ("Hello", "USE_TOOL:shell CMD=pwd", "USE_TOOL:shell CMD=false"):
            await client.call("session/prompt", prompt(session_id, said))
        await place.family.kill()
    acphold(place, "import")
    found: list[Json] = []
    for line in acphold(place, "show", session_id, "--json").splitlines():
        told = json.loads(line).get("update", {})
        found += [
            {"sessionUpdate": "user_message_chunk", "content": block}
            for block in told.get("prompt", ())
        ]
        if "sessionUpdate" in told:
            found.append(told)
    assert shown(found) == shown(client.updates(session_id))
