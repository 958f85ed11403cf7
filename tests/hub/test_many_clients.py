"""Clients that come, go, lag, cancel and answer at random: in the end all have one conversation."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from acphold.conversation.history.entries import Entry
from acphold.conversation.history.fold import SessionState, fold
from acphold.conversation.history.timeline import Item, TurnEnd
from acphold.journal.journal import state_of
from acphold.live.agents.interface import Updates
from tests.editor import Refused, open_params
from tests.hub.shared import PERMISSION, Onlooker, Shared, shared, small_pages

DEADLINE = 60

STEPS = (
    *("say", "say", "many", "tool", "prompt", "prompt", "end", "cancel"),
    *("ask", "answer", "answer", "attach", "lose", "return", "close", "lag", "catch up"),
    *("settle", "breathe"),
)

CAN: dict[str, Any] = {"session": {"notices": {}}, "_meta": {"acphold/positions": True}}


class Viewer:
    """A watcher over one connection after another, who answers when told to."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.client: Onlooker | None = None
        self.opening: asyncio.Future[Any] | None = None
        self.told: list[tuple[int | None, bytes]] = []
        self.questions: list[asyncio.Future[Any]] = []

    async def attach(self, house: Shared, session: str) -> None:
        """Load the session; do not wait for it."""
        await self._connect(house)
        self.told.clear()
        assert self.client is not None
        self.opening = self.client.begin("session/load", open_params(session, "/"))

    async def come_back(self, house: Shared, session: str) -> None:
        """Go on behind the last position, or load if that cannot be."""
        while self.told and self.told[-1][0] is None:
            self.told.pop()
        if not self.told:
            await self.attach(house, session)
            return
        await self._connect(house)
        assert self.client is not None
        meta = {"acphold/after": self.told[-1][0]}
        try:
            await self.client.call("session/resume", {**open_params(session, "/"), "_meta": meta})
        except Refused as refusal:
            if refusal.code != -32602:
                raise
            self.told.clear()
            self.opening = self.client.begin("session/load", open_params(session, "/"))

    async def _connect(self, house: Shared) -> None:
        self.client = await house.client(name=self.name, **CAN)
        self.client.answers[PERMISSION] = self._asked

    async def _asked(self, _: dict[str, Any]) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.questions.append(answer)
        return await answer

    def answer(self) -> None:
        """Answer everything that was asked here so far."""
        for question in self.questions:
            if not question.done():
                question.set_result({"outcome": self.name})

    async def leave(self, *, politely: str = "") -> None:
        """The connection is lost, in whatever state; or the session is closed first."""
        client, self.client = self.client, None
        if client is None:
            return
        client.reads.set()
        if self.opening is not None:
            await asyncio.wait([self.opening])
            self.opening = None
        if politely:
            await client.call("session/close", {"sessionId": politely})
        await client.leave()
        self._keep(client)
        for question in self.questions:
            question.cancel()
        self.questions.clear()

    def _keep(self, client: Onlooker) -> None:
        for message in client.messages:
            if message.get("method") == "session/update":
                params = message["params"]
                seq = params.get("_meta", {}).get("acphold/seq")
                self.told.append((seq, json.dumps(params["update"]).encode()))

    async def until(self, text: str) -> None:
        """Wait until the agent has said this to it."""
        assert self.client is not None
        await self.client.until_text(text)
        self._keep(self.client)

    def state(self) -> SessionState:
        """The state that its updates fold to."""
        return fold(Entry(n, "update", 0, raw) for n, (_, raw) in enumerate(self.told, 1))


class Drama:
    """One session with two people who prompt, and any number of watchers."""

    def __init__(self, house: Shared, session: str, drivers: list[Onlooker]) -> None:
        self.house = house
        self.session = session
        self.drivers = drivers
        self.viewers: list[Viewer] = []
        self.turns: list[asyncio.Future[Any]] = []
        self.asked: list[asyncio.Task[Any]] = []
        self.said = 0

    async def play(self, step: str, number: int) -> None:
        present = [viewer for viewer in self.viewers if viewer.client is not None]
        absent = [viewer for viewer in self.viewers if viewer.client is None]
        if step == "attach" and len(present) < 5:
            self.viewers.append(Viewer(f"viewer {len(self.viewers)}"))
            await self.viewers[-1].attach(self.house, self.session)
        elif step == "return" and absent:
            await absent[number % len(absent)].come_back(self.house, self.session)
        elif present and step in ("lose", "close", "lag", "catch up", "cancel", "answer"):
            await self._act(present[number % len(present)], step)
        elif step in ("say", "many", "tool", "ask", "end"):
            await self._agent(step, number)
        elif step == "prompt":
            driver = self.drivers[number % len(self.drivers)]
            self.turns.append(driver.begin_prompt(self.session, f"{driver.connection.info!r}"))
        elif step == "settle":
            self.house.hub.conversation(self.session).session.rest.settle_now()
        for _ in range(number % 4):
            await asyncio.sleep(0)

    async def _act(self, viewer: Viewer, step: str) -> None:
        assert viewer.client is not None
        if step == "lose":
            await viewer.leave()
        elif step == "close":
            await viewer.leave(politely=self.session)
        elif step == "lag":
            viewer.client.reads.clear()
        elif step == "catch up":
            viewer.client.reads.set()
        elif step == "cancel":
            viewer.client.tell("session/cancel", {"sessionId": self.session})
        else:
            viewer.answer()

    async def _agent(self, step: str, number: int) -> None:
        agent = self.house.agent
        if step == "ask":
            asking = agent.ask_client(PERMISSION, sessionId=self.session, options=[])
            self.asked.append(asyncio.create_task(asking))
        elif step == "tool":
            call = {"sessionUpdate": "tool_call", "toolCallId": f"{number % 3}", "title": "T"}
            raw = json.dumps(call).encode()
            await agent.listener.hear(Updates(self.session, "update", [raw]))
        elif step == "end":
            await self._end_turn()
        else:
            count = 1 if step == "say" else 1 + number % 7
            texts = [f"{self.said + n} " for n in range(count)]
            self.said += count
            await agent.say(self.session, *texts)

    async def _end_turn(self) -> None:
        if self.session in self.house.agent._turns:
            await self.house.agent.end(self.session)

    async def finish(self) -> None:
        """All turns end, all questions are answered, and all watchers come back."""
        for viewer in self.viewers:
            if viewer.client is None:
                await viewer.come_back(self.house, self.session)
            assert viewer.client is not None
            viewer.client.reads.set()
            if viewer.opening is not None:
                await viewer.opening
        self.drivers[0].answers[PERMISSION] = lambda _: {"outcome": "driver"}
        last = await self.house.client()
        last.answers[PERMISSION] = lambda _: {"outcome": "last"}
        await last.load(self.session)
        await asyncio.gather(*self.asked)
        while not all(turn.done() for turn in self.turns):
            await self._end_turn()
            await asyncio.sleep(0)
        turn = self.drivers[0].begin_prompt(self.session, "over?")
        await self.house.agent.prompted(self.session)
        await self._end_turn()
        await turn
        await self.house.agent.say(self.session, "over")
        for viewer in self.viewers:
            await viewer.until("over")

    async def check(self) -> None:
        entries = [
            entry
            for segment in await self.house.journal.read(self.session, 0, 1 << 30)
            for entry in segment.entries()
        ]
        self._check_views(fold(entries), await state_of(self.house.journal, self.session))
        questions = await self.house.entries(self.session, "question")
        answers = await self.house.entries(self.session, "answer")
        assert sorted(q["id"] for q in questions) == sorted(a["question"] for a in answers)
        assert len(questions) == len({q["id"] for q in questions})
        given = sorted(json.dumps(a["result"]) for a in answers)
        # One that was asked in a cancelled turn was answered without a question.
        results = sorted(json.dumps(task.result()) for task in self.asked)
        assert all(result in results for result in given)

    def _check_views(self, folded: SessionState, known: SessionState) -> None:
        assert folded == known
        for viewer in self.viewers:
            numbers = [seq for seq, _ in viewer.told if seq is not None]
            assert numbers == sorted(set(numbers)), viewer.name
            state = viewer.state()
            assert shown(state.timeline) == shown(known.timeline), viewer.name
            assert state.attributes.title == known.attributes.title
            assert state.open_tools == known.open_tools
        for driver in self.drivers:
            own = f"{driver.connection.info!r}"
            assert own not in driver.text("user_message_chunk")


def shown(timeline: tuple[Item, ...]) -> list[Item]:
    """The items of a timeline that clients are sent."""
    return [item for item in timeline if not isinstance(item, TurnEnd)]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 30)), min_size=5, max_size=60))
def test_whatever_clients_do_all_have_the_journals_conversation_in_the_end(
    plan: list[tuple[str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder, small_pages():
        asyncio.run(run_plan(Path(folder) / "journal.db", plan))


async def run_plan(journal: Path, plan: list[tuple[str, int]]) -> None:
    async with shared(journal) as house, asyncio.timeout(DEADLINE):
        drivers = [await house.client(name=f"driver {n}") for n in range(2)]
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        for driver in drivers:
            driver.answers[PERMISSION] = lambda _: asyncio.shield(never)
        session = await drivers[0].new()
        await drivers[1].load(session)
        drama = Drama(house, session, drivers)
        for step, number in plan:
            await drama.play(step, number)
        await drama.finish()
        await drama.check()
        never.cancel()
        for viewer in drama.viewers:
            await viewer.leave()
