"""Clients of all agents, which come to each agent's desk; the agents are played."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acp_wire.rpc import MAX_MESSAGE
from acp_wire.tasks import beside
from acp_wire.transports.streams import memory_pair
from acphold.errors import OTHER_AGENT, AgentStartError
from acphold.live.agents.capabilities import ALL_AGENTS
from acphold.live.agents.interface import AgentListener, HubAgent
from acphold.live.hub.agent_session import Setup
from acphold.live.hub.attachment import Client
from acphold.live.hub.conversation import Conversation
from acphold.live.hub.desk import Desk
from acphold.live.server.all_agents import attend
from acphold.live.server.fronts import Fronted, FrontStderr
from acphold.live.server.principals import THIS_USER, Principal
from acphold.live.server.served_agents import ServedAgents
from acphold.live.server.service import Service
from acphold.logs import ListenerLog
from acphold.serve_options import ServeOptions
from tests.editor import DEADLINE, Refused, open_params
from tests.hub.shared import InMemory, PuppetAgent, Shared, shared
from tests.watched_processes import until

OF_B = {"acphold/agent": "b"}


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
        self.served = ServedAgents(house.hub, agents, str, None, stderr=self.stderr)

    def _fronted(self, name: str, kind: Callable[[AgentListener], PuppetAgent]) -> Fronted:
        def make(listener: AgentListener, _: object) -> HubAgent:
            agent = kind(listener)
            agent.key = name
            self.agents[name].append(agent)
            return agent

        service = Service(make_agent=make, options=ServeOptions(cancel_grace=0.1))
        return Fronted(service, 0.1, heard=self.noted if name == "b" else None)

    @asynccontextmanager
    async def client(self, principal: Principal = THIS_USER) -> AsyncIterator[InMemory]:
        """A client of all agents, introduced."""
        near, far = memory_pair()
        client = InMemory(near)
        attending = attend(self.served, "a", far, principal, MAX_MESSAGE)
        async with beside(attending, "attend") as serving, beside(client.read(), "read"):
            await client.introduce(None, {"_meta": {ALL_AGENTS: True}})
            yield client
            await client.leave()
            await asyncio.wait_for(serving, DEADLINE)


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
            with pytest.raises(Refused, match="has ended"):
                await load
            goes_on.set()
            await resume
            attachments = place.house.hub.conversation(session).session.attachments
            assert len(attachments) == 2
        await until(lambda: len(attachments) == 1)


@pytest.mark.parametrize("fails", [False, True])
async def test_an_agent_that_starts_for_a_request_that_is_cancelled_is_left_again(
    journal: Path, fails: bool
) -> None:
    may_start, failures = asyncio.Event(), [fails]

    class Slow(PuppetAgent):
        async def initialize(self, params: bytes) -> bytes:
            await may_start.wait()
            if failures.pop() if failures else False:
                raise AgentStartError("it failed")
            return await super().initialize(params)

    async with placed(journal, Slow) as place, place.client() as client:
        new = client.begin("session/new", {"cwd": "/", "mcpServers": [], "_meta": OF_B})
        await until(lambda: bool(place.agents["b"]))
        client.tell("$/cancel_request", {"requestId": client.last_id})
        with pytest.raises(Refused, match="-32800"):
            await new
        may_start.set()
        await until(lambda: not place.served.is_needed)
        assert await client.new(_meta=OF_B)  # not refused with an earlier failure


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
        async with placed(journal) as place, place.client() as client:
            await client.new(_meta=OF_B)
            assert "for b alone" in place.noted.said
    finally:
        logging.getLogger("acphold").removeHandler(listening)
