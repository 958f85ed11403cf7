"""An agent's process that is started again is told the terms before a session is opened in it."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acphold.errors import TermsDifferError
from acphold.live.agents import terms
from acphold.live.lines.line import OpenSession
from acphold.live.server.remote_sessions import RemoteSessions
from tests.editor import open_params, prompt_params, received
from tests.served import Guest, wrapped as served

GATEWAY = {"providerId": "main", "apiType": "anthropic", "baseUrl": "https://gw.example/canary"}
KEY = {"methodId": "gateway", "_meta": {"gateway": {"headers": {"x-key": "canary"}}}}
REFUSED = {"code": -32602, "message": "no such key: canary"}


def wrapped(
    journal: Path, log: Path, *accepts: str, **agent: Any
) -> AbstractAsyncContextManager[Guest]:
    """A client of an agent that can load, and accepts these methods."""
    agent["replies"] = {method: [{}] for method in accepts}
    agent["store"] = str(log.with_name("store"))
    return served(journal, log=str(log), capabilities={"loadSession": True}, **agent)


def starts(log: Path) -> list[list[str]]:
    """The methods that each process of the agent was asked."""
    found: list[list[str]] = []
    for message in received(log):
        if message["method"] == "initialize":
            found.append([])
        found[-1].append(message["method"])
    return found


async def kill_agent(client: Guest, session: str) -> None:
    """Have the agent end in a turn."""
    await client.refused("session/prompt", prompt_params(session, {"exit": 1}))


async def test_providers_and_a_sign_in_with_a_key_are_told_before_a_session_is_opened(
    journal: Path, log: Path
) -> None:
    async with wrapped(journal, log, "providers/set", "providers/disable") as client:
        await client.call("authenticate", KEY)
        await client.call("providers/set", GATEWAY | {"providerId": "other"})
        await client.call("providers/set", GATEWAY | {"apiType": "corrected later"})
        await client.call("providers/set", GATEWAY)
        await client.call("providers/disable", {"providerId": "other"})
        session = await client.talk({"say": "before"})
        await kill_agent(client, session)
        await client.prompt(session, {"say": "after"})
        told = ["providers/set", "providers/disable", "authenticate"]
        assert starts(log)[1] == ["initialize", *told, "session/load", "session/prompt"]
        again = [received(log, method)[-1]["params"] for method in told]
        assert again == [GATEWAY, {"providerId": "other"}, KEY]


async def test_a_provider_is_the_agents_even_if_the_request_names_a_session(
    journal: Path, log: Path
) -> None:
    async with wrapped(journal, log, "providers/set") as client:
        session = await client.talk({"say": "before"})
        await client.call("providers/set", {"sessionId": session, **GATEWAY})
        await kill_agent(client, session)
        await client.prompt(session, {"say": "after"})
        assert starts(log)[1][:2] == ["initialize", "providers/set"]


async def test_a_plain_sign_in_is_told_once_the_agent_asks_for_it(
    journal: Path, log: Path, tmp_path: Path
) -> None:
    signed_in = tmp_path / "signed in"
    async with wrapped(journal, log, sign_in=str(signed_in)) as client:
        await client.call("authenticate", {"methodId": "browser"})
        session = await client.talk({"say": "before"})
        await kill_agent(client, session)
        await client.prompt(session, {"say": "after"})
        assert "authenticate" not in starts(log)[1]
        await kill_agent(client, session)
        signed_in.unlink()
        await client.prompt(session, {"say": "after"})
        opened = ["session/load", "authenticate", "session/load", "session/prompt"]
        assert starts(log)[2] == ["initialize", *opened]


async def test_nothing_is_told_after_the_person_has_logged_out(journal: Path, log: Path) -> None:
    async with wrapped(journal, log, "logout") as client:
        await client.call("authenticate", KEY)
        await client.call("logout", {})
        session = await client.talk({"say": "before"})
        await kill_agent(client, session)
        await client.prompt(session, {"say": "after"})
        assert starts(log)[1] == ["initialize", "session/load", "session/prompt"]


@pytest.mark.parametrize(
    ("method", "params", "says", "code"),
    [
        ("authenticate", KEY, "the sign-in “gateway” again", -32000),
        ("providers/set", GATEWAY, "the provider “main” again", -32603),
    ],
)
async def test_nothing_is_prompted_while_they_are_not_accepted_but_a_load_shows_the_history(
    journal: Path,
    log: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    method: str,
    params: dict[str, Any],
    says: str,
    code: int,
) -> None:
    refuses = tmp_path / "refuses"
    agent = {"refuses": {method: [str(refuses), REFUSED]}}
    with caplog.at_level(logging.DEBUG):
        async with wrapped(journal, log, method, **agent) as client:
            await client.call(method, params)
            session = await client.talk({"say": "before"})
            refuses.touch()
            await kill_agent(client, session)
            error = await client.refused("session/prompt", prompt_params(session, {"say": "no"}))
            assert error.code == code
            assert says in error.message
            assert "canary" not in error.message
            before = len(client.messages)
            await client.call("session/load", open_params(session, "/"))
            assert "before" in json.dumps(client.messages[before:])
            new = await client.refused("session/new", {"cwd": "/", "mcpServers": []})
            assert says in new.message
            assert {*starts(log)[1]} == {"initialize", method}
            refuses.unlink()
            await client.call(method, params)
            await client.prompt(session, {"say": "after"})
            assert starts(log)[1][-2:] == ["session/load", "session/prompt"]
    assert "canary" not in caplog.text


async def test_an_agent_that_does_not_answer_is_waited_for_for_seconds(
    journal: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "TERMS_SECONDS", 0.1)
    silent = tmp_path / "silent"
    agent = {"refuses": {"authenticate": [str(silent), None]}}
    async with wrapped(journal, log, **agent) as client:
        await client.call("authenticate", KEY)
        session = await client.talk({"say": "before"})
        silent.touch()
        await kill_agent(client, session)
        error = await client.refused("session/prompt", prompt_params(session, {"say": "no"}))
        assert "sign in again" in error.message
        silent.unlink()
        await client.prompt(session, {"say": "after"})  # it is told with the next prompt


async def test_a_session_of_another_process_does_not_move_and_the_refusal_says_so(
    journal: Path, log: Path
) -> None:
    async with (
        wrapped(journal, log, "providers/set") as one,
        wrapped(journal, log.with_name("two.log"), "providers/set") as two,
    ):
        session = await one.talk({"say": "before"})
        await two.call("session/load", open_params(session, "/"))
        await two.prompt(session, {"say": "joined"})
        await two.call("providers/set", GATEWAY)
        words = prompt_params(session, {"say": "no"})
        add = {"sessionId": session, "change": {"do": "add", "prompt": words["prompt"]}}
        for method, params in (
            ("session/prompt", words),
            ("_session/steering", words),
            ("_acphold/queue", add),
            ("_vendor/unknown", {"sessionId": session}),
        ):
            error = await two.refused(method, params)
            assert "in another process" in error.message, method
            assert "close it there, then load it here" in error.message
        two.tell("_session/steering", words)
        await two.call("_acphold/queue", {"sessionId": session})  # to look is no word
        await two.call("providers/set", {"sessionId": session, **GATEWAY})
        assert not received(log, "providers/set")  # it is about no session
        assert not received(log, "_session/steering")


async def test_in_a_session_that_is_followed_words_are_refused_before_its_owner_is_known() -> None:
    async def find(_: str) -> None:
        await asyncio.Event().wait()

    hub = SimpleNamespace(journal=SimpleNamespace(owner=find, session=find))
    offer, chosen = (
        SimpleNamespace(is_line=False),
        {"its": SimpleNamespace(label="another account")},
    )
    client = SimpleNamespace(offer=offer, terms=chosen)
    remote = RemoteSessions(cast("Any", hub), cast("Any", client), 1 << 20, cast("Any", None))
    remote.follow("s", OpenSession(b"{}", 0, None), "its")
    with pytest.raises(TermsDifferError):
        remote.tell("s", "_session/steering", b"{}")
    await remote.aclose()
