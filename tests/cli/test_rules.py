"""`acphold rules`: its output on standing answers, over a journal with real questions."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import subprocess
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from acphold.faces.cli.command_line import UsageError
from acphold.faces.cli.main import parser_of
from acphold.journal.stores import open_journal
from acphold.live.agents.interface import Updates
from acphold.safety.standing.decision import RuleChange, StandingRule
from tests.cli.command_line import ACPHOLD, run_here
from tests.editor import DEADLINE
from tests.hub.shared import PERMISSION, shared


def rules(
    journal: Path,
    *words: str,
    folder: Path,
    code: int = 0,
    terminal: int | None = None,
    command: str = "rules",
) -> str:
    """Run the command in this process, or, with a `terminal`, in one of its own."""
    argv = (command, *words, "--journal", str(journal))
    if terminal is None:
        with chdir(folder):
            done = run_here(argv, os.environ.copy())
        assert done.code == code, done.err
        return done.all
    run = subprocess.run(
        [*ACPHOLD, *argv],
        cwd=folder,
        stdin=terminal,
        capture_output=True,
        text=True,
        timeout=DEADLINE * 2,
        check=False,
    )
    assert run.returncode == code, run.stderr
    return run.stdout + run.stderr


async def kept(journal: Path) -> list[StandingRule]:
    opened = open_journal(journal)
    try:
        return await opened.access.rules("")
    finally:
        await opened.aclose()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (made := tmp_path.resolve() / "project").mkdir()
    return made


async def asked(
    journal: Path,
    folder: Path,
    *asked: tuple[str, str],
    first: Callable[[], str] = str,
    mode: str = "",
) -> str:
    """A session in which a person has decided these commands, once `first` is done, in a mode."""
    async with shared(journal) as house, asyncio.timeout(DEADLINE * 2):
        house.agent.key, house.agent.known_as = "@agentclientprotocol/claude-agent-acp", "claude"
        client = await house.client(name="zed")
        decided = iter(asked)

        def answer(_: Any) -> Any:
            return {"outcome": {"outcome": "selected", "optionId": next(decided)[1]}}

        client.answers[PERMISSION] = answer
        session = await house.at_work(client, folder)
        await asyncio.to_thread(first)
        if mode:
            update = {"sessionUpdate": "current_mode_update", "currentModeId": mode}
            await house.agent.listener.hear(
                Updates(session, "update", [json.dumps(update).encode()])
            )
        for number, (command, _) in enumerate(asked):
            await house.agent.ask_client(
                PERMISSION,
                sessionId=session,
                toolCall={
                    "toolCallId": f"c{number}",
                    "title": command,
                    "name": "Bash",
                    "rawInput": {"command": command},
                },
                options=[
                    {"optionId": kind, "name": kind, "kind": kind}
                    for kind in ("allow_once", "reject_once")
                ],
            )
        await house.agent.end(session)
        return session


async def test_a_rule_is_added_listed_and_revoked(tmp_path: Path, folder: Path) -> None:
    journal = tmp_path / "journal.db"
    await asked(journal, folder)
    assert rules(journal, folder=folder).startswith("No rules.")
    told = rules(journal, "add", "run pytest ...", folder=folder)
    sentence = "1 Always allow every agent to run `pytest` with any arguments in project"
    assert told.startswith(f"{sentence} (until 20")
    assert f") · {folder} · used 0 times" in told
    assert "whoever can edit files here can run anything with it" in told
    rules(journal, "add", "run", "make", "check", "--for-good", "--agent", "codex", folder=folder)
    first, second = rules(journal, folder=folder).splitlines()
    assert first.endswith(" · used 0 times · new, made with a program without a terminal")
    assert first.startswith(sentence)
    made = "2 Always allow codex to run `make check` in project (until revoked)"
    assert second.startswith(f"{made} · {folder} · used 0 times")
    gone = "revoked: Always allow every agent to run `pytest` with any arguments in project\n"
    assert rules(journal, "rm", "1", folder=folder) == gone
    assert "`pytest`" not in rules(journal, folder=folder)
    assert "there is no rule 1" in rules(journal, "rm", "1", folder=folder, code=2)
    assert "by their numbers" in rules(journal, "rm", "9" * 5000, folder=folder, code=2)
    [told] = rules(journal, "--json", folder=folder).splitlines()
    listed = json.loads(told)
    assert (listed["number"], listed["text"]) == (2, "run make check")
    assert (listed["agent"], listed["expiresAt"], listed["uses"]) == ("codex", None, 0)
    assert listed["madeAt"].startswith("20")


async def test_a_rule_is_new_until_another_terminal_has_shown_it(
    tmp_path: Path, folder: Path
) -> None:
    journal = tmp_path / "journal.db"
    await asked(journal, folder)
    terminals = [pty.openpty(), pty.openpty()]
    desk, other = (theirs for _, theirs in terminals)
    try:
        rules(journal, "add", "run make", folder=folder, terminal=desk)
        rules(journal, "add", "run make check", folder=folder)
        first, second = rules(journal, folder=folder).splitlines()
        assert f"new, made with terminal {os.ttyname(desk)} of" in first
        assert "new, made with a program without a terminal" in second
        assert "new" in rules(journal, folder=folder), "nobody was there to see them"
        assert "new" in rules(journal, "--json", folder=folder, terminal=other)
        told = rules(journal, folder=folder, terminal=other, command="inbox")
        assert "2 new rules, made elsewhere. See: acphold rules" in told
        assert rules(journal, folder=folder, terminal=desk).count("new, ") == 2
        assert rules(journal, folder=folder, terminal=desk).count("new, ") == 1
        assert rules(journal, folder=folder, terminal=other).count("new, ") == 1
        assert "new, " not in rules(journal, folder=folder, terminal=other)
        assert "new rule" not in rules(journal, folder=folder, command="inbox")
    finally:
        for fd in (fd for both in terminals for fd in both):
            os.close(fd)


async def test_all_rules_are_switched_off_and_on(tmp_path: Path, folder: Path) -> None:
    journal = tmp_path / "journal.db"
    await asked(journal, folder)
    rules(journal, "add", "run pytest ...", folder=folder)
    assert rules(journal, "off", folder=folder) == "1 rule off\n"
    assert [rule.is_off for rule in await kept(journal)] == [True]
    assert rules(journal, "on", folder=folder) == "1 rule on\n"
    assert [rule.is_off for rule in await kept(journal)] == [False]
    opened = open_journal(journal)
    await opened.access.change_rules("", [1], RuleChange(expires_at=1))
    await opened.aclose()
    assert rules(journal, "off", folder=folder) == "0 rules off\n"


async def test_a_rule_of_a_kind_that_there_is_no_more_is_listed_with_the_reason(
    tmp_path: Path, folder: Path
) -> None:
    journal = tmp_path / "journal.db"
    await asked(journal, folder)
    rules(journal, "add", "run make", folder=folder)
    opened = open_journal(journal)
    [made] = await opened.access.rules("")
    await opened.access.add_rule(replace(made, kind="edit", argv=("docs",)))
    await opened.aclose()
    _, over = rules(journal, folder=folder).splitlines()
    assert over.startswith("2 Always allow every agent to edit docs in project")
    assert " · ended by an upgrade: acphold asks about every edit" in over
    listed = [json.loads(it) for it in rules(journal, "--json", folder=folder).splitlines()]
    assert [(it["isOver"], it["waits"]) for it in listed] == [(False, False), (True, False)]
    rules(journal, "rm", "2", folder=folder)
    assert len(rules(journal, folder=folder).splitlines()) == 1


async def test_a_rule_that_says_too_much_is_refused(tmp_path: Path, folder: Path) -> None:
    journal = tmp_path / "journal.db"
    await asked(journal, folder)
    for text in ("run npm ...", "run sh -c pytest", "run ls; id", "edit docs"):
        assert text in rules(journal, "add", text, folder=folder, code=2)
    assert await kept(journal) == []


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["add", "rm", "-rf"], "did you mean: acphold rules add 'run rm -rf'?"),
        (["add", "run", "pytest", "-q"], "did you mean: acphold rules add 'run pytest -q'?"),
        (["add", "run", "make", "-C", "a b"], "acphold rules add 'run make -C '\"'\"'a b'\"'\"''?"),
        (["off", "-x"], "unrecognized arguments: -x"),
    ],
)
def test_a_command_with_options_has_to_be_quoted(words: list[str], meant: str) -> None:
    with pytest.raises(UsageError) as refused:
        parser_of("rules").run(words)
    assert meant in str(refused.value)


async def test_a_rule_that_allows_what_was_refused_is_only_added_with_although(
    tmp_path: Path, folder: Path
) -> None:
    journal = tmp_path / "journal.db"
    await asked(journal, folder, ("pytest -q", "allow_once"), ("pytest -x", "reject_once"))
    told = rules(journal, "add", "run pytest ...", folder=folder, code=2)
    assert "would have allowed 1 question that you refused" in told
    assert await kept(journal) == []
    rules(journal, "add", "run pytest -q", folder=folder)
    rules(journal, "add", "run pytest ...", "--although", folder=folder)
    assert len(await kept(journal)) == 2


async def test_why_says_of_each_question_which_step_asks(tmp_path: Path, folder: Path) -> None:
    journal = tmp_path / "journal.db"
    session = await asked(
        journal,
        folder,
        ("pytest -q", "allow_once"),
        ("pytest; rm -rf ~", "reject_once"),
        ("pytest -p evil", "reject_once"),
    )
    rules(journal, "add", "run pytest ...", folder=folder)
    told = rules(journal, "why", session, folder=folder).splitlines()
    assert [line.strip() for line in told if line.startswith(" ")] == [
        "-p is not known as a harmless option of pytest",
        "then: you refused it",
        "cannot be understood from here: ~",
        "then: you refused it",
        "allowed by your rule 1",
        "then: you allowed it",  # there was no rule
    ]
    opened = open_journal(journal)
    page = await opened.read_back(session, None, 9, kinds=("question",))
    await opened.aclose()
    question = json.loads(page.entries[0].raw)["id"]
    told = rules(journal, "why", question, folder=folder).splitlines()
    assert told[0].endswith(" pytest -p evil")
    assert [line.strip() for line in told[1:]] == [
        "-p is not known as a harmless option of pytest",
        "then: you refused it",
    ]


async def test_why_knows_the_mode_that_the_agent_is_in(tmp_path: Path, folder: Path) -> None:
    journal = tmp_path / "journal.db"
    session = await asked(journal, folder, ("pytest -q", "allow_once"), mode="plan")
    rules(journal, "add", "run pytest ...", folder=folder)
    told = rules(journal, "why", session, folder=folder).splitlines()
    assert told[0].endswith(" ask pytest -q")
    assert "only plans or reads" in told[1]


async def test_a_rule_made_in_another_process_answers_in_a_running_one(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    journal = tmp_path / "kept" / "journal.db"
    journal.parent.mkdir()

    def add() -> str:
        beside = subprocess.DEVNULL
        return rules(journal, "add", "run pytest ...", folder=folder, terminal=beside)

    session = await asked(journal, folder, ("pytest -q", "reject_once"), first=add)
    [rule] = await kept(journal)
    assert rule.uses == 1
    shown = rules(journal, session, folder=folder, command="show")
    assert "your rules answered 1 question" in shown
    assert "allowed by your rule 1" in shown
    assert "asked: allowed once (by your rule 1): pytest -q" in shown
    told = rules(journal, "why", session, folder=folder)
    assert "allowed by your rule 1\n   then: answered by your rule 1\n" in told


async def test_rules_of_a_copied_journal_wait_until_they_are_switched_on_there(
    tmp_path: Path, folder: Path
) -> None:
    journal, copy, other = (tmp_path / name for name in ("journal.db", "copy.db", "other.db"))
    await kept(journal)
    rules(journal, "add", "run make check", folder=folder)
    rules(journal, "add", "ask run make clean", folder=folder)
    shutil.copy(journal, copy)
    shutil.copy(journal, other)
    first, second = rules(copy, folder=folder).splitlines()
    assert "of another journal or machine: waits for `acphold rules on`" in first
    assert "waits" not in second  # it only asks
    assert "waits" not in rules(journal, folder=folder)
    facts = [json.loads(line) for line in rules(copy, "--json", folder=folder).splitlines()]
    assert [it["waits"] for it in facts] == [True, False]
    session = await asked(copy, folder, ("make check", "reject_once"))
    said = rules(copy, "why", session, folder=folder)
    assert "there is no rule for this agent and folder" in said
    rules(other, "on", folder=folder)
    assert "waits" not in rules(other, folder=folder)
    session = await asked(other, folder, ("make check", "nobody is asked"))
    assert "answered by your rule 1" in rules(other, "why", session, folder=folder)
