"""`acphold queue`, `ask --later`: queued prompts, in a session that is live and in one that is
not."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from contextlib import aclosing
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from acp_wire.schema import encode
from acphold.conversation.history.prompt_queue import QueueChange
from acphold.conversation.presentation.visible_text import local
from acphold.errors import InvalidParamsError, JournalError
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.starts import Start
from acphold.journal.intentions import change_queue
from acphold.journal.rows import RowChange
from acphold.journal.stores import open_journal
from tests.cli.command_line import ACPHOLD, Finished, run_here
from tests.cli.conversation import remember
from tests.editor import (
    DEADLINE,
    Refused,
    introduced,
    received,
    scripted_agent,
)
from tests.failures.test_journal import file_limit
from tests.owners import lone_command, program
from tests.watched_processes import until

pytestmark = pytest.mark.slow


def acphold(journal: Path, *arguments: str) -> Finished:
    return run_here((*arguments, "--journal", str(journal)), os.environ.copy())


def queue(journal: Path, session: str, *arguments: str) -> list[str]:
    """The lines of the queue after a change."""
    run = acphold(journal, "queue", session, *arguments)
    assert run.code == 0, run.err
    return run.out.splitlines()


async def test_what_is_put_in_from_outside_begins_in_the_process_that_has_the_session(
    journal: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with program(journal) as one:
        session = await one.new()
        turn = one.begin_prompt(session, {"say": "a"}, {"until": str(go)})
        await one.until_text("a")
        step = json.dumps([{"say": "b"}])
        assert queue(journal, session, "add", step)[1:] == [f"  1  {step}"]
        asked = subprocess.run(  # noqa: ASYNC221 (it is over at once)
            [*ACPHOLD, "ask", "-", "--later", "--session", session, "--journal", str(journal)],
            input="[]",
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
        assert asked.stdout.splitlines()[1:] == [f"  1  {step}", "  2  []"]
        assert queue(journal, session, "drop", "2")[1:] == ["  taken back: []", f"  1  {step}"]
        listed = acphold(journal, "list").out
        assert "running, 1 queued" in listed
        go.touch()
        await turn
        await one.until_text("ab")
        assert await one.leave() == 0
    [kept] = acphold(journal, "list", "--json").out.splitlines()
    assert json.loads(kept)["messageCount"] == 4


async def test_a_prompt_for_later_is_for_the_newest_session_of_the_folder(
    journal: Path, tmp_path: Path
) -> None:
    asked = acphold(journal, "ask", "write it down", "--later", "--cwd", str(tmp_path))
    assert asked.code == 2
    assert "no session to continue in this folder" in asked.err
    async with program(journal) as one:
        session = await one.talk({"say": "a"})
    [kept] = acphold(journal, "list", "--json").out.splitlines()
    folder = json.loads(kept)["cwd"]
    asked = acphold(journal, "ask", "write it down", "--at", "02:00", "--cwd", folder)
    assert "02:00: write it down" in asked.out.splitlines()[1]
    refused = acphold(journal, "queue", session, "drop", "9" * 5000)
    assert (refused.code, refused.err.endswith("; 1 queued prompt\n")) == (2, True)
    assert "02:00: write it down" in queue(journal, session)[1]


async def test_in_a_session_that_is_not_live_it_waits_for_who_opens_it(journal: Path) -> None:
    async with program(journal) as one:
        session = await one.talk({"say": "a"})
    step = json.dumps([{"say": "b"}])
    lines = queue(journal, session, "add", step)
    assert lines[0].endswith(": 1 queued prompt")
    go = f"`acphold queue {session[:6]} resume`"
    assert lines[-1] == f"No process has the session open; {go} opens it and starts the prompts."
    assert "1 queued prompt" in acphold(journal, "queue").out
    async with program(journal) as two:
        await two.load(session)
        lines = queue(journal, session)
        assert lines[0].endswith("1 queued prompt, paused: the session was reopened")
        queue(journal, session, "resume")
        await two.until(lambda: two.text().endswith("b"))  # behind a notice
    assert acphold(journal, "queue").out == "No prompts are waiting.\n"


@pytest.mark.parametrize(
    ("agent", "why"), [("goose", "install it with"), ("nobody's", "does not know how to start it")]
)
def test_that_the_agent_of_what_waits_cannot_be_started_is_said_at_once(
    journal: Path, monkeypatch: pytest.MonkeyPatch, agent: str, why: str
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    remember(journal, "aa-1", agent=agent)
    run = acphold(journal, "queue", "aa-1", "add", "later")
    assert "\n  1  later\n" in run.out
    assert run.err.startswith("acphold: the prompts are kept, but their agent cannot be started: ")
    assert why in run.err
    assert acphold(journal, "queue", "aa-1", "drop", "1").err == ""


def test_an_agent_on_a_path_of_its_own_can_be_started(
    journal: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program, settings = tmp_path / "its-agent", tmp_path / "settings.toml"
    program.touch(0o755)
    settings.write_text(f'[agents.its]\ncommand = ["its-agent"]\nenv.PATH = "{tmp_path}"\n')
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(settings))
    remember(journal, "aa-1", agent="its")
    assert acphold(journal, "queue", "aa-1", "add", "later").err == ""
    program.unlink()
    assert "no program 'its-agent'" in acphold(journal, "queue", "aa-1").err


async def test_a_prompt_whose_process_was_killed_is_interrupted_and_not_running(
    journal: Path, tmp_path: Path
) -> None:
    async with program(journal) as one:
        session = await one.new()
        step = json.dumps([{"say": "a"}, {"until": str(tmp_path / "never")}])
        queue(journal, session, "add", step)
        await one.until_text("a")
        queue(journal, session, "add", "later")
        assert f"  running: {step}" in queue(journal, session)
        await one.kill()
    lines = queue(journal, session)
    assert lines[0].endswith("1 queued prompt, paused: the last turn was interrupted")
    assert lines[1] == f"  interrupted: {step}"
    assert "running" not in "".join(lines)
    printed = json.loads(acphold(journal, "queue", session, "--json").out)
    assert "begun" not in printed
    assert printed["ended"][0]["state"] == "interrupted"


async def test_go_opens_a_session_that_no_process_has_in_the_daemon_and_it_begins(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tempfile.mkdtemp(prefix="acphold-")  # a short name: sockets are made in it
    monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
    monkeypatch.setenv("XDG_STATE_HOME", f"{folder}/state")
    log = tmp_path / "log"
    async with program(journal, log=str(log)) as one:
        session = await one.talk({"say": "a"})
        assert await one.leave() == 0
    asks = ["session/request_permission", ASK]
    for step in ([{"say": "b"}, {"ask": asks}], [{"say": "c"}]):
        queue(journal, session, "add", json.dumps(step))
    try:
        begun = await asyncio.to_thread(acphold, journal, "queue", session, "resume")
        assert begun.code == 0, begun.err
        assert "Opened in the daemon" in begun.err
        # Its question waits for a person: nothing goes on over it.
        await until(lambda: "waiting" in acphold(journal, "list").out)
        async with program(journal) as two:
            await two.load(session)
            await two.until(lambda: two.text().endswith("c"))
        assert len(received(log, "session/prompt")) == 3
    finally:
        stopped = await asyncio.to_thread(acphold, journal, "agent", "stop", "--all", "--yes")
        shutil.rmtree(folder, ignore_errors=True)
    assert "ended" in stopped.out.lower()


ASK = {
    "toolCall": {"toolCallId": "t1", "title": "Run it"},
    "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
}


async def test_go_says_what_to_do_if_the_agent_cannot_be_started(
    journal: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "agent"
    gone.write_text(f"#!/bin/sh\nexec {shlex.join(scripted_agent())}\n")
    gone.chmod(0o700)
    async with introduced(lone_command([str(gone)]), journal=journal) as one:
        session = await one.talk({"say": "a"})
        assert await one.leave() == 0
    queue(journal, session, "add", "later")
    gone.unlink()
    run = await asyncio.to_thread(acphold, journal, "queue", session, "resume")
    assert run.code == Exit.AGENT
    assert f"acphold continue {session[:6]}" in run.err
    assert "1 queued prompt" in queue(journal, session)[0]


def test_a_number_that_nothing_has_and_a_word_too_many_are_refused(journal: Path) -> None:
    for arguments in (("drop",), ("resume", "now"), ("add",)):
        run = acphold(journal, "queue", "s", *arguments)
        assert run.code == 2
        assert "acphold queue --help" in run.err


def test_a_deed_without_a_session_is_told_where_the_id_goes(journal: Path) -> None:
    run = acphold(journal, "queue", "resume")
    assert run.code == 2
    assert "the ID comes first: acphold queue ID resume" in run.err


@pytest.mark.parametrize("moment", [1_770_000_000_000_000, -(10**18)])
async def test_a_moment_that_no_calendar_has_stops_no_command_that_meets_it(
    journal: Path, moment: int
) -> None:
    async with program(journal) as one:
        session = await one.talk({"say": "a"})
    wanted = QueueChange("add", "x", Raw(b'[{"type":"text","text":"later"}]'), at=moment)
    async with aclosing(open_journal(journal)) as store:
        with pytest.raises(InvalidParamsError, match="ms since the epoch"):
            await change_queue(store, session, wanted)
        # As an older release has written it.
        lease = await store.acquire(session, seen=await store.owner(session))
        held = QueueChange("hold", why="limited", until=moment)
        await store.append(
            lease,
            [("queue", [encode(wanted), encode(held)])],
            RowChange(queued=1, held="limited", held_until=moment),
        )
        await store.release(lease)
    year = "9999-12-3" if moment > 0 else "19"
    assert f"paused: a limit was reached, until {year}" in acphold(journal, "queue").out
    assert year in queue(journal, session)[0]
    assert year in acphold(journal, "list").out
    for command in (
        ("queue", "--json"),
        ("queue", session, "--json"),
        ("list", "--json"),
        ("inbox",),
        ("inbox", "--json"),
        ("show", session),
        ("show", session, "--json"),
        ("search", "a"),
        *(("export", session, "--format", form) for form in ("markdown", "html", "jsonl")),
    ):
        run = acphold(journal, *command)
        assert (run.code, run.err.count("Traceback")) == (0, 0), (command, run.err)
    async with program(journal) as two:
        await two.load(session)
        assert await two.prompt(session, {"say": "b"})
    assert "later" in "".join(queue(journal, session))


HIT = "You've hit your 5-hour limit · resets 3pm (Mars/Olympus)"
CLAUDE = {"name": "@agentclientprotocol/claude-agent-acp", "version": "1"}


async def test_a_turn_at_the_vendors_limit_is_called_so_by_every_command(
    journal: Path,
) -> None:
    resets_at = int(time.time()) + 3600
    window = {"_claude/rateLimit": {"status": "rejected", "resetsAt": resets_at}}
    told = {"sessionUpdate": "usage_update", "used": 1, "size": 2, "_meta": window}
    error = {"code": -32603, "message": f"Internal error: {HIT}"}
    async with program(journal, "--name", "mine", info=CLAUDE) as one:
        session = await one.new()
        with pytest.raises(Refused):
            await one.prompt(session, {"say": "a"}, {"update": told}, {"error": error})
    [row] = acphold(journal, "list", "--json").out.splitlines()
    assert json.loads(row)["outcome"] == "limited"
    words = f"stopped at a limit, which resets at {local(resets_at * 1000)}: {HIT}"
    assert words in " ".join(acphold(journal, "show", session).out.split())
    for form in ("markdown", "html"):
        exported = unescape(acphold(journal, "export", session, "--format", form).out)
        assert words in " ".join(exported.split())
    lines = acphold(journal, "export", session, "--format", "jsonl").out.splitlines()
    assert json.loads(lines[-1])["update"] == {
        "error": error,
        "_meta": {"acphold/limit": {"words": HIT, "resetsAt": resets_at * 1000}},
    }


async def test_prompts_that_are_held_stand_in_the_inbox_until_they_go_on(
    journal: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    error = {"code": -32603, "message": "no credit"}
    async with program(journal) as one:
        session = await one.new()
        turn = one.begin_prompt(session, {"say": "a"}, {"until": str(go)}, {"error": error})
        await one.until_text("a")
        queue(journal, session, "add", "[]")
        with subprocess.Popen(  # noqa: ASYNC220 (its lines are read in a thread)
            [*ACPHOLD, "inbox", "--follow", "--json", "--journal", str(journal)],
            stdout=subprocess.PIPE,
            text=True,
        ) as following:
            told = partial(line_of, following)
            assert await told() == {"questions": [], "held": []}
            go.touch()
            with pytest.raises(Refused):
                await turn
            found = (await told())["held"]
            assert (found["sessionId"], found["queued"], found["held"]) == (session, 1, "failed")
            [printed] = acphold(journal, "inbox", "--json").out.splitlines()
            assert json.loads(printed) == {"held": found}
            words = " ".join(acphold(journal, "inbox").out.split())
            assert "1 queued prompt, paused: the last turn failed" in words
            assert f"acphold queue {session[:6]} resume" in words
            assert acphold(journal, "queue", session[:6], "resume").code == 0
            assert await told() == {"goesOn": session}
            following.terminate()
        queue(journal, session, "pause")
        queue(journal, session, "add", "[]")
        assert "Nothing is waiting" in acphold(journal, "inbox").err, "they know that"


async def line_of(following: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line that it prints."""
    assert following.stdout is not None
    async with asyncio.timeout(DEADLINE):
        found: dict[str, Any] = json.loads(await asyncio.to_thread(following.stdout.readline))
        return found


async def test_a_full_disk_at_the_owner_is_told_by_the_code_of_the_journal(journal: Path) -> None:
    async with introduced(
        lone_command(scripted_agent()), journal=journal, before=file_limit(400_000)
    ) as client:
        session = await client.talk({"say": "kept"})
        with pytest.raises(Refused, match="disk"):
            await client.prompt(session, {"say": "begin"}, {"flood": [1000, 1000]})
        words = ("queue", session, "add", "x" * 100_000)
        done = await asyncio.to_thread(acphold, journal, *words)
        assert (done.code, "cannot be used" in done.err) == (Exit.JOURNAL, True), done.err


async def test_a_journal_that_fails_as_the_daemon_opens_it_has_its_code_too(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with program(journal) as one:
        session = await one.talk({"say": "a"})
        assert await one.leave() == 0
    queue(journal, session, "add", "[]")

    async def failed(*_: Any, **__: Any) -> bytes:
        raise JournalError("it is damaged")

    monkeypatch.setattr("acphold.faces.cli.queue.ask_over", failed)
    done = await asyncio.to_thread(acphold, journal, "queue", session, "resume")
    assert (done.code, "it is damaged" in done.err) == (Exit.JOURNAL, True), done.err


async def test_a_process_that_ends_at_once_instead_of_opening_it_is_named_with_its_last_words(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with program(journal) as one:
        session = await one.talk({"say": "a"})
        assert await one.leave() == 0
    queue(journal, session, "add", "[]")
    words = ("sh", "-c", "echo its folder is gone >&2; exit 3")
    monkeypatch.setattr(Start, "command_line", lambda *_: words)
    done = await asyncio.to_thread(acphold, journal, "queue", session, "resume")
    assert (done.code, "its folder is gone" in done.err) == (Exit.AGENT, True), done.err
