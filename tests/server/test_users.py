"""Ownership and sharing of sessions: every method of the protocol, called by every user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import acphold
from acphold.journal.access import SCOPES, Scope, Share
from acphold.journal.stores import open_journal
from acphold.live.hub.session_list import ORIGINS
from tests.editor import allow
from tests.served import Caller
from tests.server.test_entrance import Calls, asked_of, calls as calls
from tests.watched_processes import until

READS: Final = ("session/load", "session/resume")
PROMPTS: Final = ("session/prompt", "session/set_mode", "session/set_config_option")

LEAVING: Final = ("session/archive", "session/unarchive")
ENDING: Final = ("session/close", "session/delete")

ASKED: Final = [
    method
    for method, params in asked_of("one").items()
    if "sessionId" in params and method not in (*LEAVING, *ENDING)
]
"""Methods that name a session, apart from LEAVING (away from the list) and ENDING (for all)."""


def desk() -> acphold.Agent:
    """An agent that repeats its prompts, and asks for permission on demand."""
    agent = acphold.Agent("desk", version="1.0")
    agent.mode("calm")
    agent.option("loud", default=False)

    @agent.method("_vault/peek")
    async def peek(params: dict[str, Any]) -> str:
        return agent.session(params["sessionId"]).tenant

    @agent.prompt
    async def tell(turn: acphold.Turn) -> None:
        if turn.text == "ask":
            await turn.say("yes" if await turn.ask_permission("may I?") else "no")
        else:
            await turn.say(f"for {turn.session.tenant}: {turn.text}")

    return agent


def person(name: str | None, *scopes: Scope) -> acphold.Principal:
    """The user of a connection over the network; None is the one who serves."""
    may = frozenset(scopes or SCOPES)
    return acphold.Principal(
        name=str(name), tenant=name, sees_all=name is None, scopes=may, is_here=False
    )


@asynccontextmanager
async def served(journal: Path) -> AsyncIterator[acphold.Server]:
    async with desk().server(journal=journal, unstable=True) as server:
        yield server


@pytest.fixture
async def server(journal: Path) -> AsyncIterator[acphold.Server]:
    async with served(journal) as found:
        yield found


async def share(journal: Path, session_id: str, user: str, *, prompts: bool = False) -> None:
    """As `acphold access share` does it."""
    opened = open_journal(journal)
    await opened.access.keep_share(Share(session_id, user, prompts))
    await opened.aclose()


async def outcome(caller: Caller, method: str, params: Any, session_id: str) -> str:
    """The outcome of a call: done, forbidden, or unknown, as for a session that does not exist."""
    answer = (await asyncio.wait([caller.begin(method, params)]))[0].pop()
    if (error := answer.exception()) is None:
        return "done"
    said = str(error)
    if f"no session '{session_id}'" in said:
        return "unknown"
    return "forbidden" if "in which the session is not shared with you" in said else said


def expected(method: str, whose: str) -> str:
    if whose in ("alice", "who serves"):
        return "done"
    if whose == "stranger":
        return "unknown"
    may = (*READS, *PROMPTS, "session/close") if whose == "may prompt" else READS
    return "done" if method in may else "forbidden"


EVERYBODY: Final = {
    "stranger": person("eve"),
    "may read": person("rita"),
    "may prompt": person("paul"),
    "who serves": person(None),
    "alice": person("alice"),
}


async def test_of_which_session_a_shared_one_was_made_is_told_to_its_owner_alone(
    journal: Path, calls: Calls, server: acphold.Server
) -> None:
    alice = await calls.to(server, person("alice"))
    session = await alice.talk("hello")
    forked = await alice.call("session/fork", asked_of(session)["session/fork"])
    copy = forked["sessionId"]
    await share(journal, copy, "rita")
    guest = acphold.Principal(name="guest", session_id=copy, is_here=False)
    told = {}
    for principal in (person("alice"), person(None), person("rita"), guest):
        rows = await (await calls.to(server, principal)).sessions()
        [row] = [it for it in rows if it["sessionId"] == copy]
        told[principal.name] = [it["sessionId"] for it in row["_meta"].get(ORIGINS, ())]
    assert told == {"alice": [session], "None": [session], "rita": [], "guest": []}


@pytest.mark.parametrize("place", ["here", "elsewhere"])
async def test_every_method_is_for_whose_the_session_is_and_for_others_as_far_as_it_is_shared(
    journal: Path, calls: Calls, place: str
) -> None:
    async with served(journal) as owner, served(journal) as other:
        alice = await calls.to(owner, person("alice"))
        server = owner if place == "here" else other
        session = await alice.talk("hello")
        await share(journal, session, "rita")
        await share(journal, session, "paul", prompts=True)
        found: dict[tuple[str, str], str] = {}
        for whose, principal in EVERYBODY.items():
            caller = await calls.to(server, principal)
            for method in ("session/load", *ASKED, *LEAVING):
                params = asked_of(session)[method]
                found[whose, method] = await outcome(caller, method, params, session)
            is_listed = session in {row["sessionId"] for row in await caller.sessions()}
            assert is_listed is (whose != "stranger")
            await caller.leave()
        for method in ENDING:
            for whose, principal in EVERYBODY.items():
                caller = await calls.to(server, principal)
                if whose != "stranger":
                    await caller.load(session)
                params = asked_of(session)[method]
                if expected(method, whose) != "done" or whose == "alice":
                    found[whose, method] = await outcome(caller, method, params, session)
                await caller.leave()
        assert found == {(whose, method): expected(method, whose) for whose, method in found}


async def test_who_may_only_read_is_asked_nothing_and_who_may_prompt_is(
    journal: Path, calls: Calls, server: acphold.Server
) -> None:
    alice = await calls.to(server, person("alice"))
    session = await alice.talk("hello")
    await share(journal, session, "rita")
    await share(journal, session, "paul", prompts=True)
    await alice.leave()
    rita = await calls.to(server, person("rita"))
    await rita.load(session)
    paul = await calls.to(server, person("paul"))
    await paul.load(session)
    await paul.prompt(session, "ask")
    assert paul.text().endswith("yes")
    assert "This client only watches" in rita.text()
    asked = [m for m in rita.messages if m.get("method") == "session/request_permission"]
    assert asked == []


async def test_a_share_permits_no_more_than_the_token(
    journal: Path, calls: Calls, server: acphold.Server
) -> None:
    alice = await calls.to(server, person("alice"))
    session = await alice.talk("hello")
    await share(journal, session, "paul", prompts=True)
    paul = await calls.to(server, person("paul", "watch"))
    await paul.load(session)
    error = await paul.refused("session/prompt", asked_of(session)["session/prompt"])
    assert "prompt" in error.message


async def test_who_may_only_read_does_not_archive_a_session_in_the_agents_own_list(
    journal: Path, calls: Calls, server: acphold.Server
) -> None:
    alice = await calls.to(server, person("alice"))
    session = await alice.talk("hello")
    await share(journal, session, "rita")
    rita = await calls.to(server, person("rita"))
    changed = {"sessionId": session, "archived": True}
    assert await outcome(rita, "_acphold/changed", changed, session) == "forbidden"
    assert await outcome(alice, "_acphold/changed", changed, session) == "done"


@pytest.mark.parametrize("left", ["nothing", "reading"])
@pytest.mark.parametrize("place", ["here", "elsewhere"])
async def test_who_has_a_session_open_that_is_shared_less_is_sent_away_and_hears_no_more(
    journal: Path, calls: Calls, place: str, left: str
) -> None:
    async with served(journal) as owner, served(journal) as other:
        alice = await calls.to(owner, person("alice"))
        session = await alice.talk("hello")
        await share(journal, session, "paul", prompts=True)
        paul = await calls.to(owner if place == "here" else other, person("paul"))
        await paul.load(session)
        opened = open_journal(journal)
        if left == "reading":
            await opened.access.keep_share(Share(session, "paul"))
        else:
            assert await opened.access.end_share(session, "paul")
            assert not await opened.access.end_share(session, "paul")
        await opened.aclose()
        await until(lambda: paul.is_over)
        heard = len(paul.messages)
        alice.answers["session/request_permission"] = allow
        await alice.prompt(session, "ask")
        assert alice.text().endswith("yes")
        assert len(paul.messages) == heard
        again = await calls.to(owner, person("paul"))
        if left == "reading":
            await again.load(session)
            return
        for method in ("session/prompt", "session/load"):
            error = await again.refused(method, asked_of(session)[method])
            assert f"no session '{session}'" in error.message
        assert await again.sessions() == []


async def test_what_the_person_at_the_machine_begins_is_there_for_nobody_else(
    calls: Calls, server: acphold.Server
) -> None:
    owner = await calls.to(server, person(None))
    session = await owner.talk("hello")
    alice = await calls.to(server, person("alice"))
    assert await alice.sessions() == []
    error = await alice.refused("session/load", asked_of(session)["session/load"])
    assert "no session" in error.message
