"""Conversations with real agents, and what each of them must still know: asked of the model itself.

Each turn has a word of its own, such as `heron3`. The model's stand-in keeps the words of each
request, so that a turn which is missing there, or there though it was cleared, is seen.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from acp_check.model_endpoint import (
    ModelEndpoint,
    ModelPrompt,
    Reply,
    StandInHandler,
    ToolUse,
    Words,
    endpoint,
)
from tests.editor import Refused
from tests.interop.client import Client, introduction, opening, prompt
from tests.interop.conversation import text
from tests.interop.place import Place
from tests.interop.real_agents import (
    CLAUDE,
    CODEX,
    CODEX_OF_OPENAI,
    GEMINI,
    GOOSE,
    OPENCODE,
    QWEN,
    RealAgent,
)
from tests.interop.wire import Json


class Habits(NamedTuple):
    """An agent and its own ways to forget and to shorten, each tried with the real one.

    `full` is the number of tokens of a request that makes it shorten by itself, 0 if it never does.
    """

    agent: RealAgent
    clear: str = ""
    compact: str = ""
    full: int = 0
    has_plan: bool = False
    """Its question about a plan has an answer that clears the context."""


HABITS = (
    Habits(CLAUDE, "/clear", "/compact", 985_000, has_plan=True),
    Habits(CODEX, "", "/compact", 570_000),
    Habits(CODEX_OF_OPENAI, "", "/compact", 570_000),
    Habits(OPENCODE, "", "/compact", 190_000),
    Habits(QWEN, "/clear", "", 172_000),  # its /compress refuses a conversation as short as ours
    Habits(GEMINI),
    Habits(GOOSE, "/clear", "/compact", 190_000),
)

# --- the model ------------------------------------------------------------------------------------

FULL, PLAN, SLOW = "FULL", "MAKE-A-PLAN", "SLOW"

COMMON = "zz"
"""The beginning of all keys."""

HANDED_OVER = "# Earlier in this conversation"
SUMMARY = "<state_snapshot><summary>A SUMMARY of all that.</summary></state_snapshot>"
LONG = "and " + ", ".join(map(str, range(1000)))
"""More than a summary: Qwen Code keeps what is shorter. Gemini takes a repetition for a loop."""
SUMMARIZES = re.compile(r"summar|compress|state_snapshot", re.IGNORECASE)
NAMES = re.compile(r"\btitle\b|ONLY the suggestion|\(none yet\)")
COUNTS = re.compile(r'("(?:(?:input|prompt|total)_tokens|(?:prompt|total)TokenCount)": )\d+')
PLANNED = "Implement the following plan"
"""The title of Claude's transcript of a plan, which no prompt of a person begins: it has a row."""
PLAN_FILE = re.compile(r"/[^\s\"\\]*/plans/[\w-]+\.md")


class Given(NamedTuple):
    """A request for an answer: its last line, and all that it tells."""

    order: str
    told: str


class Mind:
    """Answers with `ECHO: ` and the last line; `given` has all requests, oldest first.

    A line with FULL costs as many tokens as `full` says. MAKE-A-PLAN writes a plan and asks for it.
    """

    def __init__(self) -> None:
        self.given: list[Given] = []
        self.full = 0
        self.url = ""
        self._endpoint: ModelEndpoint | None = None
        self._request = threading.local()
        self._planned: dict[str, int] = {}

    @contextmanager
    def running(self, patch: pytest.MonkeyPatch) -> Iterator[Mind]:
        """Answer at `url` for the block."""
        event, answer = StandInHandler.event, StandInHandler.answer

        def counted(words: str) -> str:
            tokens = getattr(self._request, "tokens", 0)
            return COUNTS.sub(rf"\g<1>{tokens}", words) if tokens else words

        def with_tokens(to: StandInHandler, data: Json | str, name: str = "") -> None:
            event(to, counted(data if isinstance(data, str) else json.dumps(data)), name)

        def whole(to: StandInHandler, body: bytes, status: int = 200) -> None:
            answer(to, counted(body.decode()).encode(), status)

        patch.setattr(StandInHandler, "event", with_tokens)
        patch.setattr(StandInHandler, "answer", whole)
        with endpoint(self._answer) as found:
            self.url, self._endpoint = found.url, found
            yield self

    def _answer(self, asked: ModelPrompt) -> Reply:
        lines = asked.user.strip().splitlines() or [""]
        order = lines[-1]
        self._request.tokens = 0
        summarizes = not re.search(r"\b[a-z]+\d+\b", order) and SUMMARIZES.search(asked.user)
        if NAMES.search(order) or not (asked.tools or summarizes):
            known = "\n".join((*asked.earlier, asked.user))
            key = re.search(rf"\b({COMMON}[a-z]+)\d+\b", known)
            of = "A late title of" if HANDED_OVER in known else "About"
            named = f"{of} {key[1] if key else 'nothing'}"
            return Words((json.dumps({"title": named}) if "Write the" in order else named,))
        if summarizes:
            self._request.tokens = self.full or 5000  # a summary that costs as much is no gain
            return Words((f"<analysis>.</analysis>{SUMMARY}",))
        self.given.append(Given(order, "\n".join((*asked.earlier, asked.user))))
        if PLAN in order and (step := self._planned.get(order, 0)) < 2:
            self._planned[order] = step + 1
            if step:
                return ToolUse("ExitPlanMode", {})
            assert self._endpoint is not None
            file = PLAN_FILE.findall(self._endpoint.requests[-1])[0]
            return ToolUse("Write", {"file_path": file, "content": "# A plan\n1. Do it."})
        if FULL in order:
            self._request.tokens = self.full
        if SLOW in order:
            return Words(self._slowly())
        return Words((f"ECHO: {order[:200]}\n", LONG))

    def _slowly(self) -> Iterator[str]:
        pause = threading.Event()
        for number in range(400):
            yield f"tick{number} "
            pause.wait(0.05)


# --- what is held ---------------------------------------------------------------------------------


@dataclass
class Held:
    """A conversation. Turns are numbers; the word of one is `key` and its number.

    The model must be given what is `alive` and nothing that is `gone`. What it shortened is in
    neither.
    """

    key: str
    habits: Habits
    session_id: str
    said: list[str] = field(default_factory=list)
    """All prompts, in order, as a person typed them."""
    alive: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    turns: int = 0
    title: str = ""
    faults: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """The lines of acphold's own that a person was shown."""
    given: list[str] = field(default_factory=list)
    """The turns that the model was given with each prompt."""

    def next(self, words: str) -> str:
        self.turns += 1
        return f"{words} {self.key}{self.turns}"

    def told_in(self, text: str) -> set[int]:
        """The turns of which the text has the word."""
        return {int(number) for number in re.findall(rf"\b{self.key}(\d+)\b", text)}

    def forget(self) -> None:
        self.gone |= self.alive
        self.alive = set()

    def shorten(self) -> None:
        self.alive = set()

    def copy(self, session_id: str) -> Held:
        """A fork; its turns have numbers of their own."""
        lists = [*self.said], {*self.alive}, {*self.gone}
        return Held(self.key, self.habits, session_id, *lists, turns=self.turns + 100)

    def fault(self, what: str) -> None:
        self.faults.append(f"{self.key}: {what}")


def own_lines(updates: list[Json]) -> list[str]:
    """What acphold itself says among these updates."""
    found = []
    for update in updates:
        if update["sessionUpdate"] == "notice" or "acphold/notice" in (update.get("_meta") or {}):
            content = update.get("content")
            said = content.get("text") if isinstance(content, dict) else update.get("message")
            found.append(str(said or update.get("title") or json.dumps(update)).strip())
    return found


ACPHOLD = [sys.executable, "-m", "acphold"]


class Table:
    """Conversations of a test: one journal, and one home in which all agents keep their own."""

    def __init__(self, place: Place, mind: Mind) -> None:
        self.place = place
        self.mind = mind
        self.held: list[Held] = []

    @asynccontextmanager
    async def front(
        self, agent: RealAgent, *options: str, bare: bool = False
    ) -> AsyncIterator[Client]:
        """A client of acphold and the agent, or of the agent alone; both have ended afterwards."""
        command = agent.command()
        if not bare:
            command = [*ACPHOLD, "wrap", *options, "--", *command]
        self.mind.full = next(it.full for it in HABITS if it.agent is agent)
        env = agent.prepare(self.place.home, self.mind.url)
        async with self.place.client(command, **env) as client:
            client.answers["session/request_permission"] = cleared
            await client.call("initialize", introduction())
            if not bare:  # titles may have been late
                await client.call("session/list", {"cwd": str(self.place.work)})
            yield client
            if client.process.returncode is None:
                await (self.place.family.kill() if bare else client.leave())
        await self.place.family.gone(30.0)
        age(self.place.home)

    async def begin(self, client: Client, key: str, habits: Habits) -> Held:
        opened = await client.call("session/new", opening(self.place.work))
        self.held.append(held := Held(COMMON + key, habits, str(opened["sessionId"])))
        return held

    async def load(self, client: Client, held: Held) -> None:
        """Load it; the screen must show all that was said, and nothing else as the person's."""
        before = len(client.updates(held.session_id))
        await client.call("session/load", opening(self.place.work, held.session_id))
        seen = [
            text([update], "user_message_chunk")
            for update in client.updates(held.session_id)[before:]
            if update["sessionUpdate"] == "user_message_chunk"
        ]
        told = Counter(own_lines(client.updates(held.session_id)[before:]))
        held.lines += (told - Counter(held.lines)).elements()
        if seen != held.said:
            held.fault(f"the screen shows {seen}, and said was {held.said}")

    async def say(self, client: Client, held: Held, words: str) -> None:
        """One prompt; what its model was given is compared with what is alive."""
        said = held.next(words)
        so_far = len(self.mind.given)
        await self.command(client, held, said)
        own = said.split()[-1]
        asked = [it.told for it in self.mind.given[so_far:] if it.order.split()[-1:] == [own]]
        if not asked:
            held.fault(f"no model was asked {said!r}")
        told = held.told_in(max(asked, key=len, default="")) - {held.turns}
        held.given.append(",".join(map(str, sorted(told))))
        if held.alive - told:
            held.fault(f"at {said!r} the model lacked {sorted(held.alive - told)}")
        if told & held.gone:
            held.fault(f"at {said!r} the model had {sorted(told & held.gone)}, which are gone")
        held.alive.add(held.turns)

    async def command(self, client: Client, held: Held, said: str) -> None:
        """A prompt of which the model need not hear, such as a command of the agent's own."""
        so_far = len(client.updates(held.session_id))
        held.said.append(said)
        try:
            await client.call("session/prompt", prompt(held.session_id, said))
        except Refused as exc:
            held.fault(f"{said!r} was refused: {exc.error}")
        held.lines += own_lines(client.updates(held.session_id)[so_far:])

    async def die_in(self, client: Client, held: Held) -> None:
        """Everything is killed in the middle of an answer."""
        said = held.next(f"{SLOW} one:")
        held.said.append(said)
        client.begin("session/prompt", prompt(held.session_id, said))
        await client.until(lambda: "tick3 " in text(client.updates(held.session_id)))
        held.alive.add(held.turns)
        await self.place.family.kill()
        await client.ended()

    async def happen(self, event: str, client: Client, held: Held) -> None:
        """An event at the agent in front of which the conversation is open."""
        habits = held.habits
        match event:
            case "clear":
                await self.command(client, held, habits.clear)
                held.forget()
            case "compact":
                await self.command(client, held, habits.compact)
                held.shorten()
            case "by itself":
                await self.say(client, held, f"{FULL} now:")
                held.shorten()
            case "plan":
                asked = {"sessionId": held.session_id, "modeId": "plan"}
                await client.call("session/set_mode", asked)
                await self.say(client, held, f"{PLAN} of it:")
                held.forget()

    async def fork(self, held: Held) -> Held:
        made = await self.acphold(held.habits.agent, "continue", held.session_id, "--from", "last")
        self.held.append(copy := held.copy(made.split()[0]))
        return copy

    async def acphold(self, agent: RealAgent, *words: str) -> str:
        try:
            return await self.place.acphold(agent.prepare(self.place.home, self.mind.url), *words)
        except subprocess.CalledProcessError as exc:
            raise AssertionError(f"{words}: {exc.stderr}") from exc

    async def rows(self, agent: RealAgent) -> list[Json]:
        """The rows of `acphold list`."""
        told = await self.acphold(agent, "list", "--json", "--all")
        return [json.loads(line) for line in told.splitlines()]

    async def count(self, agent: RealAgent) -> None:
        """As many rows as conversations, here and in the editor, with the titles of their first
        day; each word is found once."""
        await self.acphold(agent, "import", "--wait")
        known = {it.session_id: it for it in self.held}
        rows = await self.rows(agent)
        async with self.front(agent, "--all-agents") as client:
            listed = await client.call("session/list", {"cwd": str(self.place.work)})
        for of, found in (("list", rows), ("the editor's list", listed["sessions"])):
            titles = {row["sessionId"]: str(row["title"]) for row in found}
            for session_id, title in titles.items():
                if title.startswith(PLANNED):
                    continue
                if (it := known.get(session_id)) is None:
                    self.held[0].fault(f"{of} has {title!r} {session_id} as well")
                elif it.title and title != it.title:
                    it.fault(f"in {of} {it.title!r} has become {title!r}")
            for session_id in known.keys() - titles.keys():
                known[session_id].fault(f"{of} lacks it")
        told = await self.acphold(agent, "search", f"{COMMON}*", "--limit", "10000", "--json")
        hits = [json.loads(line) for line in told.splitlines()]
        searched = Counter(
            (hit["sessionId"], word)
            for hit in hits
            if hit["speaker"] == "user"
            for word in re.findall(rf"{COMMON}[a-z]+\d+", hit["excerpt"])
        )
        for it in self.held:
            said = Counter((it.session_id, one.split()[-1]) for one in it.said if it.key in one)
            if lacking := said - searched:
                it.fault(f"search lacks {[word for _, word in lacking]}")
            searched -= said
        planned = {row["sessionId"] for row in rows if str(row["title"]).startswith(PLANNED)}
        for (session_id, word), times in searched.items():
            if session_id in planned:
                continue
            self.held[0].fault(f"search has {word} {times} times more, in {session_id}")

    async def first_day(self, agent: RealAgent) -> None:
        """Note the titles of today."""
        titles = {row["sessionId"]: row["title"] for row in await self.rows(agent)}
        for it in self.held:
            it.title = it.title or titles.get(it.session_id, "")


def cleared(params: Json) -> Json:
    """The option that clears the context with a plan; without one what allows once."""
    options = params["options"]
    clears = [it for it in options if "clear" in it["optionId"]]
    chosen = (clears or [it for it in options if it["kind"] == "allow_once"] or options)[0]
    return {"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}


def age(home: Path) -> None:
    """Gemini names files by the minute, and spoils one of the same minute when it opens that."""
    day = (datetime.now() - timedelta(days=1)).strftime("session-%Y-%m-%dT")
    files = sorted(home.glob(".gemini/tmp/*/chats/session-2*"))
    for number, file in enumerate(files):
        minute = f"{number // 60:02}-{number % 60:02}"
        new = file.with_name(f"{day}{minute}-{file.name.rpartition('-')[2]}")
        assert new == file or not new.exists()
        file.rename(new)


def delete(held: Held, home: Path) -> None:
    """Take the agent's own copy of a conversation away, as a person or a clean-up does."""
    kept = [file for file in home.rglob(f"*{held.session_id}*") if file.is_file()]
    kept += home.glob(f".gemini/tmp/*/chats/*{held.session_id[:8]}.json*")
    for file in kept:
        file.unlink()
    for name, table in (("opencode.db", "session"), ("sessions.db", "sessions")):
        for database in home.rglob(name):
            with sqlite3.connect(database) as connection:
                kept += connection.execute(
                    f"DELETE FROM {table} WHERE id = ? RETURNING id", (held.session_id,)
                )
    assert kept, f"{held.habits.agent.name} keeps nothing of {held.session_id}"
