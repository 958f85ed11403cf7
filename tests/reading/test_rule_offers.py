"""Offers to make a yes standing: the rules that a question offers, and accepting one."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.entries import now_ms
from acphold.journal.access import Share
from acphold.live.reading.rule_offers import (
    AllowsRefusedError,
    RuleOffer,
    accept_offer,
    add_rules,
    rule_offers,
)
from acphold.safety.errors import RuleError
from acphold.safety.standing.decision import USUAL, RuleChange, pausing_rule, read_rule
from tests.hub.shared import PERMISSION, Shared, shared
from tests.hub.test_standing_answers import ALLOWED, DEADLINE, REFUSED, asking, at_work, made


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@asynccontextmanager
async def decided(
    journal: Path,
    tmp_path: Path,
    *commands: str,
    answer: Any = ALLOWED,
    rules: tuple[str, ...] = (),
) -> AsyncIterator[tuple[Shared, str, list[str]]]:
    """A session in which a person has decided these; yields the ids of the questions."""
    async with at_work(journal, tmp_path, *rules) as (house, client, _, session):
        client.answers[PERMISSION] = lambda _: answer
        for number, command in enumerate(commands):
            await asking(house, session, command, call=f"c{number}")
        yield house, session, [it["id"] for it in await house.entries(session, "question")]


def committed_in(folder: Path, *names: str) -> None:
    """Make the folder a repository in which these files are committed."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x\n")
    me = ("-c", "user.name=ada", "-c", "user.email=a@x")
    for words in (("init", "-q"), ("add", "-A"), (*me, "commit", "-q", "-m", "sources")):
        subprocess.run(["git", *words], cwd=folder, check=True)


async def ask_for(house: Shared, session: str, **call: Any) -> list[RuleOffer]:
    """Ask for a call, which a person allows, and return its offers."""
    kinds = ("allow_once", "reject_once")
    await house.agent.ask_client(
        PERMISSION,
        sessionId=session,
        toolCall={"toolCallId": "e", "title": "Write", **call},
        options=[{"optionId": kind, "name": kind, "kind": kind} for kind in kinds],
    )
    [entry] = await house.entries(session, "question")
    return await rule_offers(house.journal, session, entry["id"], None)


async def texts(house: Shared, session: str, question: str, tenant: str | None = None) -> list[str]:
    return [it.text for it in await rule_offers(house.journal, session, question, tenant)]


@pytest.mark.parametrize(
    ("command", "offers"),
    [
        ("pytest -q", ["run pytest -q", "run pytest …"]),
        ("make check", ["run make check"]),
        (
            "pytest -q 2>&1 | tail -20",
            ["run pytest -q and run tail -20", "run pytest … and run tail …"],
        ),
        ("pytest -p evil", ["run pytest -p evil"]),
        ("sh run.sh", []),
        ("pytest $(id)", []),
    ],
)
async def test_a_command_is_offered_exactly_and_then_with_what_its_program_may_do(
    command: str, offers: list[str], journal: Path, tmp_path: Path
) -> None:
    async with decided(journal, tmp_path, command) as (house, session, [question]):
        assert await texts(house, session, question) == offers


async def test_what_is_still_needed_beside_the_persons_rules_is_offered(
    journal: Path, tmp_path: Path
) -> None:
    line = "pytest -q | tail -3"
    async with decided(journal, tmp_path, line, rules=("run tail …",)) as (
        house,
        session,
        [question],
    ):
        assert await texts(house, session, question) == ["run pytest -q", "run pytest …"]


async def test_an_open_question_has_offers_and_a_refused_one_none(
    journal: Path, tmp_path: Path
) -> None:
    async with at_work(journal, tmp_path) as (house, _, person, session):
        question = asking(house, session, "make check")
        await person.asked.wait()
        [entry] = await house.entries(session, "question")
        assert await texts(house, session, entry["id"]) == ["run make check"]
        person.answer.set_result(REFUSED)
        await question
        assert await texts(house, session, entry["id"]) == []


@pytest.mark.parametrize(
    ("path", "offers", "words"),
    [
        ("docs/de/b.md", ["edit docs/de", "edit docs"], "edit files in project/docs/de"),
        ("docs/a.md", ["edit docs"], "edit files in project/docs"),
        ("main.go", ["edit main.go"], "edit main.go in project"),
        ("docs/tool.py", [], ""),
        ("go.mod", [], ""),
    ],
)
async def test_an_edit_is_offered_for_its_folder_and_the_upper_one_and_else_for_its_file(
    path: str, offers: list[str], words: str, journal: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    async with at_work(journal, tmp_path) as (house, client, _, session):
        client.answers[PERMISSION] = lambda _: ALLOWED
        committed_in(folder, "docs/a.md", "docs/de/a.md", "main.go", "go.mod")
        given = {"file_path": str(folder / path), "content": "x"}
        found = await ask_for(house, session, name="Write", rawInput=given)
        assert [it.text for it in found] == offers
        assert found[0].words == words if found else not words


async def test_edits_in_several_folders_are_offered_with_a_rule_for_each(
    journal: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    names = ("docs/a.md", "src/web/a.ts", "main.go")
    committed_in(folder, *names)
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        house.agent.key, house.agent.known_as = "@zed-industries/codex-acp", "codex"
        client = await house.client(name="zed")
        client.answers[PERMISSION] = lambda _: ALLOWED
        session = await house.at_work(client, folder)
        changes = {str(folder / name): {"type": "update"} for name in names}
        found = await ask_for(house, session, rawInput={"call_id": "e", "changes": changes})
        assert [it.text for it in found] == [
            "edit docs and edit src/web and edit main.go",
            "edit docs and edit src and edit main.go",
        ]
        words = (
            "edit files in project/docs and edit files in project/src and edit main.go in project"
        )
        assert found[1].words == words


async def test_guests_and_switched_off_rules_have_no_offers(journal: Path, tmp_path: Path) -> None:
    made = decided(journal, tmp_path, "make check", "ls", rules=("run ls …",))
    async with made as (house, session, [question, allowed]):
        kept = house.journal
        assert await texts(house, session, allowed) == []  # a rule allows it
        assert await texts(house, session, question, "bob") == []
        assert await texts(house, session, "unknown") == []
        await kept.access.change_rules("", None, RuleChange(is_off=True))
        await kept.access.add_rule(read_rule("ask run id"))  # and is on
        assert await texts(house, session, question) == []
        await kept.access.change_rules("", None, RuleChange(expires_at=1))
        assert await texts(house, session, question) == ["run make check"]  # they have expired
        await kept.access.change_rules("", None, RuleChange(is_off=False, expires_at=0))
        assert await texts(house, session, question) == ["run make check"]
        await kept.access.keep_share(Share(session, "bob", prompts=True))
        assert await texts(house, session, question) == []


async def test_an_accepted_offer_is_a_rule_of_this_agent_and_folder(
    journal: Path, tmp_path: Path
) -> None:
    async with decided(journal, tmp_path, "pytest -q") as (house, session, [question]):
        kept = house.journal
        with pytest.raises(RuleError):
            await accept_offer(kept, session, question, "run rm …", tenant="")
        [rule] = await accept_offer(
            kept, session, question, "run pytest -q", tenant="", made_with="tests"
        )
        assert (rule.number, rule.agent, rule.made_with) == (1, "claude", "tests")
        assert rule.folder == str((tmp_path / "project").resolve())
        assert abs(rule.expires_at - USUAL - now_ms()) < 60_000
        with pytest.raises(RuleError, match="you already have it"):
            await accept_offer(kept, session, question, "run pytest …", tenant="")
        assert await asking(house, session, "pytest -q", call="d") == ALLOWED
        assert [rule.uses for rule in await kept.access.rules("")] == [1]


async def test_an_accepted_offer_may_be_for_every_agent(journal: Path, tmp_path: Path) -> None:
    async with decided(journal, tmp_path, "pytest -q") as (house, session, [question]):
        text = "run pytest …"
        [rule] = await accept_offer(
            house.journal, session, question, text, tenant="", all_agents=True
        )
        assert (rule.agent, rule.text) == ("", text)


async def test_an_offer_that_would_have_allowed_what_was_refused_makes_no_rule(
    journal: Path,
    tmp_path: Path,
) -> None:
    async with at_work(journal, tmp_path) as (house, client, _, session):
        answers = iter((REFUSED, ALLOWED))
        client.answers[PERMISSION] = lambda _: next(answers)
        for number, command in enumerate(("pytest -x", "pytest -q")):
            await asking(house, session, command, call=f"c{number}")
        _, question = [it["id"] for it in await house.entries(session, "question")]
        with pytest.raises(AllowsRefusedError, match="1 question that you refused"):
            await accept_offer(house.journal, session, question, "run pytest …", tenant=None)
        assert await house.journal.access.rules("") == []
        async with asyncio.timeout(10):
            await accept_offer(house.journal, session, question, "run pytest -q", tenant=None)
        # Also when rules rest there now, and when somebody else may prompt there.
        access = house.journal.access
        wider = [made("run pytest …", tmp_path / "project")]
        await access.add_rule(pausing_rule(session, "", now_ms()))
        with pytest.raises(AllowsRefusedError):
            await add_rules(house.journal, wider)
        await access.keep_share(Share(session, "bob", prompts=True))
        with pytest.raises(AllowsRefusedError):
            await add_rules(house.journal, wider)
