"""Real agents at their vendor's limit, which is recognised behind `acphold wrap`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import pytest

from acphold.conversation.history.timeline import turn_end
from acphold.errors import RemoteError
from acphold.live.agents.vendor_limits import VENDOR_LIMITS, Limit, limit_of
from acphold.live.hub.usage_limit import GO_ON
from tests.editor import DEADLINE, Refused
from tests.interop.client import Client, introduction, opening, prompt
from tests.interop.conversation import text
from tests.interop.place import Place
from tests.interop.real_agents import CLAUDE, CODEX, CODEX_OF_OPENAI, GEMINI, OPENCODE, RealAgent
from tests.interop.vendor_at_limit import (
    WENT_ON,
    Refusal,
    anthropic,
    at_limit,
    google,
    openai,
    opencode_go,
)
from tests.interop.wire import Json

# The first run downloads the agents.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

HOURS = 9000
"""Seconds to the reset: longer than any agent retries."""

MINUTE = 60.0
"""Most agents tell no seconds; Gemini CLI tells those from when it was refused."""

JETBRAINS = {"jetbrains": {"air": {"version": 1, "capabilities": ["sessionFailure"]}}}
"""The `_meta` of a client that takes an error as a part of the answer."""


class Case(NamedTuple):
    agent: RealAgent
    refusal: Callable[[int], Refusal]
    key: str
    path: str = ""


CLAUDE_CASE = Case(CLAUDE, anthropic, "@agentclientprotocol/claude-agent-acp")
CODEX_CASE = Case(CODEX_OF_OPENAI, openai, "@agentclientprotocol/codex-acp", "/v1")
CASES = (
    CLAUDE_CASE,
    CODEX_CASE,
    Case(CODEX, openai, "codex-acp", "/v1"),
    Case(GEMINI, google, "gemini-cli"),
)


async def begin(client: Client, place: Place, meta: Json) -> str:
    hello = introduction()
    hello["clientCapabilities"] = {"_meta": meta}
    await client.call("initialize", hello)
    return str((await client.call("session/new", opening(place.work)))["sessionId"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.agent.name}")
async def test_the_limit_is_recognised_in_the_error_that_ends_the_turn(
    case: Case, place: Place
) -> None:
    with at_limit(case.refusal, HOURS) as vendor:
        wrapped = place.wrapped(case.agent.command())
        env = case.agent.prepare(place.home, vendor.url + case.path)
        async with place.client(wrapped, **env) as client:
            session_id = await begin(client, place, {})
            limit = await limit_reached(case, client, session_id)
            await client.leave()
    assert_is(limit, case, vendor.resets_at)


async def test_claude_tells_the_second_once_a_model_has_answered(place: Place) -> None:
    with at_limit(anthropic, HOURS) as vendor:
        vendor.is_open = True
        wrapped = place.wrapped(CLAUDE.command())
        async with place.client(wrapped, **CLAUDE.prepare(place.home, vendor.url)) as client:
            session_id = await begin(client, place, {})
            await client.call("session/prompt", prompt(session_id, "Hello"))
            vendor.is_open = False
            limit = await limit_reached(CLAUDE_CASE, client, session_id)
            await client.leave()
    assert limit.resets_at == vendor.resets_at


async def limit_reached(case: Case, client: Client, session_id: str) -> Limit:
    """The limit that ends the next turn."""
    with pytest.raises(Refused) as refused:
        await client.call("session/prompt", prompt(session_id, "Go on"))
    error = refused.value
    answer = RemoteError(error.code, error.message, json.dumps(error.error).encode())
    updates = [json.dumps(update).encode() for update in client.updates(session_id)]
    limit = limit_of([case.key], answer, updates, now=time.time())
    assert limit is not None
    return limit


@pytest.mark.parametrize("case", [CLAUDE_CASE, CODEX_CASE], ids=lambda case: f"{case.agent.name}")
async def test_it_is_recognised_in_the_answer_for_a_client_of_jetbrains(
    case: Case, place: Place
) -> None:
    with at_limit(case.refusal, HOURS) as vendor:
        wrapped = place.wrapped(case.agent.command())
        env = case.agent.prepare(place.home, vendor.url + case.path)
        async with place.client(wrapped, **env) as client:
            session_id = await begin(client, place, JETBRAINS)
            answer = await client.call("session/prompt", prompt(session_id, "Hello"))
            await client.leave()
    limit = limit_of([case.key], json.dumps(answer).encode(), now=time.time())
    assert limit is not None
    assert_is(limit, case, vendor.resets_at)


def assert_is(limit: Limit, case: Case, resets_at: float) -> None:
    assert limit.agent in VENDOR_LIMITS
    assert limit.agent in case.agent.name
    assert limit.resets_at is not None
    assert abs(limit.resets_at - resets_at) <= MINUTE
    assert limit.words


async def test_opencode_keeps_the_turn_open_and_goes_on_by_itself(place: Place) -> None:
    with at_limit(opencode_go, 5) as vendor:
        wrapped = place.wrapped(OPENCODE.command())
        env = OPENCODE.prepare(place.home, f"{vendor.url}/v1")
        async with place.client(wrapped, **env) as client:
            session_id = await begin(client, place, {})
            turn = client.begin("session/prompt", prompt(session_id, "Hello"))
            await client.until(lambda: vendor.refused)
            vendor.is_open = True
            assert (await client.answer(turn))["stopReason"] == "end_turn"
            assert WENT_ON in text(client.updates(session_id))
            await client.leave()


SOON = """
import random
uniform = random.uniform
random.uniform = lambda a, b: 0.5 if (a, b) == (60.0, 300.0) else uniform(a, b)
"""
"""A `sitecustomize` for processes of acphold: half a second instead of the minutes at random."""

SETTINGS = """
[defaults]
when_limited = "wait"
linger = 0.2
[alerts]
on_waiting = ["sh", "-c", 'echo "$ACPHOLD_EVENT: $ACPHOLD_QUESTION" >>"$HOME/alerts"']
waiting_seconds = 0
"""


async def test_claude_goes_on_once_at_the_reset_of_its_limit_if_it_was_told_to(
    place: Place,
) -> None:
    (place.home / "sitecustomize.py").write_text(SOON)
    settings = place.home / "settings.toml"
    settings.write_text(SETTINGS)
    with at_limit(anthropic, HOURS) as vendor:
        vendor.is_open = True
        env = CLAUDE.prepare(place.home, vendor.url)
        env |= {"ACPHOLD_SETTINGS": str(settings), "PYTHONPATH": str(place.home)}

        def acphold(*words: str) -> str:
            command = [sys.executable, "-m", "acphold", *words]
            told = place.environment(**env)
            return subprocess.run(
                command, env=told, capture_output=True, text=True, timeout=DEADLINE, check=True
            ).stdout

        async with place.client(place.wrapped(CLAUDE.command(), "--name", "mine"), **env) as client:
            session_id = await begin(client, place, {})
            await client.call("session/prompt", prompt(session_id, "Hello"))
            vendor.is_open, vendor.resets_at = False, int(time.time()) + 8
            vendor.refusal = anthropic(vendor.resets_at)
            with pytest.raises(Refused):
                await client.call("session/prompt", prompt(session_id, "Go on"))
            [row] = map(json.loads, acphold("list", "--json").splitlines())
            assert (row["outcome"], row["queued"], row["held"]) == ("limited", 1, "limited")
            assert "1 waits until" in acphold("list")
            until = datetime.fromisoformat(row["heldUntil"]).timestamp()
            assert until == vendor.resets_at + 0.5
            assert GO_ON not in text(client.updates(session_id), "user_message_chunk")
            vendor.is_open = True
            # It goes on with nobody doing anything, and not before.
            await client.until(lambda: outcomes(acphold, session_id) == ENDS)
            assert time.time() >= until
            # The journal has it first; the client is told a moment later.
            await client.until(
                lambda: GO_ON in text(client.updates(session_id), "user_message_chunk")
            )
            assert text(client.updates(session_id), "user_message_chunk").count(GO_ON) == 1
            [row] = map(json.loads, acphold("list", "--json").splitlines())
            assert (row["outcome"], row["queued"], row["held"]) == ("completed", 0, None)
            await client.leave()
    [alert] = (place.home / "alerts").read_text().splitlines()
    assert alert.startswith("held: 1 queued prompt, paused: a limit was reached, until ")


ENDS = ["completed", "limited", "completed"]


def outcomes(acphold: Callable[..., str], session_id: str) -> list[str]:
    """The outcomes of a session's turns, from its journal."""
    lines = acphold("export", session_id, "--format", "jsonl").splitlines()
    entries = [json.loads(line) for line in lines[1:]]
    ends = [json.dumps(it["update"]).encode() for it in entries if it.get("kind") == "turn_end"]
    return [turn_end(end, 0).outcome for end in ends]
