"""The methods that are not part of the protocol yet: offered only on request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from acphold.errors import FORBIDDEN, RemoteError
from acphold.journal.access import Scope
from acphold.journal.journal import state_of
from acphold.live.server.principals import Principal
from tests.conftest import Defaults
from tests.editor import received
from tests.hub.shared import Onlooker, Shared, shared
from tests.npm import installed
from tests.owners import program

PACKAGE = "@agentclientprotocol/sdk@2.4.0"

UNSTABLE = {"fork", "archive", "title", "status"}

THEIRS = {
    "sessionId": "theirs",
    "cwd": "/w",
    "title": "Theirs",
    "updatedAt": "2026-01-31T12:00:00Z",
}


@cache
def official() -> dict[str, Any]:
    """The schema with its unstable parts, as its authors publish it."""
    folder = installed(PACKAGE) / "node_modules" / "@agentclientprotocol" / "sdk"
    schema: dict[str, Any] = json.loads((folder / "schema/v1/schema.unstable.json").read_bytes())
    return schema


def valid(kind: str, value: Any) -> Any:
    """Return `value`, checked as a `kind` of the official schema."""
    schema = {"$ref": f"#/$defs/{kind}", "$defs": official()["$defs"]}
    Draft202012Validator(schema).validate(value)
    return value


@asynccontextmanager
async def offering(journal: Path, **how: Any) -> AsyncIterator[tuple[Shared, Onlooker]]:
    """A hub that offers them, and a client of it."""
    async with shared(journal, **how) as house:
        house.unstable = True
        yield house, await house.client()


async def listed(client: Onlooker, **asked: Any) -> dict[str, dict[str, Any]]:
    found = await client.sessions(**asked)
    for info in found:
        valid("SessionInfo", info)
    return {info["sessionId"]: info for info in found}


def titles(client: Onlooker) -> list[str]:
    return [u["title"] for u in client.updates() if u["sessionUpdate"] == "session_info_update"]


# -- offered or not --------------------------------------------------------------------------------


async def test_a_fork_that_the_agent_offers_itself_is_offered_and_journalled(
    journal: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    forks: dict[str, Any] = {"sessionCapabilities": {"fork": {"_meta": {"own": 1}}}}
    replies = {"session/fork": [{"sessionId": "forked"}]}
    async with program(journal, capabilities=forks, replies=replies, log=str(log)) as client:
        answer = next(m["result"] for m in client.messages if m.get("id") == 1)
        assert answer["agentCapabilities"]["sessionCapabilities"]["fork"] == {"_meta": {"own": 1}}
        session = await client.talk("Hello")
        asked = valid("ForkSessionRequest", {"sessionId": session, "cwd": "/", "mcpServers": []})
        made = valid("ForkSessionResponse", await client.call("session/fork", asked))["sessionId"]
        assert made != session
        await client.prompt(made, {"say": "in the fork"})
        # The agent has the conversation from its own fork: it is handed nothing.
        [forked] = received(log, "session/fork")
        assert forked["params"]["sessionId"] == session
        [_, prompt] = received(log, "session/prompt")
        assert prompt["params"]["sessionId"] == "forked"
        assert len(prompt["params"]["prompt"]) == 1
    async with program(journal) as client:
        assert {info["sessionId"] for info in await client.sessions()} == {session, made}
        await client.load(made)
        assert "Hello" in client.text("user_message_chunk", made)
        assert "in the fork" in client.text(session_id=made)


async def test_an_agent_that_can_forks_a_session_in_which_nothing_is_finished(
    house: Shared,
) -> None:
    house.agent.can_fork = True
    house.agent.results["session/fork"] = b'{"sessionId":"forked"}'
    client, session, running = await house.in_turn("one")
    asked = {"sessionId": session, "cwd": "/", "mcpServers": []}
    assert (await client.call("session/fork", asked))["sessionId"] == "forked"
    assert [
        params["sessionId"] for method, params in house.agent.asked if (method == "session/fork")
    ] == [session]
    await house.turn(client, "forked", "two", "TWO")
    await house.ended(session, running)


async def test_no_agent_makes_a_fork_for_who_may_not_prompt(house: Shared) -> None:
    house.agent.can_fork = True
    _client, session, running = await house.in_turn("one")
    may = frozenset[Scope](("watch", "manage"))
    keeper = house.stranger(Principal(name="keeper", sees_all=True, scopes=may))
    await keeper.introduce(None, {})
    asked = {"sessionId": session, "cwd": "/", "mcpServers": []}
    assert (await keeper.refused("session/fork", asked)).code == FORBIDDEN
    assert "session/fork" not in [method for method, _ in house.agent.asked]
    await house.ended(session, running)


@pytest.mark.parametrize("is_unstable", [False, True])
async def test_the_methods_are_answered_always_and_offered_with_the_option(
    journal: Path, is_unstable: bool, defaults: Defaults
) -> None:
    defaults(unstable=is_unstable)
    async with program(journal) as client:
        answer = next(m["result"] for m in client.messages if m.get("id") == 1)
        told = valid("InitializeResponse", answer)["agentCapabilities"]["sessionCapabilities"]
        assert told.keys() & UNSTABLE == (UNSTABLE if is_unstable else set())
        session = await client.talk("Hello")
        [info] = await client.sessions()
        assert ("archived" in info) == is_unstable
        assert await client.call("session/archive", {"sessionId": session}) == {}
        [info] = await client.sessions(archived="only")
        assert info["archived"]


# -- status ----------------------------------------------------------------------------------------


async def test_a_session_is_open_or_saved_wherever_it_is_and_asking_changes_nothing(
    journal: Path,
) -> None:
    async with offering(journal) as (house, client):
        house.agent.can("list")
        house.agent.lists = [THEIRS]
        session = await client.new()
        other = await house.client()
        asked = {"sessionId": session}
        answer = valid("SessionStatusResponse", await other.call("session/status", asked))
        assert answer == {"status": "open"}
        await house.turn(client, session, "one", "ONE")
        await client.call("session/close", asked)
        assert await other.call("session/status", asked) == {"status": "saved"}
        assert await other.call("session/status", {"sessionId": "theirs"}) == {"status": "saved"}
        assert not house.hub.live
        error = await other.refused("session/status", {"sessionId": "nobody's"})
        assert (error.code, error.data) == (-32002, {"sessionId": "nobody's"})


# -- titles ----------------------------------------------------------------------------------------


async def test_a_title_is_set_told_to_all_who_have_the_session_and_listed(journal: Path) -> None:
    async with offering(journal) as (house, client):
        other = await house.client()
        session = await client.new()
        await house.turn(client, session, "one", "ONE")
        await other.load(session)
        asked = valid("SetSessionTitleRequest", {"sessionId": session, "title": "  My\nown "})
        answer = await client.call("session/set_title", asked)
        assert valid("SetSessionTitleResponse", answer) == {"title": "My own"}
        await client.until(lambda: titles(client)[-1:] == ["My own"])
        await other.until(lambda: titles(other)[-1:] == ["My own"])
        assert (await listed(client))[session]["title"] == "My own"


async def test_a_title_without_a_word_is_refused(journal: Path) -> None:
    async with offering(journal) as (_, client):
        asked = {"sessionId": await client.new()}
        for title in ("", " \n ", "…", None, 7):
            error = await client.refused("session/set_title", {**asked, "title": title})
            assert (error.code, "title" in error.message) == (-32602, True)


async def test_a_session_that_only_the_agent_has_is_kept_here_with_its_new_title(
    journal: Path,
) -> None:
    async with offering(journal) as (house, client):
        house.agent.can("load", "list")
        house.agent.lists = [dict(THEIRS)]
        assert (await listed(client))["theirs"]["title"] == "Theirs"
        await client.call("session/set_title", {"sessionId": "theirs", "title": "Mine"})
        found = await listed(client)
        assert {key: info["title"] for key, info in found.items()} == {"theirs": "Mine"}


# -- tags and pins: not of a draft, but ours --


async def test_tags_and_pins_are_in_the_list_of_every_client(house: Shared) -> None:
    client, session = await house.talked("one", "ONE")
    asked = {"sessionId": session, "tags": ["#Later", "v1.2", "later"], "pinned": True}
    answer = await client.call("_acphold/mark", asked)
    assert answer == {"tags": ["later", "v1.2"], "pinned": True}
    meta = (await listed(await house.client()))[session]["_meta"]
    assert (meta["acphold/tags"], meta["acphold/pinned"]) == (["later", "v1.2"], True)
    answer = await client.call("_acphold/mark", {"sessionId": session, "pinned": False})
    assert answer == {"tags": ["later", "v1.2"], "pinned": False}
    assert "acphold/pinned" not in (await listed(client))[session]["_meta"]


async def test_a_word_that_is_no_tag_is_refused_and_changes_nothing(house: Shared) -> None:
    client, session = await house.talked("one", "ONE")
    for tags in (["50%"], ["-x"], ["x" * 33], [""], 7, [7], [*"abcdefghijklmnopq"]):
        error = await client.refused("_acphold/mark", {"sessionId": session, "tags": tags})
        assert error.code == -32602
        assert "acphold/tags" not in (await listed(client))[session]["_meta"]


# -- archive ---------------------------------------------------------------------------------------


async def test_an_archived_session_is_closed_and_listed_only_by_the_filter(journal: Path) -> None:
    async with offering(journal) as (house, client):
        house.agent.can("list")
        house.agent.lists = [dict(THEIRS)]
        session, kept = await client.new(), await client.new()
        await house.turn(client, session, "one", "ONE")
        await house.turn(client, kept, "two", "TWO")
        asked = valid("ArchiveSessionRequest", {"sessionId": session})
        assert valid("ArchiveSessionResponse", await client.call("session/archive", asked)) == {}
        assert (await client.refused("session/prompt", {"sessionId": session, "prompt": []})).code
        filters: dict[str, dict[str, Any]] = {
            "default": {},
            "exclude": {"archived": "exclude"},
            "null": {"archived": None},
            "only": {"archived": "only"},
            "include": {"archived": "include"},
        }
        states = {
            name: {key: info["archived"] for key, info in (await listed(client, **chosen)).items()}
            for name, chosen in filters.items()
        }
        shown = {kept: False, "theirs": False}
        assert states["default"] == states["exclude"] == states["null"] == shown
        assert states["only"] == {session: True}
        assert states["include"] == {**shown, session: True}
        for _ in range(2):  # repeating it is no error
            await client.call("session/unarchive", asked)
        assert (await listed(client)).keys() == {session, kept, "theirs"}
        await client.load(session)  # with the same id and its history
        assert "ONE" in client.text(session_id=session)


async def test_a_running_turn_is_cancelled_by_the_archive(journal: Path) -> None:
    async with offering(journal) as (house, client):
        session = await client.new()
        running = await house.begun(client, session, "one")
        await client.call("session/archive", {"sessionId": session})
        assert await running == {"stopReason": "cancelled"}


async def test_a_filter_that_is_not_known_is_refused(journal: Path) -> None:
    async with offering(journal) as (_, client):
        error = await client.refused("session/list", {"archived": "some"})
        assert error.code == -32602
        assert "exclude, include, only" in error.message


async def test_a_session_that_does_not_exist_is_refused_as_that(journal: Path) -> None:
    async with offering(journal) as (_, client):
        params = {"sessionId": "nobody", "title": "T", "cwd": "/", "mcpServers": []}
        for method in ("fork", "set_title", "archive", "unarchive"):
            assert (await client.refused(f"session/{method}", params)).code == -32002


# -- fork ------------------------------------------------------------------------------------------


async def test_a_fork_is_open_and_goes_on_by_itself(journal: Path) -> None:
    async with offering(journal) as (house, client):
        session = await client.new()
        await house.turn(client, session, "one", "ONE")
        asked = valid("ForkSessionRequest", {"sessionId": session, "cwd": "/", "mcpServers": []})
        answer = valid("ForkSessionResponse", await client.call("session/fork", asked))
        made = answer["sessionId"]
        assert made != session
        assert client.text(session_id=made) == ""  # nothing is replayed
        await house.turn(client, made, "two", "TWO", own="s1")
        assert client.text(session_id=made).endswith("TWO")
        [context, _] = [p for m, p in house.agent.asked if m == "session/prompt"][-1]["prompt"]
        assert "User: one" in context["text"]
        assert (await listed(client)).keys() == {session, made}


async def test_a_fork_goes_to_the_place_that_is_named_and_lives_in_the_folder_that_is_named(
    journal: Path,
) -> None:
    async with offering(journal) as (house, client):
        session = await client.new()
        for text in ("one", "two"):
            await house.turn(client, session, text, text.upper())
        params = {"sessionId": session, "cwd": "/tmp", "_meta": {"acphold/at": 3}}
        made = (await client.call("session/fork", params))["sessionId"]
        state = await state_of(house.journal, made)
        assert "two" not in str(state.timeline)
        info = (await listed(client))[made]
        assert info["cwd"] == "/tmp"
        assert info["_meta"]["acphold/origins"][0]["sessionId"] == session


async def test_what_is_no_fork_is_refused_and_leaves_nothing(journal: Path) -> None:
    async with offering(journal) as (house, client):
        session = await client.new()
        await house.turn(client, session, "one", "ONE")
        wrong: tuple[dict[str, Any], ...] = (
            {"cwd": "relative"},
            {"cwd": None},
            *({"_meta": {"acphold/at": at}} for at in ("x", 0, True)),
            {"sessionId": 1},
        )
        for changed in wrong:
            params = {"sessionId": session, "cwd": "/", **changed}
            assert (await client.refused("session/fork", params)).code == -32602
            assert (await listed(client)).keys() == {session}


async def test_nothing_is_left_of_a_fork_for_which_the_person_has_to_sign_in(
    journal: Path,
) -> None:
    async with offering(journal) as (house, client):
        session = await client.new()
        await house.turn(client, session, "one", "ONE")
        house.agent.can_fork = True
        house.agent.results["session/fork"] = RemoteError(-32000, "sign in first")
        error = await client.refused("session/fork", {"sessionId": session, "cwd": "/"})
        assert error.code == -32000
        assert (await listed(client, archived="include")).keys() == {session}
