"""One prompt, as the coroutine that answers it sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast.agents.toolcall import RunningTool
from holdfast.errors import CapabilityError, DeclarationError
from holdfast.schema import (
    CREATE_ELICITATION,
    REQUEST_PERMISSION,
    AgentMessageChunk,
    AgentThoughtChunk,
    Cost,
    Notice,
    PermissionOption,
    Plan,
    PlanEntry,
    SessionInfoUpdate,
    TextContent,
    ToolCallLocation,
    UsageUpdate,
    encode,
)

if TYPE_CHECKING:
    from holdfast.agents.authored import AuthoredSession
    from holdfast.agents.interface import Listener
    from holdfast.journal import SessionState
    from holdfast.schema import ContentBlock, ToolKind

ALLOWED = "permission/"
"""Where a session's store remembers the answers that are to hold for always."""


class StopTurn(Exception):
    """Raised by an author to end the turn; `reason` is what the client is answered."""

    reason = "end_turn"


class Refusal(StopTurn):
    """The agent refuses to go on (spec v1, prompt turn, "Stop Reasons")."""

    reason = "refusal"


class MaxTokens(StopTurn):
    """The model's limit of tokens is reached."""

    reason = "max_tokens"


class MaxTurnRequests(StopTurn):
    """The limit of model requests in one turn is reached."""

    reason = "max_turn_requests"


class Turn:
    """What was asked, and everything an agent can do about it.

    `prompt` is what the user sent; `history` the conversation before it; `command` the slash
    command it begins with, as (name, words), or None.
    """

    def __init__(
        self,
        session: AuthoredSession,
        prompt: tuple[ContentBlock, ...],
        listener: Listener,
        command: tuple[str, str] | None = None,
    ) -> None:
        self.session = session
        self.prompt = prompt
        self.command = command
        self.history: SessionState = session.state
        self._listener = listener
        self._speaking: tuple[type[Any], str] | None = None
        self._tools: list[RunningTool] = []

    @property
    def text(self) -> str:
        """All text of the prompt."""
        return "\n".join(block.text for block in self.prompt if isinstance(block, TextContent))

    # -- saying ---------------------------------------------------------------------------

    async def say(self, content: str | ContentBlock) -> None:
        """Send a piece of the answer; pieces in a row are one message."""
        await self._chunk(AgentMessageChunk, content)

    async def think(self, content: str | ContentBlock) -> None:
        """Send a piece of thought."""
        await self._chunk(AgentThoughtChunk, content)

    async def _chunk(self, kind: type[Any], content: str | ContentBlock) -> None:
        if self._speaking is None or self._speaking[0] is not kind:
            self._speaking = (kind, uuid4().hex)
        block = TextContent(text=content) if isinstance(content, str) else content
        chunk = kind(content=block, message_id=self._speaking[1])
        await self.session.outbox.put(encode(chunk))

    async def plan(self, entries: Sequence[str | PlanEntry]) -> None:
        """Show the whole plan as it stands; strings are entries that are still to be done."""
        made = tuple(
            PlanEntry(content=entry, priority="medium", status="pending")
            if isinstance(entry, str)
            else entry
            for entry in entries
        )
        await self._other(Plan(entries=made))

    async def usage(self, used: int, size: int, cost: float | None = None) -> None:
        """Say how full the model's context is, in tokens; `cost` so far in US dollars."""
        spent = None if cost is None else Cost(amount=cost, currency="USD")
        await self._other(UsageUpdate(used=used, size=size, cost=spent))

    async def title(self, title: str | None) -> None:
        """Name the session; None clears the name."""
        await self._other(SessionInfoUpdate(title=title))

    async def notice(
        self, title: str, description: str | None = None, *, severity: str = "info"
    ) -> None:
        """Tell the person something that is no part of the conversation; it is not replayed."""
        if not title:
            raise DeclarationError("a notice needs a title")
        await self._other(Notice(severity=severity, title=title, description=description))

    async def _other(self, update: msgspec.Struct) -> None:
        await self.session.outbox.put(encode(update))

    # -- doing ----------------------------------------------------------------------------

    def tool(
        self,
        title: str,
        *,
        kind: ToolKind = "other",
        input: Any = None,
        locations: Sequence[str | ToolCallLocation] = (),
    ) -> RunningTool:
        """A tool call, to be used as `async with`; `input` is any JSON value."""
        self._speaking = None  # what is said behind it is another message
        places = [
            ToolCallLocation(path=place) if isinstance(place, str) else place for place in locations
        ]
        running = RunningTool(
            self.session.outbox,
            f"call_{uuid4().hex}",
            title,
            kind=kind,
            raw_input=input,
            locations=places,
        )
        self._tools.append(running)
        return running

    # -- asking ---------------------------------------------------------------------------

    async def allowed(
        self, question: str, *, tool: RunningTool | None = None, remember: str | None = None
    ) -> bool:
        """Ask the person for permission; True when it is given.

        The person may answer for always: then the same `remember` (by default the question) is
        not asked again in this session. Raises CancelledError when the turn is cancelled.
        """
        key = ALLOWED + (remember or question)
        if key in self.session.store:
            return bool(self.session.store[key])
        if tool is not None:
            return await self._ask_permission(tool, key)
        made = self.tool(question)
        yes = await self._ask_permission(made, key)
        await (made.update(status="completed") if yes else made.fail("not allowed"))
        return yes

    async def _ask_permission(self, tool: RunningTool, key: str) -> bool:
        if not tool.announced:
            await tool.announce()  # a person is asked about something that can be seen
        await self.session.outbox.flush()
        params = {
            "sessionId": self.session.id,
            "toolCall": {"toolCallId": tool.id, "title": tool.title},
            "options": OPTIONS,
        }
        raw = await self._ask(REQUEST_PERMISSION.name, params)
        outcome = msgspec.json.decode(raw, type=_PermissionAnswer).outcome
        chosen = outcome.option_id if outcome.outcome == "selected" else ""
        yes = chosen.startswith("allow")
        if chosen.endswith("always"):
            self.session.store[key] = yes
            await self.session.store.save()
        return yes

    async def ask(self, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        """Ask the person for a few values, as a flat JSON Schema describes them.

        None when the person declines. Raises CapabilityError when the client cannot show forms
        (spec v1, elicitation).
        """
        elicitation = self.session.capabilities.elicitation
        if elicitation is None or elicitation.form is None:
            raise CapabilityError("this client shows no forms (elicitation.form)")
        await self.session.outbox.flush()
        params = {
            "sessionId": self.session.id,
            "mode": "form",
            "message": message,
            "requestedSchema": schema,
        }
        raw = await self._ask(CREATE_ELICITATION.name, params)
        answer = msgspec.json.decode(raw, type=_ElicitationAnswer)
        return answer.content if answer.action == "accept" else None

    async def _ask(self, method: str, params: object) -> bytes:
        return await self._listener.on_request(method, msgspec.json.encode(params))

    # -- the end --------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End what the turn left running, and see that all it said is journalled."""
        for tool in self._tools:
            if tool.announced and tool.status in ("pending", "in_progress"):
                await tool.update(status="failed")
        await self.session.store.save()
        await self.session.outbox.flush()


OPTIONS = [
    PermissionOption(option_id="allow_once", name="Allow", kind="allow_once"),
    PermissionOption(option_id="allow_always", name="Always allow", kind="allow_always"),
    PermissionOption(option_id="reject_once", name="Reject", kind="reject_once"),
    PermissionOption(option_id="reject_always", name="Always reject", kind="reject_always"),
]


class _Outcome(msgspec.Struct, rename="camel"):
    outcome: str = "cancelled"
    option_id: str = ""


class _PermissionAnswer(msgspec.Struct):
    outcome: _Outcome


class _ElicitationAnswer(msgspec.Struct):
    action: str = "cancel"
    content: dict[str, Any] | None = None
