"""Where the cases play: the agent's processes, and what several cases look at, played once.

An *episode* is something that is done with the agent, like one whole turn. What it came to is kept:
the case that judges it gets its violation, and every other case that needs it is told that it
cannot be looked at. So an agent that hangs costs its time once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from acphold.conformance.dialogue import Answer, Call, Dialogue, listening, unobservable
from acphold.conformance.errands import Errand
from acphold.conformance.host import BARE, EQUIPPED, Host, RealShell, Shell
from acphold.conformance.record import Json, Line, Record
from acphold.conformance.subject import Running, Subject
from acphold.conformance.verdicts import NotAdvertised, Reach, Signal, Violation
from acphold.errors import AgentStartError
from acphold.schema import (
    AgentCapabilities,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
)
from acphold.version import __version__

T = TypeVar("T")

Episode = Callable[["Stage"], Awaitable[T]]


class Settings(Struct, frozen=True):
    """How a check is made. Seconds: `timeout` for each answer, `quiet` for what must not come,
    `late` for what would come too late, `patience` for an MCP server to be spoken to once its
    session is there.

    `sign_in` is the id of the method to sign in with, `named` what was asked for by name. The
    folders of sessions are made in `folder`, by default where temporary files are.
    """

    timeout: float = 10.0
    quiet: float = 0.25
    late: float = 1.5
    patience: float = 2.5
    sign_in: str | None = None
    named: frozenset[str] = frozenset()
    folder: str | None = None


class Session(Struct, frozen=True):
    """A session of the agent; `opened` is what it answered."""

    id: str
    cwd: str
    opened: NewSessionResponse
    answer: Answer

    @classmethod
    def of(cls, answer: Answer, cwd: str) -> Session:
        """The session that `session/new` was answered with; Violation when there is none."""
        opened = answer.fitting(NewSessionResponse)
        return cls(opened.session_id, cwd, opened, answer)


class Turn(Struct, frozen=True):
    """A prompt and its answer; `updates` are those of its session in between."""

    session: Session
    asked: Line
    answer: Answer
    updates: tuple[Line, ...]

    @property
    def text(self) -> str:
        """All that the agent said in it."""
        return "".join(chunk_text(line) for line in self.updates if _is_said(line))


def chunk_text(line: Line) -> str:
    """The text of a chunk; "" of any other update."""
    content = line.update.get("content")
    return str(content.get("text", "")) if isinstance(content, dict) else ""


def _is_said(line: Line) -> bool:
    return line.update_kind == "agent_message_chunk"


class Stage:
    """See the module. `folder` is a folder for files, `work` the folder of most sessions."""

    def __init__(
        self,
        subject: Subject,
        folder: str,
        settings: Settings,
        *,
        shell: Callable[[], Shell] | None = None,
    ) -> None:
        self.subject = subject
        self.settings = settings
        self.folder = Path(folder).resolve()
        self.work = self.folder / "work"
        self.work.mkdir()
        self.records: list[Record] = []
        self.made: dict[str, str] = {}
        """Every session that was made, with its folder."""
        self.leftovers: int | None = None
        """How many processes an agent left behind when its client left; None: unknown."""
        self._shell = shell or (lambda: RealShell(self.work))
        self._running: dict[Dialogue, AsyncExitStack] = {}
        self._spare: asyncio.Task[Running] | None = None
        self._shared: dict[str, Dialogue] = {}
        self._played: dict[Any, tuple[Any, Signal | None]] = {}

    # -- episodes -----------------------------------------------------------------------------

    async def judge(self, episode: Episode[T]) -> T:
        """What an episode came to; raises the signal that it ended with."""
        if episode not in self._played:
            try:
                self._played[episode] = (await episode(self), None)
            except Signal as signal:
                self._played[episode] = (None, signal)
        value, ended = self._played[episode]
        if ended is not None:
            raise type(ended)(ended.why, *ended.lines) from None
        found: T = value
        return found

    async def given(self, episode: Episode[T]) -> T:
        """What an episode came to; NotObservable when something went wrong in it."""
        try:
            return await self.judge(episode)
        except Violation as violation:
            raise unobservable(violation) from None

    # -- connections ------------------------------------------------------------------------

    async def connect(
        self, name: str, offers: Json = BARE, *, is_restart: bool = False
    ) -> Dialogue:
        """A new process of the agent, to which nothing has been said.

        One is always started ahead, for many agents take seconds for that; but not beside the very
        first, which may have a home to make. With `is_restart` it is started now.
        """
        record = Record(name, offers)
        stack = AsyncExitStack()
        running = await (self.subject.start() if is_restart else self._ahead())
        dialogue = Dialogue(
            running,
            Host(offers, self._shell),
            record,
            timeout=self.settings.timeout,
            quiet=self.settings.quiet,
            late=self.settings.late,
        )
        await stack.enter_async_context(listening(dialogue))
        self.records.append(record)
        self._running[dialogue] = stack
        return dialogue

    async def _ahead(self) -> Running:
        """The process that was started ahead; the next one is started."""
        spare, self._spare = self._spare, None
        running = await (self.subject.start() if spare is None else spare)
        if self._shared:
            self.start_ahead()
        return running

    def start_ahead(self) -> None:
        """Start the next process now; a connection is made at once, and would only lie idle."""
        if self.subject.reach is Reach.SERVER:
            return
        self._spare = asyncio.create_task(self.subject.start(), name="start ahead")

    async def meet(self, name: str, offers: Json = BARE, *, is_restart: bool = False) -> Dialogue:
        """A new process that has been introduced; NotObservable when that fails."""
        dialogue = await self.connect(name, offers, is_restart=is_restart)
        try:
            (await introduce(dialogue, offers)).succeeded()
            await self.sign_in(dialogue)
        except Violation as violation:
            await self.leave(dialogue)
            raise unobservable(violation) from None
        return dialogue

    async def sign_in(self, dialogue: Dialogue) -> None:
        """Sign in, if that was asked for; Violation when it is refused."""
        if self.settings.sign_in is not None:
            signed = await dialogue.ask("authenticate", {"methodId": self.settings.sign_in})
            signed.succeeded()

    async def leave(self, dialogue: Dialogue) -> None:
        """End one process."""
        stack = self._running.pop(dialogue, None)
        if stack is not None:
            await stack.aclose()

    async def main(self) -> Dialogue:
        """The process of most cases, whose client offers nothing."""
        await self.given(admitted)
        return await self._shared_one("main", BARE)

    async def equipped(self) -> Dialogue:
        """The process of cases whose client offers all there is."""
        return await self._shared_one("equipped", EQUIPPED)

    def share(self, name: str, dialogue: Dialogue) -> None:
        """From now on this is the process of this name."""
        self._shared[name] = dialogue

    def shared(self, name: str) -> Dialogue:
        """The process of this name."""
        return self._shared[name]

    async def _shared_one(self, name: str, offers: Json) -> Dialogue:
        found = self._shared.get(name)
        if found is None or found.ended:
            if found is not None:
                await self.leave(found)
            found = self._shared[name] = await self.meet(name, offers)
        return found

    async def aclose(self) -> None:
        """End all processes."""
        while self._running:
            await self.leave(next(iter(self._running)))
        if self._spare is not None:
            with suppress(AgentStartError):
                await (await self._spare).aclose()

    # -- what most cases do -----------------------------------------------------------------

    async def hello(self) -> InitializeResponse:
        """What the agent answered to `initialize`; NotObservable when that was no answer."""
        return await self.given(understood)

    async def capabilities(self) -> AgentCapabilities:
        """What it advertises."""
        return (await self.hello()).agent_capabilities

    async def needs(self, *names: str) -> None:
        """NotAdvertised unless the agent advertises all of this."""
        if not names:
            return
        can = await self.capabilities()
        for name in names:
            if not advertises(can, name):
                raise NotAdvertised(f"the agent does not advertise {CAPABILITIES[name]}")

    def new_folder(self, name: str) -> str:
        """A folder beside `work`, or below such a one."""
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return str(path)

    def other_folder(self, name: str, than: str) -> str | None:
        """A folder beside `work`; None where the file system takes its name for that of `than`."""
        path = self.new_folder(name)
        return None if os.path.samefile(path, than) else path

    def new_file(self, name: str, text: str, folder: str = "work") -> Path:
        """A file in `work`, or in another folder beside it."""
        path = Path(self.new_folder(folder)) / name
        path.write_text(text, encoding="utf-8")
        return path

    def has(self, name: str) -> bool:
        """Whether there is such a file in `work`."""
        return (self.work / name).exists()

    def is_same(self, path: str, other: Path) -> bool:
        """Whether two paths name one file, through links or not."""
        return os.path.realpath(path) == os.path.realpath(other)

    def params(self, **more: object) -> Json:
        """The params of `session/new`, and of load and resume with a `sessionId`."""
        return {"cwd": str(self.work), "mcpServers": [], **more}

    async def new_session(self, dialogue: Dialogue, **more: object) -> Session:
        """A new session; Violation when there is none, SignInNeeded."""
        params = self.params(**more)
        answer = await dialogue.ask("session/new", params, seconds=2 * dialogue.timeout)
        session = Session.of(answer, params["cwd"])
        self.made[session.id] = session.cwd
        return session

    async def prompt(
        self, dialogue: Dialogue, session: Session, *content: Errand | str | Json
    ) -> Turn:
        """A whole turn; Violation when it is not answered with a result that fits."""
        call = begin_prompt(dialogue, session, *content)
        return await self.turn(dialogue, session, call)

    async def turn(
        self, dialogue: Dialogue, session: Session, call: Call, seconds: float | None = None
    ) -> Turn:
        """The rest of a turn that was begun."""
        limit = TURN_TIMEOUTS * self.settings.timeout if seconds is None else seconds
        answer = await dialogue.answered(call, limit)
        answer.fitting(PromptResponse)
        return Turn(session, call.asked, answer, between(dialogue.record, session, call, answer))


TURN_TIMEOUTS = 3
"""A turn may take so many times what other answers may: a model thinks."""


def begin_prompt(
    dialogue: Dialogue, session: Session, *content: Errand | str | Json, **more: object
) -> Call:
    """Send a prompt."""
    blocks = [_block(it) for it in content]
    return dialogue.begin("session/prompt", {"sessionId": session.id, "prompt": blocks, **more})


def _block(content: Errand | str | Json) -> Json:
    if isinstance(content, dict):
        return content
    words = content.words if isinstance(content, Errand) else content
    return {"type": "text", "text": words}


def between(record: Record, session: Session, call: Call, answer: Answer) -> tuple[Line, ...]:
    """The updates of a session from a request to its answer."""
    first, last = call.asked.number, answer.line.number
    found = record.updates(session.id, since=first)
    return tuple(line for line in found if line.number < last)


async def introduce(dialogue: Dialogue, offers: Json = BARE, version: int = 1) -> Answer:
    """`initialize`."""
    return await dialogue.ask(
        "initialize",
        {
            "protocolVersion": version,
            "clientCapabilities": offers,
            "clientInfo": {
                "name": "acphold-check",
                "title": "acphold check",
                "version": __version__,
            },
        },
        seconds=START_TIMEOUTS * dialogue.timeout,
    )


START_TIMEOUTS = 3
"""Starting may take so many times what other answers may: some programs load for long."""


async def introduced(stage: Stage) -> Answer:
    """The answer to `initialize` of the main process."""
    dialogue = await stage.connect("main")
    answer = await introduce(dialogue)
    stage.share("main", dialogue)
    stage.start_ahead()
    return answer


async def admitted(stage: Stage) -> None:
    """The main process has introduced itself, and is signed in to."""
    await stage.judge(understood)
    await stage.sign_in(stage.shared("main"))


async def understood(stage: Stage) -> InitializeResponse:
    """What it says."""
    return (await stage.judge(introduced)).fitting(InitializeResponse)


CAPABILITIES = {
    "load": "loadSession",
    "list": "sessionCapabilities.list",
    "resume": "sessionCapabilities.resume",
    "close": "sessionCapabilities.close",
    "delete": "sessionCapabilities.delete",
    "directories": "sessionCapabilities.additionalDirectories",
    "image": "promptCapabilities.image",
    "audio": "promptCapabilities.audio",
    "embedded": "promptCapabilities.embeddedContext",
    "http": "mcpCapabilities.http",
    "sse": "mcpCapabilities.sse",
    "logout": "auth.logout",
}
"""What a rule may need, and where an agent advertises it."""


def advertises(can: AgentCapabilities, name: str) -> bool:
    """Whether an agent says that it can do this; `name` as in CAPABILITIES."""
    sessions = can.session_capabilities
    found: dict[str, object] = {
        "load": can.load_session,
        "list": sessions.list,
        "resume": sessions.resume,
        "close": sessions.close,
        "delete": sessions.delete,
        "directories": sessions.additional_directories,
        "image": can.prompt_capabilities.image,
        "audio": can.prompt_capabilities.audio,
        "embedded": can.prompt_capabilities.embedded_context,
        "http": can.mcp_capabilities.http,
        "sse": can.mcp_capabilities.sse,
        "logout": can.auth.logout,
    }
    return found[name] is not None and found[name] is not False
