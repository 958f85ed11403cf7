"""Clients of all agents, which come to each agent's desk; the agents are played."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from acp_wire.rpc import MAX_MESSAGE
from acp_wire.tasks import beside
from acp_wire.transports.streams import memory_pair
from acphold.errors import OTHER_AGENT, AgentStartError
from acphold.journal.access import Share
from acphold.live.agents.capabilities import ALL_AGENTS, WATCHES
from acphold.live.agents.interface import AgentListener, HubAgent, Notified
from acphold.live.hub.agent_session import Setup
from acphold.live.hub.attachment import Client
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.desk import Desk
from acphold.live.server import bounds
from acphold.live.server.pool import FrontStderr, PreparedAgent
from acphold.live.server.principals import THIS_USER, Principal
from acphold.live.server.server_agents import ServerAgents
from acphold.live.server.service import Service
from acphold.logs import ListenerLog
from acphold.serve_options import ServeOptions
from tests.editor import DEADLINE, Refused, open_params, prompt_params
from tests.hub.shared import InMemory, PuppetAgent, Shared, shared
from tests.watched_processes import until

OF_B = {"acphold/agent": "b"}

READS = {"acphold/reads": True}

ALICE = Principal(name="alice", tenant="alice", is_here=False)

BERT = Principal(name="bert", tenant="bert", is_here=False)


class Noted(logging.Handler):
    """What is logged for the front of an agent."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class Place:
    """A hub, and a server's agents `a` and `b` in it; what is logged for b is in `noted`."""

    def __init__(self, house: Shared, kind: Callable[[AgentListener], PuppetAgent]) -> None:
        self.house = house
        self.agents: dict[str, list[PuppetAgent]] = {"a": [], "b": []}
        self.noted = Noted()
        self.stderr = FrontStderr()
        agents = {name: self._fronted(name, kind) for name in self.agents}
        self.served = ServerAgents(house.hub, agents, str, None, stderr=self.stderr)

    def _fronted(self, name: str, kind: Callable[[AgentListener], PuppetAgent]) -> PreparedAgent:
        def make(listener: AgentListener, _: object) -> HubAgent:
            agent = kind(listener)
            agent.key = name
            self.agents[name].append(agent)
            return agent

        service = Service(make_agent=make, options=ServeOptions(cancel_grace=0.1))
        return PreparedAgent(service, 0.1, heard=self.noted if name == "b" else None)

    @asynccontextmanager
    async def client(
        self,
        principal: Principal = THIS_USER,
        name: str | None = None,
        *,
        watches: bool = False,
    ) -> AsyncIterator[InMemory]:
        """A client of all agents, introduced, by name if it has one."""
        near, far = memory_pair()
        client = InMemory(near)
        attending = self.served.attend("a", far, principal, MAX_MESSAGE)
        async with beside(attending, "attend") as serving, beside(client.read(), "read"):
            await client.introduce(name, {"_meta": {ALL_AGENTS: True, WATCHES: watches}})
            yield client
            await client.leave()
            await asyncio.wait_for(serving, DEADLINE)

    async def share(self, session: str, *, prompts: bool) -> None:
        """Share a session with bert, to be continued if it `prompts`."""
        await self.house.journal.access.keep_share(Share(session, "bert", prompts))


class Introduced(PuppetAgent):
    """An agent that notes who is introduced to it among what it is asked."""

    async def initialize(self, params: bytes) -> bytes:
        self.asked.append(("initialize", json.loads(params)))
        return await super().initialize(params)


@asynccontextmanager
async def placed(
    journal: Path, kind: Callable[[AgentListener], PuppetAgent] = PuppetAgent
) -> AsyncIterator[Place]:
    async with shared(journal) as house:
        made = Place(house, kind)
        try:
            yield made
        finally:
            await made.served.aclose()
            made.stderr.close()


async def test_a_session_that_is_opened_to_act_while_it_is_opened_to_read_is_open_once(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, goes_on, open_ = asyncio.Event(), asyncio.Event(), Desk._open

    async def slowly(
        self: Desk, client: Client | None, session_id: str, setup: Setup
    ) -> Conversation:
        if not reading.is_set():
            reading.set()
            await goes_on.wait()
        return await open_(self, client, session_id, setup)

    async with placed(journal) as place, place.client() as first:
        session = await first.new(_meta=OF_B)
        monkeypatch.setattr(Desk, "_open", slowly)
        async with place.client() as client:
            to_read = {**open_params(session, "/"), "_meta": {"acphold/reads": True}}
            load = client.begin("session/load", to_read)
            await asyncio.wait_for(reading.wait(), DEADLINE)
            resume = client.begin("session/resume", open_params(session, "/"))
            goes_on.set()
            await load
            await resume
            attachments = place.house.hub.conversation(session).session.attachments
            assert len(attachments) == 2
        await until(lambda: len(attachments) == 1)


async def test_an_agent_that_starts_for_a_request_that_is_cancelled_is_left_again(
    journal: Path,
) -> None:
    may_start = asyncio.Event()

    class Slow(PuppetAgent):
        async def initialize(self, params: bytes) -> bytes:
            await may_start.wait()
            return await super().initialize(params)

    async with placed(journal, Slow) as place, place.client() as client:
        new = client.begin("session/new", {"cwd": "/", "mcpServers": [], "_meta": OF_B})
        await until(lambda: bool(place.agents["b"]))
        client.tell("$/cancel_request", {"requestId": client.last_id})
        with pytest.raises(Refused, match="-32800"):
            await new
        await until(lambda: not place.served.is_needed)
        may_start.set()
        assert await client.new(_meta=OF_B)


async def test_an_agent_that_starts_for_a_request_that_is_cancelled_is_started_for_the_next(
    journal: Path,
) -> None:
    may_start, introduced = asyncio.Event(), list[str]()

    class Slow(PuppetAgent):
        async def initialize(self, params: bytes) -> bytes:
            introduced.append(json.loads(params)["clientInfo"]["name"])
            await may_start.wait()
            return await super().initialize(params)

    async with (
        placed(journal, Slow) as place,
        place.client(name="one") as first,
        place.client(name="two") as second,
    ):
        asked = {"cwd": "/", "mcpServers": [], "_meta": OF_B}
        one = first.begin("session/new", asked)
        await until(lambda: introduced == ["one"])
        two = second.begin("session/new", asked)
        first.tell("$/cancel_request", {"requestId": first.last_id})
        with pytest.raises(Refused, match="-32800"):
            await one
        await until(lambda: introduced == ["one", "two"])
        may_start.set()
        assert (await two)["_meta"]["acphold/agent"] == "b"
        assert len(place.agents["b"]) == 1


async def test_an_agent_whose_start_failed_is_started_anew_for_the_next_request(
    journal: Path,
) -> None:
    failures = [AgentStartError("it failed")]

    class Fails(PuppetAgent):
        async def initialize(self, params: bytes) -> bytes:
            if failures:
                raise failures.pop()
            return await super().initialize(params)

    async with placed(journal, Fails) as place, place.client() as client:
        new = client.begin("session/new", {"cwd": "/", "mcpServers": [], "_meta": OF_B})
        with pytest.raises(Refused, match="it failed"):
            await new
        assert await client.new(_meta=OF_B)


async def test_a_session_of_another_tenant_is_answered_like_one_that_does_not_exist(
    journal: Path,
) -> None:
    async with placed(journal) as place, place.client() as first:
        session = await first.new(_meta=OF_B)
        other = Principal(name="other", tenant="other", is_here=False)
        async with place.client(other) as client:
            methods = ("session/prompt", "session/close", "session/load", "_acphold/presence")
            for method in methods:
                told = []
                for asked in (session, "nobody-has-this"):
                    with pytest.raises(Refused) as refused:
                        await client.call(method, {**open_params(asked, "/"), "prompt": []})
                    told.append(str(refused.value).replace(asked, "it"))
                assert told[0] == told[1]


async def test_a_live_session_of_a_served_agent_has_its_served_name_whoever_loads_it_and_how_often(
    journal: Path,
) -> None:
    async with placed(journal) as place:
        place.served._called = {"one": "a", "two": "b"}.__getitem__
        sessions = []
        for place.house.agent.key in ("one", "two"):
            _, session = await place.house.opened()
            sessions.append(session)
        async with place.client() as client:
            for meta in ({"acphold/reads": True}, {"acphold/agent": "b"}, {}):
                for session, name in zip(sessions, ("a", "b"), strict=True):
                    opening = {**open_params(session, "/"), "_meta": meta}
                    answer = await client.call("session/load", opening)
                    assert answer["_meta"]["acphold/agent"] == name


async def test_a_session_that_others_read_goes_to_no_other_agent_by_itself(journal: Path) -> None:
    async with placed(journal) as place:
        editor, session = await place.house.opened()
        await place.house.turn(editor, session, "hello", "hi")
        await editor.call("session/close", {"sessionId": session})
        only_looks = Principal(name="looks", scopes=frozenset({"watch"}), sees_all=True)
        async with place.client(only_looks) as reader, place.client() as client:
            opening = open_params(session, "/")
            await reader.call("session/load", opening)
            with pytest.raises(Refused, match=f"{OTHER_AGENT}"):
                await client.call("session/load", opening)
            assert [it.asked for it in place.agents["a"] if it.asked] == []


async def test_a_session_that_is_watched_goes_to_no_other_agent_by_itself(journal: Path) -> None:
    async with placed(journal) as place, place.client(watches=True) as watcher:
        editor, session = await place.house.opened()
        await place.house.turn(editor, session, "hello", "hi")
        await editor.call("session/close", {"sessionId": session})
        await watcher.load(session)
        await watcher.until_text("hi")
        await watcher.refused("session/prompt", prompt_params(session, "go on"))
        assert [it.asked for it in place.agents["a"] if it.asked] == []
        opened = await watcher.load(session, _meta=OF_B)  # it says so
        assert opened["_meta"]["acphold/agent"] == "b"


async def test_who_only_reads_a_session_does_not_choose_the_agent_that_continues_it(
    journal: Path,
) -> None:
    only_looks = Principal(name="looks", scopes=frozenset({"watch"}), sees_all=True)
    async with placed(journal) as place:
        async with place.client() as client:
            session = await client.new()
            await client.call("session/close", {"sessionId": session})
        async with place.client(only_looks) as reader, place.client() as client:
            opening = open_params(session, "/")
            seen = await reader.call("session/load", {**opening, "_meta": OF_B})
            continued = await client.call("session/load", opening)
            assert seen["_meta"]["acphold/agent"] == continued["_meta"]["acphold/agent"] == "a"
            assert place.agents["b"] == []


async def test_what_is_logged_for_a_request_reaches_the_front_of_its_agent(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = Desk.new

    async def noted(self: Desk, *given: object) -> object:
        logging.getLogger("acphold.live.hub.desk").warning("for b alone")
        return await new(self, *given)  # type: ignore[arg-type]

    listening = ListenerLog()
    logging.getLogger("acphold").addHandler(listening)
    try:
        monkeypatch.setattr(Desk, "new", noted)
        logging.getLogger("acphold.live.hub.turns").setLevel(logging.DEBUG)
        async with placed(journal) as place, place.client() as client:
            session = await client.new(_meta=OF_B)
            assert "for b alone" in place.noted.said
            client.begin_prompt(session, "hello")
            await place.agents["b"][0].until_at_work()
            assert any(f"session {session}, turn" in said for said in place.noted.said)
    finally:
        logging.getLogger("acphold.live.hub.turns").setLevel(logging.NOTSET)
        logging.getLogger("acphold").removeHandler(listening)


@pytest.mark.parametrize("reader", [ALICE, BERT])
async def test_a_session_that_is_read_goes_to_the_agent_that_its_owner_names(
    journal: Path, reader: Principal
) -> None:
    async with placed(journal) as place:
        async with place.client(ALICE) as editor:
            session = await editor.new()
            turn = editor.begin_prompt(session, "hello")
            await place.agents["a"][0].until_at_work()
            await place.agents["a"][0].end("s0")
            await turn
            await editor.call("session/close", {"sessionId": session})
        await place.share(session, prompts=False)
        async with place.client(reader) as other, place.client(ALICE) as owner:
            await other.load(session, _meta=READS)
            opened = await owner.load(session, _meta=OF_B)
            assert opened["_meta"]["acphold/agent"] == "b"
            turn = owner.begin_prompt(session, "go on")
            [agent] = place.agents["b"]
            await agent.until_at_work()
            [its] = agent.at_work
            await agent.say(its, "from b")
            await agent.end(its)
            await turn
            for client in (other, owner):
                await client.until_text("from b")
            assert (await owner.load(session))["_meta"]["acphold/agent"] == "b"


async def test_a_guest_whose_share_becomes_one_to_continue_takes_a_session_to_no_other_agent(
    journal: Path,
) -> None:
    async with placed(journal) as place:
        editor = place.house.stranger(ALICE)
        await editor.introduce(None, {})
        session = await editor.new()
        await place.house.turn(editor, session, "hello", "hi")
        await editor.call("session/close", {"sessionId": session})
        await place.share(session, prompts=False)
        async with place.client(BERT) as guest:
            opened = await guest.load(session, _meta=OF_B)
            assert opened["_meta"]["acphold/agent"] != "b"
            await place.share(session, prompts=True)
            for meta in ({"acphold/agent": "a"}, OF_B, {}):
                with pytest.raises(Refused, match=f"{OTHER_AGENT}"):
                    await guest.load(session, _meta=meta)
            await guest.refused("session/prompt", prompt_params(session, "go on"))
            asked = [it.asked for name in "ab" for it in place.agents[name]]
            assert [it for it in asked if it] == []


async def test_the_scopes_of_a_guest_are_those_of_its_share_at_each_request(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SHARES_SECONDS", DEADLINE)  # before it is disconnected
    async with placed(journal) as place, place.client(ALICE) as owner:
        session = await owner.new(_meta=OF_B)
        [agent] = place.agents["b"]
        await place.share(session, prompts=False)
        async with place.client(BERT) as guest:
            await guest.load(session)
            await guest.refused("session/prompt", prompt_params(session, "too early"))
            await place.share(session, prompts=True)
            await guest.load(session)
            turn = guest.begin_prompt(session, "go on")
            await agent.until_at_work()
            await agent.end(agent.at_work[0])
            await turn
            await place.share(session, prompts=False)
            await guest.refused("session/prompt", prompt_params(session, "too late"))
            await guest.refused("session/fork", open_params(session, "/"))
        assert [method for method, _ in agent.asked].count("session/prompt") == 1


async def test_a_guest_with_whom_less_is_shared_than_before_is_disconnected(journal: Path) -> None:
    async with placed(journal) as place, place.client(ALICE) as owner:
        session = await owner.new(_meta=OF_B)
        await place.share(session, prompts=True)
        async with place.client(BERT) as guest:
            await guest.load(session)
            await place.share(session, prompts=False)
            with suppress(Refused, ConnectionError):
                async with asyncio.timeout(DEADLINE):
                    while True:
                        await guest.call("session/list")
                        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("method", "of_session"),
    [("session/fork", True), ("_vendor/do", True), ("_vendor/do", False)],
)
async def test_no_agent_is_asked_anything_before_the_client_was_introduced_to_it(
    journal: Path, method: str, of_session: bool
) -> None:
    async with placed(journal, Introduced) as place:
        async with place.client(name="before") as client:
            session = await client.new(_meta=OF_B)
            turn = client.begin_prompt(session, "hello")
            await place.agents["b"][0].until_at_work()
            await place.agents["b"][0].end("s0")
            await turn
            await client.call("session/close", {"sessionId": session})
        await until(lambda: not place.served.is_needed)
        async with place.client(name="reader") as reader, place.client(name="second") as second:
            await reader.load(session, _meta=READS)
            [_, agent] = place.agents["b"]
            assert agent.asked == []
            agent.results["_vendor/do"] = b"{}"
            asks = reader if method == "session/fork" else second
            params = open_params(session, "/") if of_session else {"_meta": OF_B}
            await asks.call(method, params)
            [(first, introduction), *_] = agent.asked
            assert first == "initialize"
            name = "reader" if asks is reader else "second"
            assert introduction["clientInfo"]["name"] == name
        assert place.agents["a"] == []


async def test_a_session_that_its_client_only_reads_is_deleted_at_its_agent(journal: Path) -> None:
    class Deletes(Introduced):
        def __init__(self, listener: AgentListener) -> None:
            super().__init__(listener)
            self.can("delete")
            self.results["session/delete"] = b"{}"

    async with placed(journal, Deletes) as place, place.client() as client:
        session = await client.new(_meta=OF_B)
        await client.call("session/close", {"sessionId": session})
        await until(lambda: not place.served.is_needed)
        await client.load(session, _meta=READS)
        await client.call("session/delete", {"sessionId": session})
        asked = [method for method, _ in place.agents["b"][-1].asked]
        assert asked == ["initialize", "session/delete"]
        await client.refused("session/load", open_params(session, "/"))


async def test_requests_without_params_are_answered(journal: Path) -> None:
    async with placed(journal) as place, place.client() as client:
        session = await client.new()
        [agent] = place.agents["a"]
        agent.results["_vendor/do"] = b"{}"
        for number, method in ((-1, "session/list"), (-2, "_vendor/do")):
            client.waiting[number] = asyncio.get_running_loop().create_future()
            client.send({"id": number, "method": method})
            answer = await asyncio.wait_for(client.waiting[number], DEADLINE)
            if method == "session/list":
                assert [it["sessionId"] for it in answer["sessions"]] == [session]
        assert agent.asked[-1] == ("_vendor/do", {})


@pytest.mark.parametrize("is_live", [True, False])
async def test_a_session_that_is_closed_right_behind_its_load_is_left(
    journal: Path, is_live: bool
) -> None:
    async with placed(journal) as place, place.client() as first:
        session = await first.new(_meta=OF_B)
        if not is_live:
            await first.call("session/close", {"sessionId": session})
        async with place.client() as client:
            load = client.begin("session/load", open_params(session, "/"))
            close = client.begin("session/close", {"sessionId": session})
            with pytest.raises(Refused, match="was closed"):
                await load
            await close
            assert client.place_of_answer(client.last_id - 1) < client.place_of_answer(
                client.last_id
            )
            live = place.house.hub.live.get(session)
            assert (len(live.session.attachments) if live is not None else 0) == is_live
            await client.load(session)


async def test_whoever_only_reads_a_session_closes_it_and_starts_no_agent(journal: Path) -> None:
    async with placed(journal, Introduced) as place, place.client() as client:
        session = await client.new(_meta=OF_B)
        await client.call("session/close", {"sessionId": session})
        await until(lambda: not place.served.is_needed)
        load = client.begin("session/load", {**open_params(session, "/"), "_meta": READS})
        close = client.begin("session/close", {"sessionId": session})
        with pytest.raises(Refused, match="was closed"):
            await load
        await close
        await client.load(session, _meta=READS)
        await client.call("session/close", {"sessionId": session})
        assert place.house.hub.live == {}
        assert [it.asked for it in place.agents["b"][1:] if it.asked] == []


async def test_a_session_of_an_agent_that_is_not_served_can_be_read(journal: Path) -> None:
    async with placed(journal) as place, place.client() as client, place.client() as other:
        editor, session = await place.house.opened()
        await place.house.turn(editor, session, "hello", "hi")
        await editor.call("session/close", {"sessionId": session})
        opened = await client.load(session, _meta=READS)
        assert opened["_meta"]["acphold/agent"] == "puppet"
        await client.until_text("hi")
        await client.refused("session/prompt", prompt_params(session, "go on"))
        with pytest.raises(Refused, match=f"{OTHER_AGENT}"):
            await client.load(session)  # it is still open to be read
        await client.refused("session/prompt", prompt_params(session, "go on"))
        await client.refused("_vendor/do", {"sessionId": session})
        with pytest.raises(Refused, match=f"{OTHER_AGENT}"):
            await other.call("_vendor/do", {"sessionId": session})
        assert [it.asked for name in "ab" for it in place.agents[name] if it.asked] == []


async def test_a_prompt_right_behind_the_request_that_opens_a_session_to_act_is_accepted(
    journal: Path,
) -> None:
    async with placed(journal) as place, place.client() as client:
        session = await client.new(_meta=OF_B)
        await client.call("session/close", {"sessionId": session})
        await client.load(session, _meta=READS)
        resume = client.begin("session/resume", open_params(session, "/"))
        turn = client.begin_prompt(session, "go on")
        await resume
        [agent] = [it for it in place.agents["b"] if it.at_work] or place.agents["b"][-1:]
        await agent.until_at_work()
        await agent.end(agent.at_work[0])
        await turn


async def test_what_an_agent_says_outside_of_sessions_is_for_those_who_have_one_of_it(
    journal: Path,
) -> None:
    async with placed(journal) as place, place.client() as client, place.client() as other:
        session = await client.new(_meta=OF_B)
        await other.new()
        [agent] = place.agents["b"]
        await agent.listener.hear(Notified("_vendor/note", b'{"of":"b"}'))
        await place.agents["a"][0].listener.hear(Notified("_vendor/note", b'{"of":"a"}'))
        await client.call("session/close", {"sessionId": session})
        await agent.listener.hear(Notified("_vendor/note", b'{"of":"nobody"}'))
        for each, name in ((client, "b"), (other, "a")):
            await each.call("session/list")
            notes = [it["params"] for it in each.messages if it.get("method") == "_vendor/note"]
            assert notes == [{"of": name}]


async def test_a_notification_in_a_session_reaches_its_agent_and_starts_no_other(
    journal: Path,
) -> None:
    class Hears(PuppetAgent):
        async def tell(self, method: str, params: bytes) -> None:
            self.asked.append((method, json.loads(params)))

    async with placed(journal, Hears) as place, place.client() as client:
        session = await client.new(_meta=OF_B)
        client.tell("_vendor/note", {"sessionId": session})
        client.tell("_vendor/note", {})
        await client.call("session/list")
        [agent] = place.agents["b"]
        assert agent.asked[1:] == [("_vendor/note", {"sessionId": "s0"})]
        assert place.agents["a"] == []


async def test_a_session_that_is_opened_while_its_agent_ends_is_opened_with_the_same_agent_anew(
    journal: Path,
) -> None:
    ending, may_end = asyncio.Event(), asyncio.Event()

    class EndsSlowly(PuppetAgent):
        async def aclose(self) -> None:
            ending.set()
            await may_end.wait()

    async with placed(journal, EndsSlowly) as place:
        async with place.client() as client:
            session = await client.new(_meta=OF_B)
        await asyncio.wait_for(ending.wait(), DEADLINE)
        async with place.client() as client:
            load = client.begin("session/load", open_params(session, "/"))
            await client.call("session/list")
            may_end.set()
            assert (await load)["_meta"]["acphold/agent"] == "b"
            assert len(place.agents["b"]) == 2
            assert place.agents["a"] == []
