"""The demo's editor: one `acphold wrap` process, and all that was seen of a session through it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

import msgspec
from msgspec import Struct

from acphold.client import PermissionQuestion, RemoteAgent, RemoteSession, connected_to
from acphold.client.endpoints import ProgramEndpoint, ProgramStart
from acphold.history import Entry
from acphold.history.entries import PROMPT as PROMPT_ENTRY
from acphold.history.entries import UPDATE as UPDATE_ENTRY
from acphold.history.fold import SessionState
from acphold.history.timeline import (
    FINAL_STATUSES,
    ContextCompaction,
    Item,
    Message,
    SubAgent,
    ToolCall,
    TurnEnd,
)
from acphold.journal.location import VARIABLE
from acphold.processes import process_tree
from acphold.processes.own_program import own_command
from acphold.schema import Implementation, PermissionOption, SessionInfo, encode
from acphold.version import __version__

WAIT_SECONDS = 30.0
"""Longest wait for any one thing; on an idle machine each takes a fraction of a second."""

POLL_SECONDS = 0.02
"""Pause between two looks at which processes still run."""


class Audience(Protocol):
    """Who watches the editor."""

    def hear(self, entry: Entry) -> None:
        """A prompt or an update was seen."""

    def permitted(self, name: str) -> None:
        """The agent asked for permission, and got this option."""


class Nobody:
    """An audience that looks away."""

    def hear(self, entry: Entry) -> None:
        return None

    def permitted(self, name: str) -> None:
        return None


class Place(Struct, frozen=True):
    """Where the demo happens: absolute paths of its journal, and of the folder it works in."""

    journal: str
    project: str

    @property
    def environment(self) -> dict[str, str]:
        """For the processes, over ours: this journal."""
        return {VARIABLE: self.journal}


class Editor:
    """See the module; make one with `editor`. `seen` holds every prompt and update, in order."""

    def __init__(self, program: ProgramEndpoint, place: Place, audience: Audience) -> None:
        self.seen: list[Entry] = []
        self.audience = audience
        self._program = program
        self._place = place
        self._agent: RemoteAgent
        self._session: RemoteSession

    @property
    def pid(self) -> int:
        """The number of the acphold process."""
        return self._program.pid

    @property
    def agent_pid(self) -> int:
        """The number of the agent's process, which it tells."""
        return msgspec.convert((self._agent.initialized.meta or {}).get("demo/pid"), int)

    def last_words(self) -> str:
        """What the process wrote to stderr."""
        return self._program.stderr_tail()

    # -- what it asks ---------------------------------------------------------------------

    def meet(self, agent: RemoteAgent) -> None:
        """The process has introduced itself."""
        self._agent = agent

    async def new(self) -> str:
        """Begin a session; its id."""
        self._session = await self._agent.new_session(self._place.project)
        return self._session.id

    async def sessions(self) -> list[SessionInfo]:
        """The sessions of the folder, newest first."""
        return [info async for info in self._agent.sessions(self._place.project)]

    async def load(self, session_id: str) -> None:
        """Have a session replayed; all of the replay is in `seen` when this returns."""
        self._session = await self._agent.load_session(session_id, self._place.project)

    async def prompt(self, words: str) -> str:
        """Run a turn; its stop reason. AgentExitedError when acphold goes meanwhile."""
        self._see(PROMPT_ENTRY, encode(self._session.blocks(words)))
        return (await self._session.prompt(words)).stop_reason or ""

    # -- what it hears --------------------------------------------------------------------

    def hear(self, _: str, update: bytes) -> None:
        """An update came."""
        self._see(UPDATE_ENTRY, update)

    def permit(self, question: PermissionQuestion) -> PermissionOption:
        """Permission is always given: by the first option that allows."""
        allow = next(it for it in question.options if it.kind.startswith("allow"))
        self.audience.permitted(allow.name)
        return allow

    def _see(self, kind: str, raw: bytes) -> None:
        entry = Entry(len(self.seen) + 1, kind, 0, raw)
        self.seen.append(entry)
        self.audience.hear(entry)

    # -- its end --------------------------------------------------------------------------

    async def kill(self) -> set[int]:
        """SIGKILL acphold and the agent's process group; whoever of them all will not end.

        Also those that got no signal must be gone soon: the guardian that acphold keeps.
        """
        everybody = family(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):  # its stdin has just closed: it may have gone already
            os.killpg(self.agent_pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                while running(everybody):  # noqa: ASYNC110 (no event tells of others' children)
                    await asyncio.sleep(POLL_SECONDS)
        return running(everybody)


@asynccontextmanager
async def editor(place: Place, audience: Audience) -> AsyncIterator[Editor]:
    """Start `acphold wrap` in front of the agent; after the block all of it has ended."""
    # Its stderr is kept for the case that something fails, and does not run into the story.
    program = ProgramEndpoint(
        ProgramStart(
            command=own_command("wrap", "--", *own_command("demo-agent")), env=place.environment
        )
    )
    made = Editor(program, place, audience)
    async with connected_to(
        program,
        on_update=made.hear,
        on_permission=made.permit,
        client_info=Implementation(name="acphold-demo", version=__version__),
        start_timeout=WAIT_SECONDS,
    ) as agent:
        made.meet(agent)
        yield made


# -- what runs ------------------------------------------------------------------------------


def family(pid: int) -> set[int]:
    """A process and all that descend from it, as far as they run."""
    parents = process_tree.parents()
    found = {pid} & parents.keys()
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def running(pids: Iterable[int]) -> set[int]:
    """Those of `pids` that run; one that has ended and was not reaped does not."""
    return {*pids} & process_tree.parents().keys()


# -- what was seen, and what is back --------------------------------------------------------


def lost(seen: SessionState, replayed: SessionState) -> list[str]:
    """What was seen and is not back as it was, named; empty when all is.

    The message that was cut off may be longer in the replay: what is in the journal need not
    have arrived yet. The status of a tool call that was open may have changed.
    """
    last = len(seen.timeline) - 1
    back = [*replayed.timeline, *[None] * len(seen.timeline)]
    gone = [
        _named(item)
        for place, item in enumerate(seen.timeline)
        if not _is_back(item, back[place], cut_off=place == last)
    ]
    return gone if _value(seen.plan) == _value(replayed.plan) else [*gone, "the plan"]


def left_open(seen: SessionState, replayed: SessionState) -> list[str]:
    """Tool calls that were open when they were last seen, and are not marked failed now."""
    failed = {
        item.tool_call_id
        for item in replayed.timeline
        if isinstance(item, ToolCall) and item.status == "failed"
    }
    return [tool for tool in open_tools(seen.timeline) if tool not in failed]


def open_tools(timeline: Sequence[Item]) -> list[str]:
    """The ids of the tool calls that have not come to an end."""
    return [
        item.tool_call_id
        for item in timeline
        if isinstance(item, ToolCall) and item.status not in FINAL_STATUSES
    ]


def last_said(state: SessionState) -> str:
    """The end of the last message of the agent."""
    said = [item.text for item in state.timeline if isinstance(item, Message)]
    return said[-1] if said else ""


def _is_back(item: Item, other: Item | None, *, cut_off: bool) -> bool:
    if isinstance(item, Message) and isinstance(other, Message):
        same = other.text.startswith(item.text) if cut_off else other.text == item.text
        return item.role == other.role and same
    if isinstance(item, ToolCall) and isinstance(other, ToolCall):
        names = {*item.fields} - ({"status"} if open_tools([item]) else set())
        same = all(_value(item.fields[name]) == _value(other.fields.get(name)) for name in names)
        return item.tool_call_id == other.tool_call_id and same
    return False


def _named(item: Item) -> str:
    match item:
        case Message():
            return f"{item.role}: {item.text}"
        case ToolCall():
            return f"tool call {item.title!r}"
        case ContextCompaction():
            return "a compaction of the agent's context"
        case SubAgent():
            return f"sub-agent {item.name!r}"
        case TurnEnd():
            return f"the end of a turn: {item.outcome}"


def _value(raw: bytes | None) -> object:
    return None if raw is None else msgspec.json.decode(raw)
