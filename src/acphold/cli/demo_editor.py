"""The demo's editor: one `acphold wrap` process, and all that was seen of a session through it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from acphold import __version__
from acphold.errors import MethodNotFoundError
from acphold.journal import Entry
from acphold.journal.entries import PROMPT as PROMPT_ENTRY
from acphold.journal.entries import UPDATE as UPDATE_ENTRY
from acphold.journal.fold import SessionState
from acphold.journal.location import VARIABLE
from acphold.journal.timeline import FINAL_STATUSES, Item, Message, ToolCall, TurnEnd
from acphold.processes.program import launch
from acphold.rpc import NotificationReceived, Peer, connected
from acphold.rpc.peer import Request
from acphold.schema import (
    INITIALIZE,
    LIST_SESSIONS,
    LOAD_SESSION,
    NEW_SESSION,
    PROMPT,
    PROTOCOL_VERSION,
    REQUEST_PERMISSION,
    UPDATE,
    ClientCapabilities,
    ClientSessionCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    LoadSessionRequest,
    NewSessionRequest,
    NoticeCapabilities,
    PromptRequest,
    RequestPermissionRequest,
    RequestPermissionResponse,
    SelectedPermissionOutcome,
    SessionInfo,
    TextContent,
    decode,
    encode,
    members,
)
from acphold.transports.child import ChildProcess

WAIT_SECONDS = 30.0
"""Longest wait for any one thing; on an idle machine each takes a fraction of a second."""

POLL_SECONDS = 0.02
"""Pause between two looks at which processes still run."""

PYTHON = (sys.executable, "-P", "-m")
"""-P: what lies in the folder the demo is called from must not be imported."""

ACPHOLD = (*PYTHON, "acphold")
AGENT = (*ACPHOLD, "demo-agent")


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
        """For the processes: ours, with this journal."""
        return {**os.environ, VARIABLE: self.journal}


class Editor:
    """See the module; make one with `editor`. `seen` holds every prompt and update, in order."""

    def __init__(self, child: ChildProcess, place: Place, audience: Audience) -> None:
        self.seen: list[Entry] = []
        self.audience = audience
        self.agent_pid = 0
        self.peer = Peer(child.transport, self, name="acphold process")
        self._child = child
        self._place = place

    @property
    def pid(self) -> int:
        """The number of the acphold process."""
        return self._child.pid

    def last_words(self) -> str:
        """What the process wrote to stderr."""
        return self._child.stderr_tail()

    # -- what it asks ---------------------------------------------------------------------

    async def initialize(self) -> InitializeResponse:
        """Introduce ourselves; the agent tells its process number."""
        answer = await self.peer.call(
            INITIALIZE,
            InitializeRequest(
                protocol_version=PROTOCOL_VERSION,
                client_info=Implementation(name="acphold-demo", version=__version__),
                client_capabilities=ClientCapabilities(
                    session=ClientSessionCapabilities(notices=NoticeCapabilities())
                ),
            ),
        )
        self.agent_pid = msgspec.convert((answer.meta or {}).get("demo/pid"), int)
        return answer

    async def new(self) -> str:
        """Begin a session; its id."""
        request = NewSessionRequest(cwd=self._place.project, mcp_servers=())
        return (await self.peer.call(NEW_SESSION, request)).session_id

    async def sessions(self) -> tuple[SessionInfo, ...]:
        """The newest sessions of the folder."""
        request = ListSessionsRequest(cwd=self._place.project)
        return (await self.peer.call(LIST_SESSIONS, request)).sessions

    async def load(self, session_id: str) -> None:
        """Have a session replayed; all of the replay is in `seen` when this returns."""
        await self.peer.call(
            LOAD_SESSION,
            LoadSessionRequest(session_id=session_id, cwd=self._place.project, mcp_servers=()),
        )

    async def prompt(self, session_id: str, words: str) -> str:
        """Run a turn; its stop reason. ConnectionLostError when acphold goes meanwhile."""
        blocks = (TextContent(text=words),)
        self._see(PROMPT_ENTRY, encode(blocks))
        answer = await self.peer.call(PROMPT, PromptRequest(session_id=session_id, prompt=blocks))
        return answer.stop_reason

    # -- what it hears --------------------------------------------------------------------

    async def on_request(self, request: Request) -> bytes:
        """Permission is always given: by its first option that allows."""
        if request.method != REQUEST_PERMISSION.name:
            raise MethodNotFoundError(request.method)
        options = decode(RequestPermissionRequest, request.params).value.options
        allow = next(option for option in options if option.kind.startswith("allow"))
        self.audience.permitted(allow.name)
        outcome = SelectedPermissionOutcome(option_id=allow.option_id)
        return encode(RequestPermissionResponse(outcome=outcome))

    async def on_notifications(self, batch: list[NotificationReceived]) -> None:
        for notification in batch:
            if notification.method == UPDATE.name:
                self._see(UPDATE_ENTRY, members(notification.params)["update"])

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
    command = [*ACPHOLD, "wrap", "--", *AGENT]
    # Its stderr is kept for the case that something fails, and does not run into the story.
    child = ChildProcess(launch(command, env=place.environment), relay_fd=None)
    try:
        made = Editor(child, place, audience)
        async with connected(made.peer):
            yield made
    finally:
        await child.aclose()


# -- what runs ------------------------------------------------------------------------------


def family(pid: int) -> set[int]:
    """A process and all that descend from it, as far as they run."""
    parents = dict(_running())
    found = {pid} & parents.keys()
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def running(pids: Iterable[int]) -> set[int]:
    """Those of `pids` that run; one that has ended and was not reaped does not."""
    return {*pids} & {pid for pid, _ in _running()}


def _running() -> Iterator[tuple[int, int]]:
    """Every process and its parent."""
    for line in _process_table():
        # "pid (name) state parent …"; the name may hold anything, so split at its last ")".
        pid, _, rest = line.partition(" ")
        state, parent = rest.rpartition(")")[2].split()[:2]
        if state[0] not in "ZX":
            yield int(pid), int(parent)


def _process_table() -> Iterator[str]:
    if sys.platform == "linux":
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError):  # it has just ended
                    yield Path(f"/proc/{name}/stat").read_text(errors="replace")
        return
    table = subprocess.run(["ps", "-axo", "pid=,stat=,ppid="], capture_output=True, text=True)
    yield from (line.strip() for line in table.stdout.splitlines())


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
    if isinstance(item, ToolCall):
        return f"tool call {item.title!r}"
    if isinstance(item, TurnEnd):
        return f"the end of a turn: {item.outcome}"
    return f"{item.role}: {item.text}"


def _value(raw: bytes | None) -> object:
    return None if raw is None else msgspec.json.decode(raw)
