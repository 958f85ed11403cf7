"""Offers to make a yes standing: the rules that a question offers, and accepting one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from acphold.conversation.history.entries import now_ms
from acphold.journal.access import Share
from acphold.live.reading.rule_offers import (
    AllowsRefusedError,
    accept_offer,
    add_rules,
    rule_offers,
)
from acphold.safety.errors import RuleError
from acphold.safety.standing.decision import USUAL, RuleChange, pausing_rule, read_rule
from tests.hub.shared import PERMISSION, Shared
from tests.hub.test_standing_answers import ALLOWED, REFUSED, asking, at_work, made


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


async def test_an_edit_is_offered_no_rule(journal: Path, tmp_path: Path) -> None:
    async with at_work(journal, tmp_path) as (house, client, _, session):
        client.answers[PERMISSION] = lambda _: ALLOWED
        given = {"file_path": str(tmp_path / "project" / "a.md"), "content": "x"}
        await house.agent.ask_client(
            PERMISSION,
            sessionId=session,
            toolCall={"toolCallId": "e", "title": "Write", "name": "Write", "rawInput": given},
            options=[{"optionId": it, "name": it, "kind": it} for it in ("allow_once",)],
        )
        [entry] = await house.entries(session, "question")
        assert await texts(house, session, entry["id"]) == []


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
