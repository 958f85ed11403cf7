"""The demo's agent in its scratch repository: it really edits and runs, after a yes, only there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acphold.errors import SettingsError
from acphold.faces.cli.demo_folder import FILE, HELLO, MARKER, is_scratch, scratch_repository
from acphold.faces.cli.demo_work import CHANGES, next_text
from acphold.faces.cli.settings import agent_command, agent_names, agents_on_path, default_agent
from tests.cli.command_line import CommandLine
from tests.cli.test_demo_agent import COMMAND
from tests.editor import Editor, introduced

pytestmark = pytest.mark.slow

FRIENDLIER = '    return f"Hello, dear {name}!"'


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the scratch repository, which is not made yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "acphold" / "demo" / "greeting"


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """A folder in which the agent works."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / MARKER).touch()
    (tmp_path / "project" / FILE).write_text(HELLO)
    return tmp_path / "project"


@pytest.fixture
async def client(journal: Path) -> AsyncIterator[Editor]:
    """A client directly at the agent, with neither files nor terminals; it permits everything."""
    async with introduced(COMMAND, journal=journal) as made:
        yield made


# -- from the command line ------------------------------------------------------------------


def test_a_prompt_edits_and_runs_for_real_and_diff_knows_it(
    acphold: CommandLine, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = acphold.run("ask", "Make it friendlier", "demo", "--permission", "allow")
    assert done.code == 0, done.err
    assert "I am a script: whatever you write, my next change is" in done.out
    assert "Hello, dear world!\n" in done.out
    assert FRIENDLIER in (scratch / FILE).read_text()
    assert scratch.parent.stat().st_mode & 0o077 == 0
    monkeypatch.chdir(scratch)
    assert f"+{FRIENDLIER}" in acphold.run("diff", "-").out


def test_a_rejected_edit_leaves_the_file_as_it_was(acphold: CommandLine, scratch: Path) -> None:
    done = acphold.run("ask", "Make it friendlier", "demo", "--permission", "reject")
    assert done.code == 0
    assert done.out.endswith("You said no, so nothing was written.\n")
    assert (scratch / FILE).read_text() == HELLO


def test_elsewhere_nothing_is_written(acphold: CommandLine, scratch: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(HELLO)
    words = ("ask", "Make it friendlier", "demo", "--permission", "allow", "--cwd", str(tmp_path))
    assert acphold.run(*words).out.endswith("Done.\n")
    assert (tmp_path / FILE).read_text() == HELLO
    assert not scratch.exists()


def test_without_git_there_is_a_plain_folder(acphold: CommandLine, scratch: Path) -> None:
    words = ("ask", "Make it friendlier", "demo", "--permission", "allow")
    done = acphold.run_as_process(*words, PATH="/nonexistent")
    assert "git is not installed" in done.err
    assert FRIENDLIER in (scratch / FILE).read_text()


# -- the folder and the name ----------------------------------------------------------------


def test_the_folder_is_made_once_and_never_over_something_else(scratch: Path) -> None:
    assert scratch_repository() == str(scratch)
    (scratch / FILE).write_text("mine")
    assert scratch_repository() == str(scratch)
    assert (scratch / FILE).read_text() == "mine"
    assert (scratch / ".git" / "refs" / "heads").is_dir()
    (scratch / MARKER).unlink()
    with pytest.raises(SettingsError, match="move away"):
        scratch_repository()
    assert os.listdir(scratch.parent) == ["greeting"]


def test_a_marker_that_is_a_link_or_a_folder_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / MARKER).symlink_to("real")
    assert not is_scratch(str(tmp_path))
    (tmp_path / MARKER).unlink()
    (tmp_path / MARKER).mkdir()
    assert not is_scratch(str(tmp_path))
    (tmp_path / MARKER).rmdir()
    (tmp_path / MARKER).touch()
    assert is_scratch(str(tmp_path))


def test_the_name_is_known_and_never_suggested(
    acphold: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.toml"
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert agent_command("demo").command[-2:] == ("agent", "demo")
    assert "demo" in agent_names()
    assert agents_on_path() == []
    with pytest.raises(SettingsError):
        default_agent()
    assert acphold.run("doctor", "demo").code == 0
    settings.write_text('[agents.demo]\ncommand = ["mine"]\n')
    assert agent_command("demo").command == ("mine",)


# -- a turn ---------------------------------------------------------------------------------


def test_each_change_is_another_one() -> None:
    text, seen = HELLO, {HELLO}
    for _ in range(len(CHANGES) + 3):
        new, _ = next_text(text)
        compile(new, FILE, "exec")
        text = new
        assert text not in seen
        seen.add(text)
    assert next_text(None)[0] == HELLO


async def test_the_question_has_the_diff_and_nothing_is_written_before_the_answer(
    client: Editor, marked: Path
) -> None:
    questions: list[dict[str, Any]] = []

    def answer(params: dict[str, Any]) -> Any:
        questions.append(params["toolCall"])
        if len(questions) == 1:
            assert (marked / FILE).read_text() == HELLO
        return {"outcome": {"outcome": "selected", "optionId": "yes"}}

    client.answers["session/request_permission"] = answer
    await client.talk("hello", cwd=marked)
    edit, run = questions
    assert edit["content"][0]["oldText"] == HELLO
    assert edit["content"][0]["newText"] == (marked / FILE).read_text() != HELLO
    assert run["rawInput"] == {"command": "python3 hello.py"}
    assert "Hello, dear world!" in client.text()


async def test_a_no_to_the_second_question_leaves_the_edit(client: Editor, marked: Path) -> None:
    client.answers["session/request_permission"] = lambda params: {
        "outcome": {
            "outcome": "selected",
            "optionId": "yes" if params["toolCall"]["kind"] == "edit" else "no",
        }
    }
    await client.talk("hello", cwd=marked)
    assert FRIENDLIER in (marked / FILE).read_text()
    assert "you said no to running it" in client.text()
    assert "Hello, dear world!" not in client.text()


async def test_a_second_turn_makes_another_change(client: Editor, marked: Path) -> None:
    session = await client.talk("hello", cwd=marked)
    first = (marked / FILE).read_text()
    await client.prompt(session, "hello")
    assert (marked / FILE).read_text() != first
    assert "Hello, dear moon!" in client.text()
    assert client.text().count("acphold diff -") == 1
    assert client.text().count("acphold rules add") == 1


async def test_what_the_person_writes_meanwhile_stays(client: Editor, marked: Path) -> None:
    def answer(params: dict[str, Any]) -> Any:
        (marked / FILE).write_text("print('mine')\n")
        return {"outcome": {"outcome": "selected", "optionId": "yes"}}

    client.answers["session/request_permission"] = answer
    await client.talk("hello", cwd=marked)
    assert (marked / FILE).read_text() == "print('mine')\n"
    assert "has changed since I asked" in client.text()


async def test_a_file_that_is_a_link_is_left_alone(client: Editor, marked: Path) -> None:
    (marked / FILE).rename(marked.parent / "target")
    (marked / FILE).symlink_to("../target")
    await client.talk("hello", cwd=marked)
    assert (marked.parent / "target").read_text() == HELLO
    assert "not a regular file" in client.text()


@pytest.mark.parametrize("question", [0, 1, 2])
async def test_it_can_be_cancelled_at_every_wait(
    client: Editor, marked: Path, question: int
) -> None:
    """While it thinks, at the first question, and at the second."""
    asked, cancelled = asyncio.Event(), asyncio.Event()
    count = 0

    async def answer(params: dict[str, Any]) -> Any:
        nonlocal count
        count += 1
        if count == question:
            asked.set()
            await cancelled.wait()
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": "yes"}}

    client.answers["session/request_permission"] = answer
    session = await client.new(marked)
    turn = client.begin_prompt(session, "hello")
    if question:
        await asyncio.wait_for(asked.wait(), 30)
    client.tell("session/cancel", {"sessionId": session})
    cancelled.set()
    assert await asyncio.wait_for(turn, 30) == {"stopReason": "cancelled"}
    assert ((marked / FILE).read_text() == HELLO) == (question < 2)
    assert "Next" not in client.text()


async def test_a_program_that_runs_on_is_ended_when_the_turn_is_cancelled(
    client: Editor, marked: Path
) -> None:
    (marked / FILE).write_text(f"import time\ntime.sleep(600)\n{HELLO}")
    session = await client.new(marked)
    turn = client.begin_prompt(session, "hello")
    begun = {"sessionUpdate": "tool_call_update", "status": "in_progress"}
    await client.until(lambda: sum(begun.items() <= it.items() for it in client.updates()) == 2)
    client.tell("session/cancel", {"sessionId": session})
    assert await asyncio.wait_for(turn, 15) == {"stopReason": "cancelled"}


async def test_files_and_commands_go_through_a_client_that_offers_them(
    journal: Path, marked: Path
) -> None:
    async with introduced(
        COMMAND,
        journal=journal,
        client={"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True},
    ) as client:
        started: list[dict[str, Any]] = []
        text = HELLO

        def start(params: dict[str, Any]) -> Any:
            started.append(params)
            return {"terminalId": "t"}

        def write(params: dict[str, Any]) -> Any:
            nonlocal text
            text = params["content"]
            return None

        client.answers["fs/read_text_file"] = lambda _: {"content": text}
        client.answers["fs/write_text_file"] = write
        client.answers["terminal/create"] = start
        client.answers["terminal/wait_for_exit"] = lambda _: {"exitCode": 0}
        client.answers["terminal/output"] = lambda _: {"output": "from there", "truncated": False}
        client.answers["terminal/release"] = lambda _: {}
        await client.talk("hello", cwd=marked)
    assert FRIENDLIER in text
    assert (marked / FILE).read_text() == HELLO
    assert "python3 hello.py" in started[0]["args"]
    assert "from there" in client.text()
