"""A list of sessions in front of real agents: never less behind acphold than without it.

Each agent is asked the same by JetBrains AIR's methods and by the drafts, alone and behind acphold.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets

from tests.editor import DEADLINE, Refused
from tests.interop.client import Client, introduction, opening, prompt
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import (
    CLAUDE,
    CODEX,
    CODEX_OF_OPENAI,
    DEEPAGENTS,
    GEMINI,
    GOOSE,
    OPENCODE,
    RealAgent,
)
from tests.interop.wire import Json

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

AIR = {"version": 1, "capabilities": ["sessionIndex", "loadReplayEnd"]}
PROMPT = "Mend the gate of the garden"
FORK = "unknown request session/fork"
"""What the schema, without its drafts, says of the agent's own fork."""

SAID = (
    *("title", "cwd", "archived", "state", "model", "lastPromptAt", "lastTurnEndedAt", "cost"),
    *("sessions", "subscriptionId", "status", "sessionId", "stopReason"),
)
"""What a list says of a session, and an answer."""


def as_air() -> Json:
    """The introduction of JetBrains AIR."""
    params = introduction()
    can = {**params["clientCapabilities"], "_meta": {"jetbrains": {"air": AIR}}}
    return {**params, "clientCapabilities": can}


def air(info: Json) -> Json:
    found: Json = info.get("_meta", {}).get("jetbrains", {}).get("air", {})
    return found


async def outcome(client: Client, method: str, params: Json) -> Any:
    """The result, or None for a method that there is not."""
    try:
        return await client.call(method, params)
    except Refused as exc:
        if exc.code != -32601:
            raise
        return None


class Seen:
    """What a client sees of one session in the list of its agent, step by step."""

    def __init__(self, client: Client, work: Path, session_id: str) -> None:
        self._client = client
        self._work = work
        self._session_id = session_id
        self.shown: dict[str, Json | None] = {}
        self.answers: dict[str, object] = {}

    async def note(self, step: str, archived: str = "unarchived") -> None:
        """Keep how the session is listed now; None if it is not."""
        asked = {
            "cwd": str(self._work),
            "_meta": {"jetbrains": {"air": {"list": {"archived": archived}}}},
        }
        page = await outcome(self._client, "session/list", asked) or {"sessions": []}
        found = [it for it in page["sessions"] if it["sessionId"] == self._session_id]
        self.shown[step] = {**found[0], **air(found[0])} if found else None

    async def ask(self, method: str, **params: object) -> None:
        asked = {"sessionId": self._session_id, **params}
        self.answers[method] = await outcome(self._client, method, asked)


async def look(client: Client, work: Path) -> Seen:
    """Make a session, and change its place in the list in each way."""
    await client.call("initialize", as_air())
    session_id = (await client.call("session/new", opening(work)))["sessionId"]
    seen = Seen(client, work, session_id)
    subscribed = await outcome(client, "_session/list/subscribe", {"cwd": str(work)})
    seen.answers["_session/list/subscribe"] = subscribed
    await client.call("session/prompt", prompt(session_id, PROMPT))
    await seen.note("after a turn")
    ids = {"sessionIds": [session_id]}
    seen.answers["_session/batch_get"] = await outcome(client, "_session/batch_get", ids)
    await seen.ask("_session/rename", title="The gate")
    await seen.note("renamed")
    await seen.ask("session/set_title", title="The other gate")
    await seen.note("titled")
    await seen.ask("session/status")
    await seen.ask("_session/archive")
    await seen.note("archived")
    await seen.note("archived, all", "all")
    await seen.ask("_session/unarchive")
    await seen.note("back")
    forked = await outcome(client, "session/fork", opening(work, session_id))
    seen.answers["session/fork"] = forked
    if forked is not None:
        again = prompt(forked["sessionId"], "Are you there?")
        seen.answers["a prompt in the fork"] = await outcome(client, "session/prompt", again)
    return seen


def lacking(without: object, behind: object) -> list[str]:
    """What the first says and the second does not."""
    if not isinstance(without, dict):
        return []
    known = behind if isinstance(behind, dict) else {}
    named = (name for name in SAID if without.get(name) not in (None, ""))
    return [name for name in named if known.get(name) in (None, "")]


@pytest.mark.parametrize(
    "agent",
    [CLAUDE, CODEX_OF_OPENAI, CODEX, OPENCODE, GEMINI, GOOSE, DEEPAGENTS],
    ids=lambda agent: agent.name,
)
async def test_a_list_says_never_less_behind_acphold_than_without_it(
    agent: RealAgent, place: Place, other_place: Place, model: ModelEndpoint
) -> None:
    env = agent.prepare(other_place.home, model.url)
    async with other_place.client(agent.command(), **env) as alone:
        without = await look(alone, other_place.work)
        await other_place.family.kill()
    env = agent.prepare(place.home, model.url)
    async with place.client(place.wrapped(agent.command()), **env) as client:
        behind = await look(client, place.work)
        session_id = client.seen[0][0]
        await client.until(lambda: "The other gate" in json.dumps(changes(client)))
        before = len(client.updates(session_id))
        await client.call("session/load", opening(place.work, session_id))
        replay = client.updates(session_id)[before:]
        await client.leave()
    if without.answers["_session/archive"] is None:
        del without.shown["archived"]  # it stays listed
    pairs = {
        **{step: (info, behind.shown[step]) for step, info in without.shown.items()},
        **{method: (it, behind.answers[method]) for method, it in without.answers.items()},
    }
    assert {step: less for step, pair in pairs.items() if (less := lacking(*pair))} == {}
    # In front of every agent, whatever it has itself:
    assert None not in behind.answers.values()
    titles = {step: info and info["title"] for step, info in behind.shown.items()}
    assert titles["renamed"] == "The gate"
    assert titles["titled"] == titles["back"] == "The other gate"
    assert behind.shown["archived"] is None
    assert [air(info)["archived"] for info in (behind.shown["archived, all"],) if info] == [True]
    ends = [update for update in replay if air(update).get("loadReplayEnd")]
    assert len(ends) == 1
    wrong = [line for line in place.wrong_lines() if not line.startswith(FORK)]
    assert wrong == []


def changes(client: Client) -> list[Json]:
    """What was told to the subscription."""
    told = (it for it in client.messages if it.get("method") == "_session/list/changes")
    return [info for it in told for info in it["params"]["sessions"]]


async def test_a_session_that_was_renamed_just_now_is_archived_and_stays_so(
    place: Place, model: ModelEndpoint
) -> None:
    env = CLAUDE.prepare(place.home, model.url)
    async with place.client(place.wrapped(CLAUDE.command()), **env) as client:
        await client.call("initialize", as_air())
        for number in range(4):
            session_id = (await client.call("session/new", opening(place.work)))["sessionId"]
            await client.call("session/prompt", prompt(session_id, PROMPT))
            asked = {"sessionId": session_id}
            await client.call("_session/rename", {**asked, "title": f"The gate {number}"})
            # The title reaches the agent's file while this goes on.
            await asyncio.sleep(0.3 + 0.5 * number)
            await client.call("_session/archive", asked)
            seen = Seen(client, place.work, session_id)
            for look in range(4):
                await seen.note(f"archived {look}")
                await asyncio.sleep(0.5)
            assert [*seen.shown.values()] == [None] * 4, number
        await client.leave()


async def test_a_second_user_of_serve_learns_nothing_of_the_first_from_the_agents_index(
    place: Place, model: ModelEndpoint
) -> None:
    env = CLAUDE.prepare(place.home, model.url)
    with place.serving(CLAUDE.command(), **env) as (url, _):

        async def token(*words: str) -> str:
            return (await place.acphold(env, "access", "token", *words)).strip()

        first, second = await token("--user", "ann"), await token("--user", "bob")
        watcher = await token("--user", "eve", "--scope", "watch")
        async with on_network(url, first) as ann:
            await ann("initialize", as_air())
            session_id = (await ann("session/new", opening(place.work)))["result"]["sessionId"]
            await ann("session/prompt", prompt(session_id, PROMPT))
            ids = {"sessionIds": [session_id]}
            [found] = (await ann("_session/batch_get", ids))["result"]["sessions"]
            assert PROMPT in found["title"]
            plain = introduction()
            for token_of, said in itertools.product((second, watcher), (plain, as_air())):
                async with on_network(url, token_of) as other:
                    await other("initialize", said)
                    answers = [
                        await other("_session/batch_get", ids),
                        await other("_session/list/subscribe", {"cwd": str(place.work)}),
                        await other("session/list", {}),
                        await other("session/status", {"sessionId": session_id}),
                        await other("_session/rename", {"sessionId": session_id, "title": "x"}),
                    ]
                    for secret in (PROMPT, str(place.work)):
                        assert secret not in json.dumps(answers)
                    assert [it.get("result", {}).get("sessions", []) for it in answers] == [[]] * 5


@asynccontextmanager
async def on_network(url: str, token: str) -> AsyncIterator[Callable[[str, Json], Awaitable[Json]]]:
    """A client of `serve`; it is called with a method and params, and returns the answer."""
    address = f"{url.replace('http', 'ws', 1)}/acp"
    headers = {"Authorization": f"Bearer {token}"}
    async with websockets.connect(address, additional_headers=headers) as socket:
        numbers = itertools.count()

        async def ask(method: str, params: Json) -> Json:
            number = next(numbers)
            asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            await socket.send(json.dumps(asked))
            async with asyncio.timeout(DEADLINE):
                while (answer := json.loads(await socket.recv())).get("id") != number:
                    pass
            found: Json = answer
            return found

        yield ask


async def test_the_title_that_opencode_makes_replaces_the_first_prompt(
    place: Place, model: ModelEndpoint
) -> None:
    env = OPENCODE.prepare(place.home, model.url)
    async with place.client(place.wrapped(OPENCODE.command()), **env) as client:
        session_id = await client.new_session(place.work)
        await client.call("session/prompt", prompt(session_id, PROMPT))

        def title() -> object:
            told = (it["title"] for it in client.updates(session_id) if it.get("title"))
            return [*told][-1:]

        # The stand-in for its model repeats what it is asked.
        await client.until(lambda: title() == [f"ECHO: {PROMPT}"])
        [listed] = (await client.call("session/list", {"cwd": str(place.work)}))["sessions"]
        assert listed["title"] == f"ECHO: {PROMPT}"
        await client.leave()
