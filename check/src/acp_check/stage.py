"""The stage of the cases: the agent's processes, and shared episodes, each played once.

An *episode* is something done with the agent, like one whole turn. Its result is kept: the case
that judges it gets its violation, and every other case that needs it gets NotObservable. So an
agent that hangs costs its time only once.

Each episode and each case is a *part* with sessions of its own, and ends the turns that it begins.
A *scene* is the parts of one module: they share two processes, and no other scene uses these. A
process that leaves a request unanswered is left, so that the next case gets another one. Observers
see the lines of the cases that they name, and of all episodes that these need. So no verdict
depends on what else is played.
"""

# See docs/decisions.md, 34.

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from acp_check import bounds
from acp_check.dialogue import (
    BARE,
    EQUIPPED,
    AgentGone,
    Call,
    Dialogue,
    Host,
    RealShell,
    Shell,
    Silence,
    listening,
    unobservable,
)
from acp_check.errands import GREET, Errand
from acp_check.grammar import CAPABILITIES
from acp_check.record import PART, Json, Record, WireLine
from acp_check.subject import RunningAgent, Subject
from acp_check.verdicts import NotAdvertised, NotObservable, Reach, Signal, Violation
from acp_check.version import __version__
from acp_wire.errors import AgentStartError
from acp_wire.schema import (
    AgentCapabilities,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
)
from acp_wire.schema.updates import has_capability

T = TypeVar("T")

Episode = Callable[["Stage"], Awaitable[T]]


def part_of(played: Callable[..., object], name: str | None = None) -> str:
    """Return the part that an episode is, or a case of this name; its scene comes first."""
    return f"{played.__module__.rpartition('.')[2]}/{name or played.__qualname__}"


def _scene() -> str:
    return PART.get().partition("/")[0]


@contextmanager
def playing(part: str) -> Iterator[str]:
    """Play the block as this part."""
    token = PART.set(part)
    try:
        yield part
    finally:
        PART.reset(token)


class CheckSettings(Struct, frozen=True):
    """Settings of a check.

    In seconds: `timeout` for each answer, `quiet` for unwanted messages, `late` for late ones,
    `patience` until an MCP server is contacted once its session exists.

    `sign_in` is the id of the sign-in method, `named` the patterns asked for by name. The folders
    of sessions are made in `folder`, by default among the temporary files.
    """

    timeout: float = 10.0
    quiet: float = 0.25
    late: float = 1.5
    patience: float = 2.5
    sign_in: str | None = None
    named: frozenset[str] = frozenset()
    folder: str | None = None


class CheckedSession(Struct, frozen=True):
    """A session of the agent, and the answer that opened it."""

    id: str
    cwd: str
    answer: Call

    @classmethod
    def of(cls, answer: Call, cwd: str) -> CheckedSession:
        """Return the session from an answer to `session/new`; raises Violation if there is none."""
        return cls(answer.fitting(NewSessionResponse).session_id, cwd, answer)


class CheckedTurn(Struct, frozen=True):
    """A prompt and its answer; `updates` are its session's in between."""

    session: CheckedSession
    asked: WireLine
    answer: Call
    updates: tuple[WireLine, ...]

    @property
    def text(self) -> str:
        """All text of the agent in this turn."""
        chunks = (line for line in self.updates if line.update_kind == "agent_message_chunk")
        return "".join(map(chunk_text, chunks))

    def repeats(self, word: str) -> None:
        """Raise NotObservable unless the agent repeats this word of the file it was to read."""
        if word not in self.text:
            raise NotObservable("the agent did not read the file that it was asked to read")


def chunk_text(line: WireLine) -> str:
    """Return the text of a chunk; "" for any other update."""
    content = line.update.get("content")
    return str(content.get("text", "")) if isinstance(content, dict) else ""


class Stage:
    """The stage. `folder` is a folder for files, `work` the folder of most sessions."""

    def __init__(
        self,
        subject: Subject,
        folder: str,
        settings: CheckSettings,
        *,
        shell: Callable[[], Shell] | None = None,
        records: list[Record] | None = None,
    ) -> None:
        self.subject = subject
        self.settings = settings
        self.folder = Path(folder).resolve()
        self.work = self.folder / "work"
        self.work.mkdir()
        self.records: list[Record] = [] if records is None else records
        self.made: dict[str, str] = {}
        """The sessions that a case may expect to find, each with its folder."""
        self.leftovers: int | None = None
        """Number of processes left behind when the client left; None if unknown."""
        self._shell = shell or (lambda: RealShell(self.folder))
        self._running: dict[Dialogue, AsyncExitStack] = {}
        self._spare: asyncio.Task[RunningAgent] | None = None
        self._alive: set[RunningAgent] = set()
        self._is_over = False
        self._shared: dict[tuple[str, str], Dialogue] = {}
        self._played: dict[Any, tuple[Any, Signal | None]] = {}
        self._playing: dict[Any, asyncio.Lock] = {}
        self._needed: defaultdict[str, set[str]] = defaultdict(set)
        """The episodes that each part has asked for."""
        self._own: defaultdict[str, list[Dialogue]] = defaultdict(list)
        """The processes that are left at the end of each part."""

    # -- episodes -----------------------------------------------------------------------------

    async def judge(self, episode: Episode[T]) -> T:
        """Return an episode's result; raises the signal that it ended with."""
        self._needed[PART.get()].add(part_of(episode))
        # Cases that are played beside each other may need the same one.
        async with self._playing.setdefault(episode, asyncio.Lock()):
            if episode not in self._played:
                try:
                    with playing(part_of(episode)) as part:
                        self._played[episode] = (await episode(self), None)
                        await self.leave_those_of(part)
                except Signal as signal:
                    self._played[episode] = (None, signal)
        value, ended = self._played[episode]
        if ended is not None:
            raise type(ended)(ended.why, *ended.lines) from None
        found: T = value
        return found

    def with_needed(self, parts: Iterable[str]) -> set[str]:
        """Return these parts, and all that they need."""
        found: set[str] = set()
        more = set(parts)
        while more:
            found |= more
            more = {it for part in more for it in self._needed[part]} - found
        return found

    async def need(self, episode: Episode[T]) -> T:
        """Return an episode's result; raises NotObservable if something went wrong in it."""
        try:
            return await self.judge(episode)
        except Violation as violation:
            raise unobservable(violation) from None

    # -- connections ------------------------------------------------------------------------

    async def connect(
        self, name: str, offers: Json = BARE, *, is_restart: bool = False, stays: bool = False
    ) -> Dialogue:
        """Return a new process of the agent, to which nothing has been sent.

        It is left at the end of its part, unless it `stays` for others.

        One is always started ahead, because many agents take seconds for that; but not beside the
        very first, which may have to create its home. With `is_restart` it is started now.
        """
        if self._is_over:
            raise NotObservable("the check is over")
        record = Record(name, offers, PART.get())
        stack = AsyncExitStack()
        if is_restart:
            running = await self.subject.start()
        else:
            spare, self._spare = self._spare, None
            running = await (self.subject.start() if spare is None else spare)
            if self.records:
                self.start_ahead()
        dialogue = Dialogue(
            running,
            Host(offers, self._shell),
            record,
            timeout=self.settings.timeout,
            quiet=self.settings.quiet,
            late=self.settings.late,
        )
        self._alive.add(running)
        await stack.enter_async_context(listening(dialogue))
        self.records.append(record)
        self._running[dialogue] = stack
        if not stays:
            self._own[record.part].append(dialogue)
        return dialogue

    def start_ahead(self) -> None:
        """Start the next process now; not for a server, whose connection would lie idle."""
        if self.subject.reach is Reach.SERVER:
            return
        self._spare = asyncio.create_task(self.subject.start(), name="start ahead")

    async def meet(
        self, name: str, offers: Json = BARE, *, is_restart: bool = False, stays: bool = False
    ) -> Dialogue:
        """Return a new initialized process; raises NotObservable if that fails."""
        dialogue = await self.connect(name, offers, is_restart=is_restart, stays=stays)
        try:
            (await introduce(dialogue, offers)).require_result()
            await self.sign_in(dialogue)
        except Violation as violation:
            await self.leave(dialogue)
            raise unobservable(violation) from None
        return dialogue

    async def sign_in(self, dialogue: Dialogue) -> None:
        """Sign in, if that was asked for; raises Violation if it is refused."""
        if self.settings.sign_in is not None:
            signed = await dialogue.ask("authenticate", {"methodId": self.settings.sign_in})
            signed.require_result()

    async def leave(self, dialogue: Dialogue) -> None:
        """End one process."""
        stack = self._running.pop(dialogue, None)
        if stack is not None:
            await stack.aclose()
            self._alive.discard(dialogue.running)

    async def leave_those_of(self, part: str) -> None:
        """End the processes of a part."""
        for dialogue in self._own.pop(part, ()):
            await self.leave(dialogue)

    async def leave_gracefully(self, dialogue: Dialogue) -> None:
        """Leave one process properly: most save when their client does."""
        if not self._is_over:
            await dialogue.hang_up(bounds.AGENT_END_SECONDS)
        await self.leave(dialogue)

    @asynccontextmanager
    async def temporary(self, name: str) -> AsyncIterator[Dialogue]:
        """Run a new process, to which nothing has been sent, for the block."""
        dialogue = await self.connect(name)
        try:
            yield dialogue
        finally:
            await self.leave(dialogue)

    async def main(self) -> Dialogue:
        """Return the process of most cases of a scene, whose client offers nothing."""
        await self.need(first_sign_in)
        return await self._share("main", BARE)

    async def full_client(self) -> Dialogue:
        """Return the process of the scene's cases whose client offers everything."""
        return await self._share("equipped", EQUIPPED)

    async def _share(self, name: str, offers: Json) -> Dialogue:
        key = _scene(), name
        found = self._shared.get(key)
        if found is None or found.ended:
            if found is not None:
                await self.leave(found)
            with playing(""):
                met = await self.meet(f"{name}: {key[0]}", offers, stays=True)
            found = self._shared[key] = met
        return found

    async def is_at_fault(self, lost: Silence | AgentGone) -> bool:
        """Return True if a program has ended, or if the agent answers a later request in time.

        A model may take any time for a turn, unless it was cancelled and the next one ends.
        """
        if isinstance(lost, AgentGone):
            return self.subject.reach is Reach.PROGRAM
        [asked, *_] = lost.lines
        for dialogue in [*self._running]:
            if asked not in dialogue.record.lines or dialogue.ended:
                continue
            if asked.method != "session/prompt":
                return await dialogue.is_alive()
            later = dialogue.record.since(asked.number)
            sent = [it for it in later if it.method == "session/cancel"]
            if any(it.session_id == asked.session_id for it in sent):
                text = [{"type": "text", "text": GREET.words}]
                params = {"sessionId": asked.session_id, "prompt": text}
                with suppress(Silence, AgentGone):
                    return not (await dialogue.ask("session/prompt", params)).is_refused
        return False

    async def leave_unanswered(self) -> None:
        """Leave the scene's shared processes that have not answered all requests."""
        for key, dialogue in [*self._shared.items()]:
            if key[0] == _scene() and dialogue.has_pending:
                del self._shared[key]
                await self.leave(dialogue)

    async def kill(self) -> None:
        """Kill all processes, and start none any more."""
        self._is_over = True
        spare, self._spare = self._spare, None
        if spare is not None:
            with suppress(AgentStartError):
                self._alive.add(await spare)
        await asyncio.gather(*(it.kill() for it in [*self._alive]))

    async def aclose(self) -> None:
        """End all processes, side by side: one may take seconds."""
        while self._running:
            await asyncio.gather(*map(self.leave, [*self._running]))
        spare, self._spare = self._spare, None
        if spare is not None:
            with suppress(AgentStartError):
                await (await spare).aclose()

    # -- common steps ---------------------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """True once the answer to `initialize`, or that there is none, is known."""
        return first_response in self._played

    async def hello(self) -> InitializeResponse:
        """Return the answer to `initialize`; raises NotObservable if there was none."""
        return await self.need(first_response)

    async def capabilities(self) -> AgentCapabilities:
        """Return the advertised capabilities."""
        return (await self.hello()).agent_capabilities

    async def needs(self, *names: str) -> None:
        """Raise NotAdvertised unless the agent advertises all of this."""
        if not names:
            return
        can = await self.capabilities()
        for name in names:
            if not advertises(can, name):
                raise NotAdvertised(f"the agent does not advertise {'.'.join(CAPABILITIES[name])}")

    def new_folder(self, name: str) -> str:
        """Make a folder beside `work`, or below such a one."""
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return str(path)

    def other_folder(self, name: str, than: str) -> str | None:
        """Make a folder beside `work`; None if the file system takes its name for `than`'s."""
        path = self.new_folder(name)
        return None if os.path.samefile(path, than) else path

    def new_file(self, name: str, text: str, folder: str = "work") -> Path:
        """Make a file in `work`, or in another folder beside it."""
        path = Path(self.new_folder(folder)) / name
        path.write_text(text, encoding="utf-8")
        return path

    def has(self, name: str) -> bool:
        """Return True if there is such a file in `work`."""
        return (self.work / name).exists()

    def is_same(self, path: str, other: Path) -> bool:
        """Return True if two paths name one file, through links or not."""
        return os.path.realpath(path) == os.path.realpath(other)

    def params(self, **more: object) -> Json:
        """Return the params of `session/new`, and of load and resume with a `sessionId`."""
        return {"cwd": str(self.work), "mcpServers": [], **more}

    async def new_session(self, dialogue: Dialogue, **more: object) -> CheckedSession:
        """Make a new session; raises Violation if there is none, or SignInNeeded."""
        params = self.params(**more)
        answer = await dialogue.ask("session/new", params, seconds=2 * dialogue.timeout)
        session = CheckedSession.of(answer, params["cwd"])
        self.made[session.id] = session.cwd
        return session

    async def delete_sessions(self) -> None:
        """Delete the sessions that were made; raises NotAdvertised if the agent cannot do that."""
        await self.needs("delete")
        dialogue = await self.main()
        answered = (
            str(it.result["sessionId"])
            for record in self.records
            for it in record.exchanges("client", "session/new")
            if "sessionId" in it.result
        )
        ids = dict.fromkeys([*self.made, *answered])  # some are not for another case
        calls = [dialogue.begin("session/delete", {"sessionId": id}) for id in ids]
        for call in calls:
            await dialogue.answer_to(call)

    async def session_after(self, episode: Episode[object]) -> tuple[Dialogue, CheckedSession]:
        """Make a new session in the main process, given that an episode went well.

        Raises NotObservable if there is none.
        """
        await self.need(episode)
        dialogue = await self.main()
        return dialogue, await self._need_session(dialogue)

    async def session_to_reopen(self, name: str, *errands: Errand) -> CheckedSession:
        """Return a session in which these turns ran, whose process was left properly.

        Raises NotObservable if that fails.
        """
        dialogue = await self.meet(name)
        try:
            session = await self._need_session(dialogue)
            for errand in errands:
                await self.need_turn(dialogue, session, errand)
        finally:
            await self.leave_gracefully(dialogue)
        return session

    async def full_session_after(self, episode: Episode[object]) -> tuple[Dialogue, CheckedSession]:
        """Make a new session of the client that offers everything."""
        await self.need(episode)
        dialogue = await self.full_client()
        return dialogue, await self._need_session(dialogue)

    async def reopen(
        self, dialogue: Dialogue, how: str, session: CheckedSession, **more: object
    ) -> Call:
        """Ask to load or to resume a session, `how` being "load" or "resume"."""
        params = self.params(**{"sessionId": session.id, "cwd": session.cwd, **more})
        return await dialogue.ask(f"session/{how}", params, seconds=3 * dialogue.timeout)

    async def _need_session(self, dialogue: Dialogue) -> CheckedSession:
        try:
            return await self.new_session(dialogue)
        except Violation as violation:
            raise unobservable(violation) from None

    async def prompt(
        self, dialogue: Dialogue, session: CheckedSession, *content: Errand | str | Json
    ) -> CheckedTurn:
        """Run a whole turn; raises Violation if it is not answered with a result that fits."""
        call = begin_prompt(dialogue, session, *content)
        return await self.turn(dialogue, session, call)

    async def need_turn(
        self, dialogue: Dialogue, session: CheckedSession, errand: Errand
    ) -> CheckedTurn:
        """Run a whole turn that a case only needs; raises NotObservable if it goes wrong."""
        try:
            return await self.prompt(dialogue, session, errand)
        except Violation as violation:
            raise unobservable(violation) from None

    async def turn(
        self,
        dialogue: Dialogue,
        session: CheckedSession,
        call: Call,
        seconds: float | None = None,
    ) -> CheckedTurn:
        """Return the rest of a turn that was begun."""
        limit = bounds.TURN_TIMEOUTS * self.settings.timeout if seconds is None else seconds
        answer = await dialogue.answer_to(call, limit)
        answer.fitting(PromptResponse)
        return CheckedTurn(
            session, call.asked, answer, between(dialogue.record, session, call, answer)
        )


def begin_prompt(
    dialogue: Dialogue, session: CheckedSession, *content: Errand | str | Json, **more: object
) -> Call:
    """Send a prompt."""
    blocks: list[Json] = []
    for it in content:
        words = it.words if isinstance(it, Errand) else it
        blocks.append(words if isinstance(words, dict) else {"type": "text", "text": words})
    return dialogue.begin("session/prompt", {"sessionId": session.id, "prompt": blocks, **more})


def between(
    record: Record, session: CheckedSession, call: Call, answer: Call
) -> tuple[WireLine, ...]:
    """Return the updates of a session between a request and its answer."""
    first, last = call.asked.number, answer.line.number
    found = record.updates(session.id, since=first)
    return tuple(line for line in found if line.number < last)


async def introduce(dialogue: Dialogue, offers: Json = BARE, version: int = 1) -> Call:
    """Send `initialize`."""
    params: Json = {
        "protocolVersion": version,
        "clientCapabilities": offers,
        "clientInfo": CLIENT_INFO,
    }
    if version > 1:  # the draft of version 2 requires the first two under these names
        params |= {"info": CLIENT_INFO, "capabilities": {}}
    return await dialogue.ask(
        "initialize", params, seconds=bounds.START_TIMEOUTS * dialogue.timeout
    )


CLIENT_INFO: Json = {
    "name": "acphold-check",
    "title": "acphold check",
    "version": __version__,
}


async def first_answer(stage: Stage) -> Call:
    """Return the first process's answer to `initialize`."""
    return (await stage.judge(first_process))[1]


async def first_process(stage: Stage) -> tuple[Dialogue, Call]:
    """Start the very first process and initialize it."""
    dialogue = await stage.connect("the first", stays=True)
    answer = await introduce(dialogue)
    stage.start_ahead()
    return dialogue, answer


async def first_sign_in(stage: Stage) -> None:
    """Sign in to the first process."""
    await stage.judge(first_response)
    await stage.sign_in((await stage.need(first_process))[0])


async def first_response(stage: Stage) -> InitializeResponse:
    """Return that answer as its type."""
    return (await stage.judge(first_answer)).fitting(InitializeResponse)


def advertises(can: AgentCapabilities, name: str) -> bool:
    """Return True if an agent advertises this; `name` as in CAPABILITIES."""
    return has_capability(msgspec.to_builtins(can), *CAPABILITIES[name])
