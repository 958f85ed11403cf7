"""`kill -9` of acphold while rules answer: the agent has no answer that the journal has not."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from acphold.journal.stores import open_journal
from acphold.live.reading.rule_offers import add_rules
from acphold.safety.standing.decision import read_rule
from tests.editor import introduced, received, scripted_agent, under_name, wrap_command
from tests.hub.shared import PERMISSION
from tests.watched_processes import below, gone

CLAUDE = {"name": "@agentclientprotocol/claude-agent-acp", "version": "1"}
KINDS = ("allow_once", "reject_once")
ASKED = 20


@pytest.mark.parametrize("seed", range(6))
async def test_an_answer_by_a_rule_is_in_the_journal_before_the_agent_has_it(
    journal: Path, tmp_path: Path, seed: int
) -> None:
    folder, log, chance = tmp_path / "project", tmp_path / "log", random.Random(seed)
    folder.mkdir()
    agent = under_name("claude-agent-acp", tmp_path, scripted_agent(log=str(log), info=CLAUDE))
    command = wrap_command(agent)
    call = {
        "toolCallId": "t",
        "title": "make check",
        "name": "Bash",
        "rawInput": {"command": "make check"},
    }
    options = [{"optionId": kind, "name": kind, "kind": kind} for kind in KINDS]
    async with introduced(command, journal=journal) as client:
        session = await client.talk({"say": "hello"}, cwd=folder)
        there = open_journal(journal)
        rule = replace(read_rule("run make check"), folder=str(folder.resolve()))
        await add_rules(there, [rule])
        await there.aclose()
        agents = below(client.process.pid)
        asks = [ASKED, PERMISSION, {"toolCall": call, "options": options}]
        client.begin_prompt(session, {"ask many": asks})
        await client.until(lambda: "allowed by your rule 1" in json.dumps(client.updates(session)))
        await asyncio.sleep(chance.random() / 20)  # anywhere between two answers
        os.kill(client.process.pid, signal.SIGKILL)
        await client.process.wait()
        await client.ended()
    await gone(agents, 5)
    heard = [it for it in received(log) if "allow_once" in json.dumps(it.get("result", ""))]
    there = open_journal(journal)
    page = await there.read_back(session, None, 200, kinds=("question", "answer"))
    [rule] = await there.access.rules("")
    await there.aclose()
    questions = {json.loads(it.raw)["id"] for it in page.entries if it.kind == "question"}
    answers = [json.loads(it.raw) for it in page.entries if it.kind == "answer"]
    by_rule = [it["question"] for it in answers if it.get("rule")]
    assert len(heard) <= len(by_rule) <= rule.uses <= ASKED
    assert {*by_rule} <= questions
    assert len(by_rule) == len({*by_rule})
