"""Nothing is answered on a connection before its client is known."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import acphold
from acp_wire.rpc import Transport
from acp_wire.transports.streams import memory_pair
from acphold.machine import unix
from acphold.machine.runtime_folder import sockets
from tests.editor import DEADLINE, Refused, open_params
from tests.served import Caller

SIGN_IN = -32000


class Calls:
    """The clients of a test, each introduced."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._callers: list[Caller] = []

    async def to(
        self, server: acphold.Server, principal: acphold.Principal | None = None
    ) -> Caller:
        """A client in memory; with `principal`, the server knows it already."""
        near, far = memory_pair()
        self._tasks.create_task(server.attend(far, principal=principal))
        return await self.over(near)

    async def over(self, transport: Transport) -> Caller:
        """A client with this end of a connection."""
        caller = Caller(transport)
        self._callers.append(caller)
        self._tasks.create_task(caller.read())
        await caller.initialize()
        return caller

    async def leave(self) -> None:
        for caller in self._callers:
            await caller.leave()


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    async with asyncio.TaskGroup() as tasks:
        made = Calls(tasks)
        yield made
        await made.leave()


def vault() -> acphold.Agent:
    """An agent that wants a sign-in, and tells all it knows."""
    agent = acphold.Agent("vault", version="1.0")
    agent.mode("calm")
    agent.option("loud", default=False)

    @agent.auth("key", "Key")
    async def sign_in(visitor: acphold.Visitor) -> None:
        if visitor.meta.get("key") != "right":
            raise acphold.AuthRequiredError("that is not the key")

    @agent.on_logout
    async def sign_out(visitor: acphold.Visitor) -> None:
        pass

    @agent.method("_vault/peek")
    async def peek(params: dict[str, Any]) -> str:
        return "gold"

    @agent.prompt
    async def tell(turn: acphold.Turn) -> None:
        await turn.say(f"the secret of {turn.text}")
        if turn.text == "wait":
            await asyncio.Event().wait()

    return agent


@asynccontextmanager
async def served(journal: Path) -> AsyncIterator[acphold.Server]:
    async with vault().server(journal=journal, unstable=True) as server:
        yield server


@pytest.fixture
async def server(journal: Path) -> AsyncIterator[acphold.Server]:
    async with served(journal) as found:
        yield found


async def sign_in(caller: Caller) -> Caller:
    await caller.call("authenticate", {"methodId": "key", "_meta": {"key": "right"}})
    return caller


def asked_of(session: str) -> dict[str, dict[str, Any]]:
    """Everything one can ask about a session of somebody else."""
    of = {"sessionId": session}
    return {
        "session/new": {"cwd": "/", "mcpServers": []},
        "session/list": {},
        "session/load": open_params(session, "/"),
        "session/resume": open_params(session, "/"),
        "session/fork": open_params(session, "/"),
        "session/prompt": of | {"prompt": [{"type": "text", "text": "hello"}]},
        "session/set_mode": of | {"modeId": "calm"},
        "session/set_config_option": of | {"configId": "loud", "type": "boolean", "value": True},
        "session/set_title": of | {"title": "mine"},
        "session/archive": of,
        "session/unarchive": of,
        "session/status": of,
        "session/close": of,
        "session/delete": of,
        "logout": {},
        "_vault/peek": of,
        "_acphold/presence": {},
        "_acphold/changed": of,
        "_acphold/signedIn": {},
    }


async def test_who_has_not_signed_in_gets_no_answer_but_that(
    calls: Calls, server: acphold.Server
) -> None:
    owner = await sign_in(await calls.to(server))
    session = await owner.talk("gold")
    turn = owner.begin_prompt(session, "wait")
    stranger = await calls.to(server)
    for method, params in asked_of(session).items():
        assert (await stranger.refused(method, params)).code == SIGN_IN, method
    stranger.tell("session/cancel", {"sessionId": session})
    await stranger.refused("session/list")  # comes behind the cancel
    assert not turn.done()
    assert stranger.updates() == []
    owner.tell("session/cancel", {"sessionId": session})
    assert await turn == {"stopReason": "cancelled"}


async def test_nobody_signed_in_reaches_what_is_for_processes_of_ours_at_an_owner_elsewhere(
    journal: Path, calls: Calls
) -> None:
    async with served(journal) as one, served(journal) as other:
        owner = await sign_in(await calls.to(one))
        session = await owner.talk("gold")
        client = await sign_in(await calls.to(other))
        await client.load(session)
        await client.prompt(session, "silver")
        await owner.until_text("the secret of silver")  # the session is with the other server
        for name in ("presence", "changed", "signedIn", "stop"):
            refused = await client.refused(f"_acphold/{name}", {"sessionId": session})
            assert refused.code == -32601, name
        await owner.prompt(session, "copper")
        await client.until_text("the secret of copper")


async def test_a_wrong_sign_in_leaves_the_door_shut(calls: Calls, server: acphold.Server) -> None:
    stranger = await calls.to(server)
    wrong = {"methodId": "key", "_meta": {"key": "wrong"}}
    assert (await stranger.refused("authenticate", wrong)).message == "that is not the key"
    assert (await stranger.refused("session/list")).code == SIGN_IN


async def test_a_logout_takes_everything_that_was_open_away(
    calls: Calls, server: acphold.Server
) -> None:
    one, other = [await sign_in(await calls.to(server)) for _ in range(2)]
    session = await one.talk("gold")
    await other.load(session)
    await other.call("logout")
    said = len(other.updates())
    await one.prompt(session, "silver")
    assert (await other.refused("session/list")).code == SIGN_IN
    await sign_in(other)
    error = await other.refused("session/set_mode", {"sessionId": session, "modeId": "calm"})
    assert "not attached" in error.message or "not open" in error.message
    assert len(other.updates()) == said


async def test_a_client_of_the_unix_socket_signs_in_like_any_other(
    journal: Path, calls: Calls
) -> None:
    before = set(sockets())
    async with served(journal) as server:
        owner = await sign_in(await calls.to(server))
        session = await owner.talk("gold")
        [path] = set(sockets()) - before
        stranger = await calls.over(await unix.connect(path, 10.0))
        for method in ("session/list", "session/load", "session/prompt"):
            error = await stranger.refused(method, asked_of(session)[method])
            assert error.code == SIGN_IN, method
        await stranger.leave()


async def test_a_client_of_no_process_of_ours_vouches_for_nobody(
    calls: Calls, server: acphold.Server
) -> None:
    near, far = memory_pair()
    attending = asyncio.create_task(server.attend(far))
    liar = Caller(near)
    reading = asyncio.create_task(liar.read())
    await liar.initialize(_meta={"acphold/line": True, "acphold/tenant": None})
    assert (await liar.refused("session/list")).code == SIGN_IN
    await liar.leave()
    await asyncio.wait([attending, reading])


async def test_what_comes_while_it_is_found_out_who_is_there_keeps_its_order(
    journal: Path, calls: Calls
) -> None:
    agent = vault()
    may_say = asyncio.Event()

    @agent.signed_in
    async def signed_in(visitor: acphold.Visitor) -> bool:
        await may_say.wait()
        return True

    async with agent.server(journal=journal) as server:
        first = await calls.to(server)
        may_say.set()
        session = await first.talk("gold")
        may_say.clear()
        second = await calls.to(server)
        loading = second.begin("session/load", open_params(session, "/"))
        turn = second.begin_prompt(session, "wait")
        second.tell("session/cancel", {"sessionId": session})
        may_say.set()
        assert await loading
        assert await turn == {"stopReason": "cancelled"}


def shop() -> acphold.Agent:
    """An agent of tenants, which sign in by their names."""
    agent = acphold.Agent("shop", version="1.0")
    agent.mode("calm")
    agent.option("loud", default=False)

    @agent.auth("name", "Name")
    async def sign_in(visitor: acphold.Visitor) -> str | None:
        return str(visitor.meta["name"]) or None

    @agent.method("_vault/peek")
    async def peek(params: dict[str, Any]) -> str:
        return agent.session(params["sessionId"]).tenant

    @agent.prompt
    async def tell(turn: acphold.Turn) -> None:
        await turn.say(f"for {turn.session.tenant}: {turn.text}")
        if turn.text == "wait":
            await asyncio.Event().wait()

    return agent


async def as_tenant(caller: Caller, name: str) -> Caller:
    await caller.call("authenticate", {"methodId": "name", "_meta": {"name": name}})
    return caller


async def test_sessions_of_another_tenant_are_as_if_they_were_not_there(
    journal: Path, calls: Calls
) -> None:
    async with shop().server(journal=journal, unstable=True) as server:
        acme = await as_tenant(await calls.to(server), "acme")
        session = await acme.talk("gold")
        kept = await acme.talk("silver")
        await acme.call("session/close", {"sessionId": kept})  # not live any more
        turn = acme.begin_prompt(session, "wait")
        for name in ("globex", ""):
            other = await as_tenant(await calls.to(server), name)
            assert await other.sessions() == []
            for id_ in (session, kept):
                missing = asked_of("missing")
                for method, params in asked_of(id_).items():
                    if method in ("session/new", "session/list") or "sessionId" not in params:
                        continue
                    error = await other.refused(method, params)
                    as_missing = await other.refused(method, missing[method])
                    assert str(error) == str(as_missing).replace("missing", id_), method
                other.tell("session/cancel", {"sessionId": id_})
            assert len(await other.sessions()) == 0
            assert other.updates() == []
        assert not turn.done()
        acme.tell("session/cancel", {"sessionId": session})
        assert await turn == {"stopReason": "cancelled"}
        assert {row["sessionId"] for row in await acme.sessions()} == {session, kept}


async def test_what_an_author_asks_while_a_session_opens_is_for_who_opens_it_alone(
    journal: Path, calls: Calls
) -> None:
    agent, opening = shop(), asyncio.Barrier(2)

    @agent.on_new
    async def greet(session: acphold.Session) -> None:
        await opening.wait()  # both are under way
        await session.notify("_shop/greeting", {"whose": session.tenant})
        session.scratch["answered"] = await session.call("_shop/asked", {"whose": session.tenant})

    @agent.method("_shop/answered")
    async def answered(params: dict[str, Any]) -> Any:
        return agent.session(params["sessionId"]).scratch["answered"]

    def answer_as(name: str, _: dict[str, Any]) -> str:
        return f"of {name}"

    async with agent.server(journal=journal) as server:
        callers = {}
        for name in ("acme", "globex"):
            callers[name] = caller = await as_tenant(await calls.to(server), name)
            caller.answers["_shop/asked"] = partial(answer_as, name)
        made = await asyncio.gather(*(caller.new() for caller in callers.values()))
        for (name, caller), session in zip(callers.items(), made, strict=True):
            told = [m for m in caller.messages if m.get("method", "").startswith("_shop/")]
            assert [m["method"] for m in told] == ["_shop/greeting", "_shop/asked"]
            assert {m["params"]["whose"] for m in told} == {name}
            answer = await caller.call("_shop/answered", {"sessionId": session})
            assert answer == f"of {name}"


async def test_everybody_of_a_tenant_has_its_sessions_and_an_author_learns_whose_they_are(
    journal: Path, calls: Calls
) -> None:
    async with shop().server(journal=journal, unstable=True) as server:
        one, other = [await as_tenant(await calls.to(server), "acme") for _ in range(2)]
        session = await one.talk("gold")
        await other.load(session)
        await other.prompt(session, "silver")
        assert one.text() == "for acme: goldfor acme: silver"
        forked = (await other.call("session/fork", open_params(session, "/")))["sessionId"]
        assert await other.call("_vault/peek", {"sessionId": forked}) == "acme"
    async with shop().server(journal=journal) as server:
        again = await as_tenant(await calls.to(server), "acme")
        assert {row["sessionId"] for row in await again.sessions()} == {session, forked}
        await again.load(session)
        await again.prompt(session, "copper")
        assert again.text().endswith("for acme: copper")


def users(caller: Caller) -> list[str | None]:
    """The users that a client was told of, one for each prompt."""
    prompts = [it for it in caller.updates() if it["sessionUpdate"] == "user_message_chunk"]
    return [it.get("_meta", {}).get("acphold/client", {}).get("user") for it in prompts]


async def test_no_client_says_itself_whose_a_session_is(journal: Path, calls: Calls) -> None:
    async with shop().server(journal=journal) as server:
        globex = await as_tenant(await calls.to(server), "globex")
        session = await globex.new(_meta={"acphold/tenant": "acme"})
        assert await globex.call("_vault/peek", {"sessionId": session}) == "globex"


async def test_a_tenant_is_the_same_in_every_process_of_the_journal(
    journal: Path, calls: Calls
) -> None:
    async with shop().server(journal=journal) as here, shop().server(journal=journal) as there:
        acme = await as_tenant(await calls.to(here), "acme")
        session = await acme.talk("gold")
        globex = await as_tenant(await calls.to(there), "globex")
        error = await globex.refused("session/load", open_params(session, "/"))
        assert "no session" in error.message
        friend = await as_tenant(await calls.to(there), "acme")
        await friend.load(session)
        await friend.prompt(session, "silver")
        assert "for acme: silver" in acme.text()
        assert users(acme) == users(friend) == ["acme"]


async def test_who_signs_in_as_somebody_else_has_nothing_open_of_before(
    journal: Path, calls: Calls
) -> None:
    async with shop().server(journal=journal) as server:
        acme = await as_tenant(await calls.to(server), "acme")
        session = await acme.talk("gold")
        turncoat = await as_tenant(await calls.to(server), "acme")
        await turncoat.load(session)
        await as_tenant(turncoat, "globex")
        said = len(turncoat.updates())
        await acme.prompt(session, "silver")
        assert await turncoat.sessions() == []
        assert len(turncoat.updates()) == said


async def test_who_comes_with_a_tenant_need_not_sign_in(journal: Path, calls: Calls) -> None:
    async with shop().server(journal=journal) as server:
        acme = await as_tenant(await calls.to(server), "acme")
        session = await acme.talk("gold")
        near, far = memory_pair()
        known = acphold.Principal(name="ann", tenant="acme")
        attending = asyncio.create_task(server.attend(far, principal=known))
        ann = await calls.over(near)
        assert [row["sessionId"] for row in await ann.sessions()] == [session]
        await ann.leave()
        await attending


class Tools:
    """The MCP server `tools` that a client provides; it tells whose it is, and that it begins."""

    def __init__(self, client: Caller, owner: str) -> None:
        self._client = client
        self._owner = owner
        client.answers["mcp/message"] = self.answer

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["serverId"] == "tools"
        match asked["method"]:
            case "initialize":
                offers: dict[str, Any] = {"tools": {}}
                version = asked["params"]["protocolVersion"]
                info = {"name": "tools", "version": "1"}
                told = {"protocolVersion": version, "capabilities": offers, "serverInfo": info}
                return {"result": told}
            case "tools/list":
                tool = {"name": "whose", "inputSchema": {"type": "object"}}
                return {"result": {"tools": [tool]}}
        token = asked["params"]["_meta"]["progressToken"]
        said = {
            "serverId": "tools",
            "requestId": asked["requestId"],
            "method": "notifications/progress",
            "params": {"progressToken": token, "progress": 1, "message": f"{self._owner} begins"},
        }
        self._client.tell("mcp/message", said)
        return {"result": {"content": [{"type": "text", "text": f"tools of {self._owner}"}]}}


async def test_what_tenants_call_alike_are_servers_of_their_own(
    journal: Path, calls: Calls
) -> None:
    agent = acphold.Agent("workshop", version="1.0")

    @agent.auth("name", "Name")
    async def sign_in(visitor: acphold.Visitor) -> str:
        return str(visitor.meta["name"])

    @agent.prompt
    async def tell(turn: acphold.Turn) -> None:
        await turn.say((await turn.mcp.call("tools", "whose", {})).text)

    async with agent.server(journal=journal) as served:
        sessions = []
        for tenant in ("acme", "globex"):
            client = await as_tenant(await calls.to(served), tenant)
            Tools(client, tenant)
            server = {"type": "acp", "name": "tools", "serverId": "tools"}
            sessions.append((tenant, client, await client.new(mcpServers=[server])))
        for tenant, client, session in sessions:
            await client.prompt(session, "whose")
            assert f"tools of {tenant}" in client.text()
            assert f"{tenant} begins" in json.dumps(client.updates())


def desk() -> acphold.Agent:
    """An agent without sign-in: an author's server knows its clients."""
    agent = acphold.Agent("desk", version="1.0")

    @agent.method("_desk/history")
    async def history(params: dict[str, Any]) -> str:
        return str(await agent.session(params["sessionId"]).history())

    @agent.notification("_desk/note")
    async def note(params: dict[str, Any]) -> None:
        await agent.session(params["sessionId"]).notice("noted")

    @agent.prompt
    async def tell(turn: acphold.Turn) -> None:
        await turn.say(f"the secret of {turn.text}")

    return agent


ANN = acphold.Principal(name="ann", tenant="ann")
BOB = acphold.Principal(name="bob", tenant="bob")


async def test_who_has_a_part_of_the_sessions_hears_what_goes_on_in_that_part_alone(
    journal: Path, calls: Calls
) -> None:
    async with desk().server(journal=journal) as server:
        ann = await calls.to(server, ANN)
        first, second = await ann.talk("gold"), await ann.talk("silver")
        guest = acphold.Principal(name="a guest", session_id=first)
        parts = {BOB: set(), guest: {first}, ANN: {first, second}}
        for principal, ids in parts.items():
            caller = await calls.to(server, principal)
            told = await caller.call("_acphold/presence")
            assert {it["sessionId"] for it in told["sessions"]} == ids, principal.name


@pytest.mark.parametrize("limit", [{"tenant": "bob"}, {"tenant": ""}, {"session_id": "theirs"}])
async def test_who_has_a_part_of_the_sessions_starts_no_agent_again(
    journal: Path, calls: Calls, limit: dict[str, str]
) -> None:
    async with desk().server(journal=journal) as server:
        caller = await calls.to(server, acphold.Principal(name="bob", **limit))  # type: ignore[arg-type]
        assert (await caller.refused("_acphold/signedIn")).code == -32601


def twice(session: str, params: dict[str, Any], first: Any) -> bytes:
    """These params, which name the session behind something else by the same name."""
    rest = {name: value for name, value in params.items() if name != "sessionId"}
    text = json.dumps({**rest, "sessionId": session})[1:]
    return b'{"sessionId":%b,%b' % (json.dumps(first).encode(), text.encode())


async def refused_line(caller: Caller, method: str, params: bytes) -> dict[str, Any]:
    """The error by which a request of these bytes is answered."""
    line = b'{"jsonrpc":"2.0","id":"raw","method":"%b","params":%b}' % (method.encode(), params)
    before = len(caller.messages)
    caller.send_line(line)
    await caller.until(lambda: any(m.get("id") == "raw" for m in caller.messages[before:]))
    [answer] = [m for m in caller.messages[before:] if m.get("id") == "raw"]
    error: dict[str, Any] = answer["error"]
    return error


@pytest.mark.parametrize("first", [5, None, {}, "own"])
async def test_no_session_is_reached_by_naming_another_one_first(
    journal: Path, calls: Calls, first: Any
) -> None:
    async with desk().server(journal=journal, unstable=True) as server:
        ann, bob = await calls.to(server, ANN), await calls.to(server, BOB)
        session, own = await ann.talk("gold"), await bob.talk("tin")
        for method, params in (asked_of(session) | {"_desk/history": {}}).items():
            if method == "_desk/history" or "sessionId" in params:
                named = twice(session, params, own if first == "own" else first)
                error = await refused_line(bob, method, named)
                assert error["code"] in (-32002, -32602), method
        note = twice(session, {}, first)
        bob.send_line(b'{"jsonrpc":"2.0","method":"_desk/note","params":%b}' % note)
        [row] = await ann.sessions()
        assert row["title"] == "gold"
        await bob.prompt(own, "lead")
        assert "gold" not in str(bob.messages)
        assert "noted" not in str(ann.messages)


async def test_one_session_is_listed_to_whom_it_belongs_alone(journal: Path, calls: Calls) -> None:
    async with shop().server(journal=journal) as server:
        acme = await as_tenant(await calls.to(server), "acme")
        session = await acme.talk("gold")
        guest = acphold.Principal(name="a guest", session_id=session)
        for tenant, ids in (("globex", []), ("acme", [session])):
            caller = await as_tenant(await calls.to(server, guest), tenant)
            assert [row["sessionId"] for row in await caller.sessions()] == ids


@pytest.mark.parametrize("goes_on_as", ["globex", None])
@pytest.mark.parametrize("method", ["session/new", "session/load", "session/resume"])
async def test_what_is_being_opened_is_not_for_who_signs_in_next(
    journal: Path, calls: Calls, method: str, goes_on_as: str | None
) -> None:
    agent = shop()
    began, may_open = asyncio.Event(), asyncio.Event()

    @agent.on_logout
    async def sign_out(visitor: acphold.Visitor) -> None:
        pass

    @agent.on_new
    @agent.on_load
    async def opened(session: acphold.Session) -> None:
        began.set()
        await may_open.wait()

    async with agent.server(journal=journal) as server:
        may_open.set()
        acme = await as_tenant(await calls.to(server), "acme")
        session = await acme.talk("gold")
        await acme.call("session/close", {"sessionId": session})
        turncoat = await as_tenant(await calls.to(server), "acme")
        began.clear()
        may_open.clear()
        opening = turncoat.begin(method, asked_of(session)[method])
        await began.wait()
        if goes_on_as is None:
            await turncoat.call("logout")
        else:
            await as_tenant(turncoat, goes_on_as)
        may_open.set()
        with pytest.raises(Refused) as refused:
            await opening
        assert refused.value.code == SIGN_IN
        await acme.load(session)
        said = len(turncoat.updates())
        await acme.prompt(session, "silver")
        assert len(turncoat.updates()) == said


async def test_an_agent_stops_making_a_session_for_who_signs_out(
    journal: Path, calls: Calls
) -> None:
    agent = shop()
    began, given_up = asyncio.Event(), asyncio.Event()

    @agent.on_logout
    async def sign_out(visitor: acphold.Visitor) -> None:
        pass

    @agent.on_new
    async def opened(session: acphold.Session) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    async with agent.server(journal=journal) as server, asyncio.timeout(DEADLINE):
        client = await as_tenant(await calls.to(server), "acme")
        making = client.begin("session/new", asked_of("")["session/new"])
        await began.wait()
        await client.call("logout")
        await given_up.wait()
        with pytest.raises(Refused, match="signed out meanwhile"):
            await making
