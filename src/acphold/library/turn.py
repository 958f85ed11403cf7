"""`acphold.Turn`: one prompt, for the author's coroutine that answers it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, get_args

from msgspec import UNSET, Struct

from acp_wire.schema import (
    ContentBlock,
    Cost,
    PermissionOption,
    Plan,
    PlanEntry,
    SessionInfoUpdate,
    TextContent,
    ToolKind,
    UsageUpdate,
    encode,
)
from acp_wire.schema.shapes import UnknownVariant
from acphold.conversation.history.timeline import shorten
from acphold.errors import DeclarationError
from acphold.library import bounds
from acphold.library.outbox import MESSAGE, THOUGHT, TurnOutbox, Utterance, Voice, fresh_id, refuse
from acphold.library.questions import (
    Decision,
    FormAnswer,
    Visit,
    ask_form,
    ask_page,
    ask_permission,
    recall_permission,
)
from acphold.library.tools import Entering, Location, RunningTool, permission_view, plain_step
from acphold.library.workspace import Command, PendingCommand, SessionFiles, TurnCommands

if TYPE_CHECKING:
    from acphold.conversation.history.fold import SessionState
    from acphold.library.session import AuthorSession, Session, Severity
    from acphold.library.session_servers import McpServers

LONGEST: Final = bounds.PIECE_CHARACTERS

BLOCKS: Final = get_args(ContentBlock)[0] | UnknownVariant
"""The types of content blocks."""


class TurnScope:
    """Everything that one turn has open: tool calls, commands, waits. It ends with the turn.

    `speaking` is the message that is growing now. `cancel` cancels the turn. `around` is entered
    for each step of it.
    """

    def __init__(self, opened: AuthorSession, cancel: Callable[[], None]) -> None:
        self.opened = opened
        self.outbox: TurnOutbox = TurnOutbox(opened.outbox)
        self.cancel = cancel
        self.speaking: Utterance | None = None
        self._task = asyncio.current_task()
        self._waiting: set[asyncio.Task[Any] | None] = set()
        self._tools: list[RunningTool] = []
        self._commands: TurnCommands | None = None
        self._over = False
        self.around: Entering = plain_step

    def check(self) -> None:
        """Raise DeclarationError if the turn is over."""
        if self._over:
            refuse()

    def tool(self, title: str, **described: Any) -> RunningTool:
        """Make a tool call; see `Turn.tool`."""
        self.check()
        self.speaking = None  # later pieces are another message
        tool = RunningTool(
            self.outbox, self.opened.cwd, fresh_id("call"), title, around=self.around, **described
        )
        self._tools.append(tool)
        return tool

    def commands(self) -> TurnCommands:
        """The commands of this turn."""
        self.check()
        if self._commands is None:
            opened = self.opened
            self._commands = TurnCommands(opened.client, opened.folders, opened.terminals)
        return self._commands

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let this task wait for a client or a server in the block, at most until the turn ends.

        Raises DeclarationError if the turn is over already.
        """
        self.check()
        task = asyncio.current_task()
        self._waiting.add(task)
        try:
            yield
        finally:
            self._waiting.discard(task)

    def close(self) -> None:
        """Refuse new messages and everything else that the author starts from now on."""
        self._over = True
        self.speaking = None

    def give_up(self) -> None:
        """Refuse further updates of a turn that does not end."""
        self.close()
        self.outbox.close()

    async def aclose(self) -> None:
        """End what the turn left running, and journal all its updates.

        Raises the journal's error if that failed.
        """
        self.close()
        for task in self._waiting:
            if task is not None and task is not self._task:
                task.cancel()
        for tool in self._tools:
            if tool.announced and not self.outbox.over:
                await tool.fail()
        if self._commands is not None:
            await self._commands.aclose()
        self.outbox.close()
        self.around = plain_step  # the middleware holds the turn: a cycle is collected late
        await self.opened.outbox.finish()


class Turn:
    """One prompt, and everything an agent can do about it.

    `prompt` has the user's content blocks for this `session`. `command` is the slash command it
    begins with, as (name, words), or None.

    When the client cancels, `asyncio.CancelledError` is raised at the current `await`. However the
    turn ends, its tool calls and commands end with it. Afterwards every method raises
    DeclarationError.
    """

    def __init__(self, scope: TurnScope, prompt: tuple[ContentBlock, ...]) -> None:
        self.session: Session = scope.opened.session
        self.prompt = prompt
        self.command: tuple[str, str] | None = None
        self._scope = scope
        self._outbox = scope.outbox

    def __repr__(self) -> str:
        return f"<Turn of {self.session.id!r}: {shorten(self.text)!r}>"

    @property
    def text(self) -> str:
        """All text of the prompt."""
        return "\n".join(block.text for block in self.prompt if isinstance(block, TextContent))

    async def history(self, *, last: int | None = None) -> SessionState:
        """Return the conversation before this prompt; see `Session.history`."""
        return await self.session.history(last=last)

    # -- messages and reports -------------------------------------------------------------

    async def say(self, content: str | ContentBlock) -> None:
        """Send a piece of the answer, in Markdown; pieces in a row are one message.

        Source: spec v1, prompt turn; content.
        """
        message = self._scope.speaking
        if (
            message is None
            or message.voice is not MESSAGE
            or content.__class__ is not str
            or len(content) > LONGEST
        ):
            await self._utter(MESSAGE, content)
        elif self._outbox.add(message.text(content)):
            await self._outbox.breathe()

    async def think(self, content: str | ContentBlock) -> None:
        """Send a piece of thought, which is shown apart."""
        await self._utter(THOUGHT, content)

    async def _utter(self, voice: Voice, content: object) -> None:
        self._scope.check()
        message = self._scope.speaking
        if message is None or message.voice is not voice:
            message = self._scope.speaking = Utterance(voice)
        if isinstance(content, str):
            for at in range(0, len(content) or 1, LONGEST):
                await self._outbox.put(message.text(content[at : at + LONGEST]))
        elif isinstance(content, BLOCKS):
            await self._outbox.put(message.block(content))
        else:
            raise TypeError(f"a message is text or a content block, not {content!r}")

    async def plan(self, entries: Sequence[str | PlanEntry]) -> None:
        """Show the whole plan; a string is a pending entry.

        `acphold.PlanEntry` has `priority` ("high", "medium", "low") and `status` ("pending",
        "in_progress", "completed"). Source: spec v1, agent plan.
        """
        if isinstance(entries, str):  # its letters would be the entries
            raise TypeError(f"a plan is a list of entries, not {entries!r}")
        shown: list[PlanEntry] = []
        for entry in entries:
            if isinstance(entry, str):
                entry = PlanEntry(content=entry, priority="medium", status="pending")
            if not isinstance(entry, PlanEntry):
                raise TypeError(f"an entry of a plan is text or a PlanEntry, not {entry!r}")
            for name, value, known in (
                ("priority", entry.priority, PlanEntry.PRIORITIES),
                ("status", entry.status, PlanEntry.STATUSES),
            ):
                if value not in known:
                    raise DeclarationError(
                        f"the {name} of a plan entry is one of {', '.join(known)}, not {value!r}"
                    )
            shown.append(entry)
        await self._report(Plan(entries=tuple(shown)))

    async def usage(
        self, used: int, size: int, cost: float | None = None, *, currency: str = "USD"
    ) -> None:
        """Report how full the model's context is: `used` of `size` tokens.

        `cost` is the cost of the session so far, in `currency` (ISO 4217). Source: spec v1,
        prompt turn, "Session Usage Updates".
        """
        if used < 0 or size < 0:
            raise DeclarationError(
                f"numbers of tokens cannot be negative: used {used}, size {size}"
            )
        spent = None if cost is None else Cost(amount=cost, currency=currency)
        await self._report(UsageUpdate(used=used, size=size, cost=spent))

    async def title(self, title: str | None) -> None:
        """Name the session in lists; None clears it. Source: spec v1, session list.

        A session without a name is listed with the first line of its first prompt.
        """
        await self._report(SessionInfoUpdate(title=title))

    async def notice(
        self, title: str, description: str = "", *, severity: Severity = "info"
    ) -> None:
        """Tell the person something outside of the conversation; it is not replayed.

        Source: RFD session notices.
        """
        self._scope.check()
        await self.session.notice(title, description, severity=severity)

    async def _report(self, update: Struct) -> None:
        self._scope.check()
        await self._outbox.put(encode(update))

    # -- actions --------------------------------------------------------------------------

    def tool(
        self,
        title: str,
        *,
        kind: ToolKind = "other",
        name: str | None = None,
        input: Any = UNSET,
        locations: Sequence[Location] = (),
    ) -> RunningTool:
        """Make a tool call: `async with turn.tool("Read main.py") as call:`.

        `kind` chooses its icon; `name` is for programs; `input` is any JSON value, else TypeError;
        `locations` are the files it works on. Source: spec v1, tool calls.
        """
        return self._scope.tool(title, kind=kind, name=name, input=input, locations=locations)

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
    ) -> PendingCommand:
        """Run a command: `async with turn.terminal("make", "test") as running:`, or `await` it.

        It runs in the client's terminal if there is one, otherwise here, in the session's `cwd` or
        another folder inside the session's folders. `env` is added to the environment. At most
        `output_bytes` from the end of the output are kept. Raises TerminalStartError and
        WorkspaceError. Source: spec v1, terminals.
        """
        wanted = Command(command, args, dict(env or {}), cwd, output_bytes)
        return PendingCommand(self._scope.commands(), wanted)

    @property
    def mcp(self) -> McpServers:
        """The session's MCP servers: `turn.mcp["name"]`, `tools()`, `call(server, tool, …)`."""
        from acphold.library.session_servers import McpServers

        return McpServers(self._scope.opened.servers, self._scope)

    # -- questions ------------------------------------------------------------------------

    async def ask_permission(
        self,
        question: str,
        *,
        tool: RunningTool | None = None,
        kind: ToolKind = "other",
        input: Any = UNSET,
        remember: str | None = None,
        options: Sequence[PermissionOption] | None = None,
    ) -> Decision:
        """Ask the person for permission.

        A no marks `tool` as failed. Without `tool`, a tool call is made for the question, with
        `kind`, by which some clients answer, and `input`. The person sees the whole call: give it
        its whole input, and show a change as a diff before you ask. After an answer for always, a
        question with the same `remember` (by default the question) is not asked again in this
        session. `options` replaces the person's choices. Source: spec v1, tool calls, "Requesting
        Permission".
        """
        self._scope.check()
        if options is not None:
            ids = {option.option_id for option in options}
            if not ids or len(ids) < len(options):
                raise DeclarationError("a permission request needs options, each with a unique id")
        opened = self._scope.opened
        key = remember or question
        if (remembered := recall_permission(opened.store, key)) is not None:
            if tool is not None and not remembered:
                await tool.fail("not allowed")
            return remembered
        asked = self.tool(question, kind=kind, input=input) if tool is None else tool
        await asked.announce()  # the person has to see what the question is about
        await self._outbox.flush()
        with self._scope.waiting():
            async with self._scope.around("permission", question, asked) as step:
                view = permission_view(asked)
                decision = await ask_permission(opened.client, opened.store, view, key, options)
                step.result = decision
        if decision is None:  # the client reports that the turn was cancelled
            self._scope.cancel()
            await asyncio.sleep(0)
            decision = Decision(False)
        if not decision:
            await asked.fail("not allowed")
        elif tool is None:
            await asked.complete()
        return decision

    async def ask_form(
        self, message: str, fields: Mapping[str, Any], *, tool: RunningTool | None = None
    ) -> FormAnswer:
        """Ask the person for a few values.

        `fields` is a flat JSON Schema, or its properties alone: `{"name": {"type": "string"}}`. Do
        not ask for secrets. Raises CapabilityError if the client shows no forms, DeclarationError
        for a schema that no form can show, and RemoteError for values that do not fit it. Source:
        spec v1, elicitation.
        """
        self._scope.check()
        await self._outbox.flush()
        about = None if tool is None else tool.id
        with self._scope.waiting():
            async with self._scope.around("form", message, tool) as step:
                client = self._scope.opened.client
                step.result = answer = await ask_form(client, message, fields, about)
        return answer

    async def ask_page(self, message: str, url: str) -> Visit:
        """Ask the person to open a page, as for a sign-in.

        When they are done there, call `await visit.complete()`. Raises CapabilityError if the
        client opens no pages. Source: spec v1, elicitation, "URL mode".
        """
        self._scope.check()
        await self._outbox.flush()
        with self._scope.waiting():
            async with self._scope.around("page", message, None) as step:
                step.result = visit = await ask_page(self._scope.opened.client, message, url)
        return visit
