"""One prompt, as the coroutine that answers it sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

from msgspec import UNSET, Struct

from acphold.errors import DeclarationError
from acphold.library.permission import Permissions
from acphold.library.speech import MESSAGE, THOUGHT, Message, Voice, fresh_id
from acphold.library.terminals import Command, Starting, TurnCommands
from acphold.library.toolcall import RunningTool
from acphold.schema import (
    AudioContent,
    Cost,
    EmbeddedResource,
    ImageContent,
    Plan,
    PlanEntry,
    ResourceLink,
    SessionInfoUpdate,
    TextContent,
    UnknownContent,
    UsageUpdate,
    encode,
)
from acphold.schema.updates import PlanEntryPriority, PlanEntryStatus

if TYPE_CHECKING:
    from acphold.journal import SessionState
    from acphold.library.authored import AuthoredSession
    from acphold.library.elicitation import Visit
    from acphold.library.files import SessionFiles
    from acphold.library.serving import TurnServers
    from acphold.library.toolcall import Place
    from acphold.schema import (
        ContentBlock,
        ElicitationContentValue,
        PermissionOption,
        ToolKind,
    )

BLOCKS = (
    TextContent,
    ImageContent,
    AudioContent,
    ResourceLink,
    EmbeddedResource,
    UnknownContent,
)


class Turn:
    """What was asked, and everything an agent can do about it.

    `prompt` is what the user sent, as content blocks; `text` all text in it. `command` is the
    slash command it begins with, as (name, words), or None. `session` is where it happens.

    When the client cancels, `asyncio.CancelledError` is raised at the `await` the coroutine is
    at. Everything the turn started ends with it, however it ends: tool calls are closed, commands
    ended, what was said is delivered. After that the turn can do nothing more: DeclarationError.
    """

    def __init__(
        self,
        session: AuthoredSession,
        prompt: tuple[ContentBlock, ...],
        *,
        on_cancel: Callable[[], None],
    ) -> None:
        self.session = session
        self.prompt = prompt
        self.command: tuple[str, str] | None = None
        self._on_cancel = on_cancel
        self._task = asyncio.current_task()
        self._waiting: set[asyncio.Task[Any] | None] = set()
        self._outbox = session.outbox
        self._speaking: Message | None = None
        self._tools: list[RunningTool] = []
        self._commands: TurnCommands | None = None
        self._over = False

    @property
    def text(self) -> str:
        """All text of the prompt."""
        return "\n".join(block.text for block in self.prompt if isinstance(block, TextContent))

    async def history(self) -> SessionState:
        """The conversation before this prompt; see `Session.history`."""
        return await self.session.history()

    # -- saying ---------------------------------------------------------------------------

    async def say(self, content: str | ContentBlock) -> None:
        """Send a piece of the answer; pieces in a row are one message, which is Markdown.

        Source: spec v1, prompt turn; content.
        """
        message = self._speaking
        if message is None or message.voice is not MESSAGE or content.__class__ is not str:
            await self._utter(MESSAGE, content)
        elif self._outbox.add(message.text(content)):
            await self._outbox.breathe()

    async def think(self, content: str | ContentBlock) -> None:
        """Send a piece of thought, which clients show apart from the answer."""
        message = self._speaking
        if message is None or message.voice is not THOUGHT or content.__class__ is not str:
            await self._utter(THOUGHT, content)
        elif self._outbox.add(message.text(content)):
            await self._outbox.breathe()

    async def _utter(self, voice: Voice, content: object) -> None:
        self._must_run()
        if self._speaking is None or self._speaking.voice is not voice:
            self._speaking = Message(voice)
        if isinstance(content, str):
            await self._outbox.put(self._speaking.text(content))
        elif isinstance(content, BLOCKS):
            await self._outbox.put(self._speaking.block(content))
        else:
            raise TypeError(f"text or a content block can be said, not {content!r}")

    async def plan(self, entries: Sequence[str | PlanEntry]) -> None:
        """Show the whole plan as it stands; a string is an entry that is still to be done.

        `acphold.PlanEntry` has `content`, `priority` ("high", "medium", "low") and `status`
        ("pending", "in_progress", "completed"). Source: spec v1, agent plan.
        """
        made = tuple(
            PlanEntry(content=entry, priority="medium", status="pending")
            if isinstance(entry, str)
            else _checked_entry(entry)
            for entry in entries
        )
        await self._tell(Plan(entries=made))

    async def usage(
        self, used: int, size: int, cost: float | None = None, *, currency: str = "USD"
    ) -> None:
        """Say how full the model's context is: `used` of `size` tokens.

        `cost` is what the session has cost so far, in `currency` (ISO 4217). Source: spec v1,
        prompt turn, "Session Usage Updates".
        """
        if used < 0 or size < 0:
            raise DeclarationError(f"tokens are counted from 0: used {used}, size {size}")
        spent = None if cost is None else Cost(amount=cost, currency=currency)
        await self._tell(UsageUpdate(used=used, size=size, cost=spent))

    async def title(self, title: str | None) -> None:
        """Name the session for lists; None clears the name. Source: spec v1, session list.

        A session that is not named gets the first line of its first prompt.
        """
        await self._tell(SessionInfoUpdate(title=title))

    async def notice(self, title: str, description: str = "", *, severity: str = "info") -> None:
        """Tell the person something that is no part of the conversation, and is not replayed.

        `severity` is "info", "warning" or "error". Source: RFD session notices.
        """
        self._must_run()
        await self.session.notice(title, description, severity=severity)

    async def _tell(self, update: Struct) -> None:
        self._must_run()
        await self._outbox.put(encode(update))

    # -- doing ----------------------------------------------------------------------------

    def tool(
        self,
        title: str,
        *,
        kind: ToolKind = "other",
        name: str | None = None,
        input: Any = UNSET,
        locations: Sequence[Place] = (),
    ) -> RunningTool:
        """A tool call, to be used as `async with turn.tool("Read main.py") as call:`.

        `kind` chooses its icon; `name` is what a program calls the tool; `input` is any JSON
        value; `locations` are files it works on, as paths or (path, line). TypeError for an input
        that is no JSON. Source: spec v1, tool calls.
        """
        self._must_run()
        self._speaking = None  # what is said behind it is another message
        tool = RunningTool(
            self._outbox,
            self.session.cwd,
            fresh_id("call"),
            title,
            kind=kind,
            name=name,
            input=input,
            locations=locations,
        )
        self._tools.append(tool)
        return tool

    @property
    def files(self) -> SessionFiles:
        """Text files inside the session's folders: `read(path)`, `write(path, content)`."""
        return self.session.files

    def terminal(
        self,
        command: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        output_bytes: int | None = None,
    ) -> Starting:
        """Run a command: `async with turn.terminal("make", "test") as running:`, or `await` it.

        It runs in the client's terminal where there is one, else here; `env` is added to the
        environment there. `cwd` is the session's, or a folder inside its folders. At most
        `output_bytes` from the end of its output are kept. Raises TerminalStartError and
        WorkspaceError. What still runs at the turn's end is ended. Source: spec v1, terminals.
        """
        self._must_run()
        if self._commands is None:
            session = self.session
            self._commands = TurnCommands(
                session.client, session.cwd, session.files, session.terminals
            )
        wanted = Command(command, args, dict(env or {}), cwd, output_bytes)
        return Starting(self._commands, wanted)

    @property
    def mcp(self) -> TurnServers:
        """The session's MCP servers: `turn.mcp["name"]`, `tools()`, `call(server, tool, …)`."""
        from acphold.library.serving import TurnServers

        return TurnServers(self)

    # -- asking ---------------------------------------------------------------------------

    async def allowed(
        self,
        question: str,
        *,
        tool: RunningTool | None = None,
        remember: str | None = None,
        options: Sequence[PermissionOption] | None = None,
    ) -> bool:
        """Ask the person for permission; True when it is given.

        Asks about `tool`, which is marked failed if the answer is no, or else about a call that
        is made for the question. The person may answer for always: then what has the same
        `remember` (by default the question) is not asked again in this session. Source: spec v1,
        tool calls, "Requesting Permission".
        """
        self._must_run()
        session = self.session
        permissions = Permissions(session.client, session.outbox, session.store)
        key = remember or question
        answer = permissions.remembered(key)
        asked = tool
        if answer is None:
            asked = self.tool(question) if tool is None else tool
            with self.waiting():
                answer = await permissions.ask(asked, key, options)
        if answer is None:
            self._on_cancel()  # the client says that the turn was cancelled
            await asyncio.sleep(0)
        if asked is not None and not answer:
            await asked.fail("not allowed")
        elif asked is not None and tool is None:
            await asked.complete()
        return bool(answer)

    async def ask(
        self, message: str, fields: Mapping[str, Any], *, tool: RunningTool | None = None
    ) -> dict[str, ElicitationContentValue] | None:
        """Ask the person for a few values; None when they decline.

        `fields` is a flat JSON Schema, or its properties alone: `{"name": {"type": "string"}}`.
        Never for secrets, says the protocol. Raises CapabilityError when the client shows no
        forms, and DeclarationError for a schema that no form can be made of. Source: spec v1,
        elicitation.
        """
        from acphold.library.elicitation import ask_form

        self._must_run()
        tool_call_id = None if tool is None else tool.id
        with self.waiting():
            return await ask_form(
                self.session.client, self._outbox, message, fields, tool_call_id=tool_call_id
            )

    async def visit(self, message: str, url: str) -> Visit:
        """Ask the person to open a page, to sign in elsewhere for instance.

        `agreed` in the result is their consent, not the end of what they do there; `await
        visit.done()` tells the client of that. Raises CapabilityError when the client opens no
        pages. Source: spec v1, elicitation, "URL mode".
        """
        from acphold.library.elicitation import ask_to_visit

        self._must_run()
        with self.waiting():
            return await ask_to_visit(self.session.client, self._outbox, message, url)

    # -- the end --------------------------------------------------------------------------

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For the block, this task waits for a client or a server: not beyond the turn's end."""
        task = asyncio.current_task()
        self._waiting.add(task)
        try:
            yield
        finally:
            self._waiting.discard(task)

    def _must_run(self) -> None:
        if self._over:
            raise DeclarationError("this turn is over: what it started has to end within it")

    def close(self) -> None:
        """From now on the author can say and start nothing more."""
        self._over = True
        self._speaking = None

    async def aclose(self) -> None:
        """End what the turn left running, and see that all it said is journalled.

        Raises what the journal failed with.
        """
        self.close()
        for task in self._waiting:
            if task is not None and task is not self._task:
                task.cancel()
        for tool in self._tools:
            await tool.aclose()
        if self._commands is not None:
            await self._commands.aclose()
        await self._outbox.finish()


def _checked_entry(entry: PlanEntry) -> PlanEntry:
    for value, known in (
        (entry.priority, get_args(PlanEntryPriority)),
        (entry.status, get_args(PlanEntryStatus)),
    ):
        if value not in known:
            raise DeclarationError(f"a plan entry is one of {', '.join(known)}, not {value!r}")
    return entry
