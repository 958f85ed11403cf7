"""Questions answered by a person's rules: the view of clients, the journal, and paused rules."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from acphold.conversation.history.entries import now_ms
from acphold.conversation.history.raw_update import OPENCODE_CHILD
from acphold.conversation.presentation import permissions
from acphold.errors import JournalUnavailableError, UnknownSessionError
from acphold.journal.access import Share
from acphold.journal.lineage import rule_place
from acphold.journal.stores import open_journal
from acphold.live.agents.interface import Notified, Updates
from acphold.live.hub import bounds
from acphold.live.server.principals import Principal
from acphold.safety.standing import programs
from acphold.safety.standing.decision import RuleChange, StandingRule, read_rule
from tests.hub.shared import PERMISSION, Onlooker, Person, Shared, methods, shared
from tests.hub.test_waiting_prompts import add
from tests.postgresql import Databases

DEADLINE = 30
KINDS = ("allow_always", "allow_once", "reject_once")
ALLOWED = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
REFUSED = {"outcome": {"outcome": "selected", "optionId": "reject_once"}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@asynccontextmanager
async def at_work(
    journal: Path | str, tmp_path: Path, *rules: str, **scope: Any
) -> AsyncIterator[tuple[Shared, Onlooker, Person, str]]:
    """A turn of an agent that is known as Claude, in a folder with these rules."""
    (folder := tmp_path / "project").mkdir(exist_ok=True)
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        house.agent.key, house.agent.known_as = "@agentclientprotocol/claude-agent-acp", "claude"
        scope = {"places": (await rule_place(house.journal),), **scope}
        for text in rules:
            await house.journal.access.add_rule(made(text, folder, **scope))
        client = await house.client(name="zed")
        person = Person(client)
        yield house, client, person, await house.at_work(client, folder)


def made(text: str, folder: Path, **scope: Any) -> StandingRule:
    return replace(read_rule(text), folder=str(folder.resolve()), **scope)


def asking(
    house: Shared, session: str, command: str, *kinds: str, call: str = "t"
) -> asyncio.Task[Any]:
    tool = {
        "toolCallId": call,
        "title": command,
        "name": "Bash",
        "rawInput": {"command": command},
        "content": [],
    }
    options = [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds or KINDS]
    return asyncio.create_task(
        house.agent.ask_client(PERMISSION, sessionId=session, toolCall=tool, options=options)
    )


async def reported(house: Shared, session: str, update: dict[str, Any]) -> None:
    """The agent reports this of a call."""
    raw = json.dumps(update).encode()
    await house.agent.listener.hear(Updates(session, "update", [raw]))


async def told(client: Onlooker, words: str) -> None:
    """Wait until an update of this client has these words."""
    await client.until(lambda: words in json.dumps(client.updates()))


async def is_asked(house: Shared, person: Person, question: asyncio.Task[Any]) -> bool:
    """True if a person is asked; the person then refuses."""
    asked = asyncio.create_task(person.asked.wait())
    await asyncio.wait([asked, question], return_when="FIRST_COMPLETED")
    asked.cancel()
    if question.done():
        return False
    person.answer.set_result(REFUSED)
    await question
    return True


async def test_no_rule_allows_what_a_person_cannot_as_it_is_too_long_to_show(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        run = {"command": "pytest", "description": "x" * permissions.STEPS}
        tool = {"toolCallId": "t", "title": "pytest", "name": "Bash", "rawInput": run}
        options = [{"optionId": kind, "name": kind, "kind": kind} for kind in KINDS]
        question = asyncio.create_task(
            house.agent.ask_client(PERMISSION, sessionId=session, toolCall=tool, options=options)
        )
        assert await is_asked(house, person, question)


async def test_a_rule_answers_once_and_nobody_is_asked(journal: Path, tmp_path: Path) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, client, _, session):
        second = await house.client()
        await second.load(session, tmp_path / "project")
        assert await asking(house, session, "pytest -q") == ALLOWED
        assert PERMISSION not in methods(client) + methods(second)
        for its in (client, second):
            await told(its, "allowed by your rule 1")
        later = await house.client()
        await later.load(session, tmp_path / "project")
        assert "revoke with: acphold rules rm 1" in json.dumps(later.updates())
        [question] = await house.entries(session, "question")
        [answer] = await house.entries(session, "answer")
        assert answer["question"] == question["id"]
        assert answer["result"] == ALLOWED
        assert answer["client"] == {"name": "your rule 1"}
        assert answer["rule"]["numbers"] == [1]
        assert answer["rule"]["texts"] == ["run pytest …"]
        [rule] = await house.journal.access.rules("")
        assert rule.uses == 1
        assert (await house.journal.session(session)).ruled == 1
        assert (await house.journal.summary(session)).open_questions == ()


@pytest.mark.parametrize("kind", ["update", "params"])
async def test_the_line_stays_when_the_agent_replaces_the_content_of_the_call(
    kind: str, journal: Path, tmp_path: Path
) -> None:
    content = [{"type": "content", "content": {"type": "text", "text": "2 passed"}}]
    call = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"}
    update = {**call, "content": content, "_meta": {"its/own": 1}}
    told = update if kind == "update" else {"sessionId": "x", "update": update, "more": 1}
    async with at_work(journal, tmp_path, "run pytest …") as (house, client, _, session):
        await asking(house, session, "pytest -q")
        await house.agent.listener.hear(Updates(session, kind, [json.dumps(told).encode()]))
        await client.until(lambda: "2 passed" in json.dumps(client.updates()))
        later = await house.client()
        await later.load(session, tmp_path / "project")
        for its in (client, later):
            shown = next(it for it in its.updates() if "2 passed" in json.dumps(it))
            first, line = shown["content"]
            assert first == content[0]
            assert line["content"]["text"].startswith("allowed by your rule 1")
            assert shown["_meta"]["its/own"] == 1
            assert shown["_meta"]["acphold/rule"]["words"] == line["content"]["text"]


@pytest.mark.parametrize(
    ("command", "kinds"),
    [("pytest; rm -rf ~", KINDS), ("pytest", ("allow_always", "reject_once"))],
    ids=["no rule", "nothing allows once"],
)
async def test_what_no_rule_covers_or_can_allow_once_is_asked(
    command: str, kinds: tuple[str, ...], journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        assert await is_asked(house, person, asking(house, session, command, *kinds))
        [answer] = await house.entries(session, "answer")
        assert "rule" not in answer


@pytest.mark.parametrize("known_as", ["", "codex"])
async def test_an_agent_is_what_it_was_started_as_and_not_what_it_calls_itself(
    known_as: str, journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        house.agent.own_name = house.agent.key
        house.agent.known_as = known_as
        assert await is_asked(house, person, asking(house, session, "pytest"))


async def test_a_rule_that_was_not_made_in_this_place_waits_until_it_is_accepted_here(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …", places=("elsewhere x",)) as (
        house,
        client,
        _,
        session,
    ):
        client.answers[PERMISSION] = lambda _: REFUSED
        assert await asking(house, session, "pytest", call="a") == REFUSED
        here = await rule_place(house.journal)
        await house.journal.access.change_rules("", [1], RuleChange(place=here))
        assert await asking(house, session, "pytest", call="b") == ALLOWED


async def test_an_agent_whose_shell_reads_lines_in_another_way_is_asked_about(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run ls …") as (house, client, _, session):
        client.answers[PERMISSION] = lambda _: REFUSED
        for usual in ("/bin/bash", "/usr/bin/zsh-5.9", ""):
            house.agent.shell = usual
            assert await asking(house, session, "ls 2>&1", call=usual) == ALLOWED
        for shell in ("/bin/tcsh", "/bin/csh", "/usr/bin/nu", "pwsh"):
            house.agent.shell = shell
            assert await asking(house, session, "ls 2>&1", call=shell) == REFUSED
            [*_, answer] = await house.entries(session, "answer")
            assert shell in answer["unruled"]


@pytest.mark.parametrize(
    "change",
    [RuleChange(ended_at=1), RuleChange(is_off=True), RuleChange(expires_at=1)],
    ids=["revoked", "off", "expired"],
)
async def test_a_rule_that_ends_in_another_process_answers_no_more(
    change: RuleChange, journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        assert await asking(house, session, "pytest", call="a") == ALLOWED
        other = open_journal(journal)
        await other.access.change_rules("", [1], change)
        await other.aclose()
        assert await is_asked(house, person, asking(house, session, "pytest", call="b"))


@pytest.mark.postgresql
@pytest.mark.parametrize("ahead", [-3600, 3600])
async def test_a_rule_ends_by_the_clock_of_the_database(
    ahead: int, databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + ahead * 10**9)
    with databases.new() as location:
        async with at_work(location, tmp_path, "run pytest …") as (house, _, person, session):
            half_an_hour = 1_800_000
            for left, is_live in ((half_an_hour, True), (-half_an_hour, False)):
                change = RuleChange(expires_at=clock() // 10**6 + left)
                await house.journal.access.change_rules("", [1], change)
                answer = asking(house, session, "pytest", call=str(left))
                if is_live:
                    assert await answer == ALLOWED
                else:
                    assert await is_asked(house, person, answer)


@pytest.mark.parametrize(
    "change",
    [
        RuleChange(ended_at=1),
        RuleChange(is_off=True),
        RuleChange(expires_at=1),
        RuleChange(watches=True),
    ],
    ids=["revoked", "off", "expired", "watches"],
)
async def test_a_rule_that_ends_while_the_question_is_on_its_way_answers_no_more(
    change: RuleChange, journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        read = type(house.journal.access).rules

        async def revoked(its: Any, person: str | None) -> list[StandingRule]:
            found = await read(its, person)
            await its.change_rules("", None, change)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(house.journal.access), "rules", revoked)
            assert await is_asked(house, person, asking(house, session, "pytest"))


async def test_a_rule_that_asks_and_was_made_while_another_answers_is_heeded(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, client, _, session):
        client.answers[PERMISSION] = lambda _: REFUSED
        access = house.journal.access
        change = access.change_rules

        async def changed(*given: Any) -> list[StandingRule]:
            await access.add_rule(read_rule("ask run pytest …"))
            return await change(*given)

        monkeypatch.setattr(access, "change_rules", changed)
        assert await asking(house, session, "pytest") == REFUSED
        assert not [it for it in await access.deeds(0, 10) if it.deed == "answer by rule"]


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_folder_that_takes_long_to_look_at_holds_up_its_own_session_alone(
    is_late: bool, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, answered = threading.Event(), threading.Event()

    def look(*_: object) -> str:
        looks.set()
        assert answered.wait(DEADLINE)
        return ""

    async with at_work(journal, tmp_path, "run git status …") as (house, client, person, session):
        monkeypatch.setattr(programs, "why_runs", look)
        other = await client.new(tmp_path)
        if is_late:
            monkeypatch.setattr(bounds, "RULES_LOOK_SECONDS", 0.01)
        question = asking(house, session, "git status")
        assert await asyncio.to_thread(looks.wait, DEADLINE)
        await house.turn(client, other, "go")
        if is_late:
            assert await is_asked(house, person, question)
        answered.set()
        assert await question == (REFUSED if is_late else ALLOWED)


async def test_a_hook_of_the_project_that_the_persons_git_settings_name_is_asked_about(
    journal: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    (folder / ".hooks").mkdir(parents=True)
    (folder / ".hooks/post-index-change").write_text("#!/bin/sh\n")
    for name in ("objects", "refs"):
        (folder / ".git" / name).mkdir(parents=True)
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n")
    async with at_work(journal, tmp_path, "run git status …") as (house, _, person, session):
        assert await asking(house, session, "git status") == ALLOWED
        (tmp_path / "home").mkdir()
        (tmp_path / "home/.gitconfig").write_text("[core]\n\thooksPath = .hooks\n")
        assert await is_asked(house, person, asking(house, session, "git status", call="u"))


async def test_a_rule_does_not_answer_once_the_session_is_shared_while_it_is_judged(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, is_shared = threading.Event(), threading.Event()

    def look(*_: object) -> str:
        looks.set()
        assert is_shared.wait(DEADLINE)
        return ""

    async with at_work(journal, tmp_path, "run git status …") as (house, _, person, session):
        monkeypatch.setattr(programs, "why_runs", look)
        question = asking(house, session, "git status")
        assert await asyncio.to_thread(looks.wait, DEADLINE)
        await house.journal.access.keep_share(Share(session, "guests", prompts=True))
        is_shared.set()
        assert await is_asked(house, person, question)
        [rule] = await house.journal.access.rules("")
        assert rule.uses == 0


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("rules", JournalUnavailableError("disk full")),
        ("change_rules", JournalUnavailableError("disk full")),
        ("change_rules", UnknownSessionError("x")),
    ],
)
async def test_rules_that_cannot_be_read_or_noted_answer_nothing(
    name: str, error: Exception, journal: Path, tmp_path: Path
) -> None:
    async def fails(*_: object) -> Any:
        raise error

    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(house.journal.access), name, fails)
            assert await is_asked(house, person, asking(house, session, "pytest"))


async def test_the_21st_answer_of_a_turn_is_asked_and_the_next_turn_begins_anew(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, client, person, session):
        for number in range(20):
            assert await asking(house, session, "pytest", call=f"c{number}") == ALLOWED
        assert await is_asked(house, person, asking(house, session, "pytest", call="last"))
        await house.agent.end(session)
        await house.begun(client, session, "again")
        assert await asking(house, session, "pytest", call="next") == ALLOWED


async def test_an_agent_that_ran_something_else_has_its_rules_rest(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, client, person, session):
        await asking(house, session, "pytest", call="a")
        update = {"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "in_progress"}
        same = {**update, "rawInput": {"command": "pytest"}}
        await reported(house, session, same)
        assert await asking(house, session, "pytest", call="b") == ALLOWED
        other = {**update, "rawInput": {"command": "rm -rf ~"}}
        await reported(house, session, other)
        await told(client, "Your rules are paused")
        await told(client, "To use your rules again in this session: acphold rules rm 2")
        assert await is_asked(house, person, asking(house, session, "pytest", call="c"))
        [*_, answer] = await house.entries(session, "answer")
        assert answer["unruled"].startswith("rules are paused in this session: its agent did")
        [_, rest] = await house.journal.access.rules("")  # which another process reads as well
        assert (rest.text, rest.session) == ("ask everything", session)
        await house.journal.access.change_rules("", [2], RuleChange(ended_at=now_ms()))
        assert await asking(house, session, "pytest", call="d") == ALLOWED


async def test_rules_that_come_to_rest_while_one_answers_give_no_answer(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        await asking(house, session, "pytest", call="a")
        other = {"sessionUpdate": "tool_call_update", "toolCallId": "a"}
        real = type(house.journal.access).change_rules

        async def reporting(its: Any, *change: Any) -> Any:
            used = await real(its, *change)
            await reported(house, session, {**other, "rawInput": {"command": "rm -rf ~"}})
            return used

        monkeypatch.setattr(type(house.journal.access), "change_rules", reporting)
        assert await is_asked(house, person, asking(house, session, "pytest", call="b"))


async def test_each_answer_of_a_rule_is_a_deed_and_each_reason_to_ask_is_noted(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        await asking(house, session, "pytest -q")
        [deed] = await house.journal.access.deeds(0, 10)
        assert (deed.deed, deed.name) == ("answer by rule", "rule 1: run pytest …")
        assert deed.session_id == session
        await is_asked(house, person, asking(house, session, "make", call="b"))
        [first, second] = await house.entries(session, "answer")
        assert "unruled" not in first
        assert second["unruled"] == "no rule covers make"


async def test_a_question_that_differs_from_the_call_before_it_is_asked(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        call = {
            "sessionUpdate": "tool_call",
            "toolCallId": "t",
            "title": "x",
            "rawInput": {"command": "rm -rf ~"},
        }
        await reported(house, session, call)
        assert await is_asked(house, person, asking(house, session, "pytest"))


async def test_a_shell_that_may_stand_elsewhere_since_a_cd_is_asked_about(
    journal: Path, tmp_path: Path
) -> None:
    rules = ("run make check", "run ls …")
    async with at_work(journal, tmp_path, *rules) as (house, client, _, session):
        client.answers[PERMISSION] = lambda _: REFUSED
        assert await asking(house, session, "make check", call="a") == ALLOWED
        ran = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "moves", "name": "Bash"}
        await reported(house, session, {**ran, "rawInput": {"command": "cd sub"}})
        assert await asking(house, session, "make check", call="b") == REFUSED
        assert await asking(house, session, "ls x", call="d") == REFUSED
        [*_, answer] = await house.entries(session, "answer")
        assert "cd" in answer["unruled"]
        await house.agent.end(session)
        await house.begun(client, session, "again")  # it is the same shell
        assert await asking(house, session, "make check", call="e") == REFUSED


@pytest.mark.parametrize("by", ["update", "notification"])
async def test_a_cd_of_a_sub_agent_leads_away_as_well(
    by: str, journal: Path, tmp_path: Path
) -> None:
    ran = {"toolCallId": "c", "title": "moves", "rawInput": {"command": "cd sub"}}
    update = {"sessionUpdate": "tool_call", **ran}
    async with at_work(journal, tmp_path, "run make check") as (house, client, _, session):
        client.answers[PERMISSION] = lambda _: REFUSED
        if by == "update":
            await reported(house, session, {"sessionUpdate": "subagent_update", "sessionId": "kid"})
            await reported(house, "kid", update)
        else:
            ids = {"rootSessionId": session, "parentSessionId": session, "childSessionId": "kid"}
            params = {**ids, "type": "update", "update": update}
            notified = Notified(OPENCODE_CHILD, json.dumps(params).encode())
            await house.agent.listener.hear(notified)
        assert await asking(house, session, "make check") == REFUSED
        [answer] = await house.entries(session, "answer")
        assert "cd" in answer["unruled"]


async def test_a_cd_into_the_sessions_folder_itself_leads_nowhere(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run make check") as (house, _, _, session):
        line = f"cd {tmp_path}/project && grep -rn cd ."
        ran = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "stays", "name": "Bash"}
        await reported(house, session, {**ran, "rawInput": {"command": line}})
        assert await asking(house, session, "make check") == ALLOWED


async def test_a_shell_that_is_new_for_each_command_is_not_led_away(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run make check") as (house, _, _, session):
        house.agent.known_as = "cline"
        ran = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "run_commands: cd sub"}
        await reported(house, session, {**ran, "rawInput": {"commands": ["cd sub"]}})
        tool = {
            "toolCallId": "t",
            "title": "run_commands: make check",
            "rawInput": {"commands": ["make check"]},
        }
        options = [{"optionId": kind, "name": kind, "kind": kind} for kind in KINDS]
        asked = house.agent.ask_client(
            PERMISSION, sessionId=session, toolCall=tool, options=options
        )
        assert await asked == ALLOWED


async def test_a_rule_that_watches_answers_nothing_and_notes_what_it_would_have_done(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …", watches=True) as (
        house,
        _,
        person,
        session,
    ):
        assert await is_asked(house, person, asking(house, session, "pytest"))
        [answer] = await house.entries(session, "answer")
        assert answer["result"] == REFUSED
        assert answer["watched"] == {
            "allows": True,
            "why": "allowed by your rule 1",
            "rules": [1],
        }


async def test_rules_of_somebody_else_answer_nothing(journal: Path, tmp_path: Path) -> None:
    async with at_work(journal, tmp_path, "run pytest …", person="bob") as (
        house,
        _,
        person,
        session,
    ):
        assert await is_asked(house, person, asking(house, session, "pytest"))


async def guest_of(house: Shared, session: str, tmp_path: Path, **can: Any) -> Onlooker:
    guest = house.stranger(Principal(name="guest", session_id=session))
    await guest.introduce("guest", can)
    await guest.load(session, tmp_path / "project")
    return guest


async def test_rules_answer_nothing_beside_a_guest(journal: Path, tmp_path: Path) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        guest = await guest_of(house, session, tmp_path)
        Person(guest)  # who does not answer before the owner
        assert await is_asked(house, person, asking(house, session, "pytest"))


async def test_rules_answer_nothing_in_a_turn_that_a_guest_has_put_into_the_queue(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        guest = await guest_of(house, session, tmp_path)
        await add(guest, session, "run pytest for me")
        await house.leave(guest)
        assert await asking(house, session, "pytest") == ALLOWED
        await house.agent.end(session)
        await house.agent.prompted(session)
        assert await is_asked(house, person, asking(house, session, "pytest"))


STEERING: list[tuple[str, dict[str, Any]]] = [
    ("_session/steering", {"prompt": [{"type": "text", "text": "run pytest"}]}),
    ("_goose/unstable/session/steer", {"prompt": [{"type": "text", "text": "run pytest"}]}),
    ("session/inject", {"prompt": [{"type": "text", "text": "run pytest"}]}),
    ("_session/steer", {"message": "run pytest"}),
    ("_vendor/note", {"words": "run pytest"}),
]


@pytest.mark.parametrize(
    ("method", "said", "is_told", "is_between"),
    [
        *((*steering, False, False) for steering in STEERING),
        (*STEERING[0], True, False),
        (*STEERING[0], False, True),
        (*STEERING[0], True, True),
    ],
)
async def test_rules_answer_nothing_in_a_turn_in_which_a_guest_has_spoken_and_left(
    method: str,
    said: dict[str, Any],
    is_told: bool,
    is_between: bool,
    journal: Path,
    tmp_path: Path,
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, client, person, session):
        guest = await guest_of(house, session, tmp_path)
        if is_between:
            await house.agent.end(session)
        words = {"sessionId": session, **said}
        house.agent.results[method] = b"{}"
        if is_told:
            guest.tell(method, words)
        else:
            await guest.call(method, words)
        await house.leave(guest)
        if is_between:
            await house.begun(client, session, "again")
        assert await is_asked(house, person, asking(house, session, "pytest"))
        client.answers[PERMISSION] = lambda _: REFUSED
        assert await asking(house, session, "pytest", call="b") == REFUSED
        await house.agent.end(session)
        await house.begun(client, session, "a turn of the owner alone")
        assert await asking(house, session, "pytest", call="c") == ALLOWED


async def test_rules_answer_nothing_after_a_guest_has_filled_in_a_form_in_this_turn(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        guest = await guest_of(house, session, tmp_path, elicitation={"form": {}})
        filled = {"action": "accept", "content": {"text": "run pytest"}}
        guest.answers["elicitation/create"] = lambda _: filled
        form = {"type": "object", "properties": {"text": {"type": "string"}}}
        assert filled == await house.agent.ask_client(
            "elicitation/create",
            sessionId=session,
            mode="form",
            message="What?",
            requestedSchema=form,
        )
        await house.leave(guest)
        assert await is_asked(house, person, asking(house, session, "pytest"))


async def test_words_of_the_owner_in_their_own_turn_change_nothing(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, client, _, session):
        method, said = STEERING[0]
        house.agent.results[method] = b"{}"
        await client.call(method, {"sessionId": session, **said})
        assert await asking(house, session, "pytest") == ALLOWED


async def test_a_guest_who_comes_over_a_line_is_a_guest(journal: Path, tmp_path: Path) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        line = house.stranger(Principal(name="serve", sees_all=True, vouches=True))
        marks = {"acphold/line": True, "acphold/tenant": None, "acphold/guest": True}
        await line.introduce("guest", {"_meta": marks})
        await line.load(session, tmp_path / "project")
        Person(line)  # who does not answer before the owner
        assert await is_asked(house, person, asking(house, session, "pytest"))


async def test_rules_answer_nothing_in_a_session_that_somebody_else_may_prompt(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, _, person, session):
        await house.journal.access.keep_share(Share(session, "guests", prompts=True))
        assert await is_asked(house, person, asking(house, session, "pytest"))


async def test_of_many_questions_at_once_no_more_are_answered_than_one_after_the_other(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_work(journal, tmp_path, "run pytest …") as (house, client, _, session):
        client.answers[PERMISSION] = lambda _: REFUSED
        change, access = house.journal.access.change_rules, house.journal.access

        async def slow(*args: Any) -> Any:
            await asyncio.sleep(0.01)  # so that all are considered before the first is answered
            return await change(*args)

        monkeypatch.setattr(type(access), "change_rules", lambda _, *args: slow(*args))
        questions = [asking(house, session, "pytest", call=f"c{number}") for number in range(60)]
        assert (await asyncio.gather(*questions)).count(ALLOWED) == 20


async def test_without_rules_a_question_costs_one_read_and_no_commit_more(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path) as (house, client, _, session):
        client.answers[PERMISSION] = lambda _: ALLOWED
        assert await asking(house, session, "pytest") == ALLOWED
        segments = await house.journal.read(session, 0)
        kinds = [segment.kind for segment in segments]
        assert kinds[-3:] == ["update", "question", "answer"]
