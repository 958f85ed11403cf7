"""A client's answers to the requests of an agent, as long as the connection lasts.

| request | answered by |
|---|---|
| anything in `handlers` | that handler |
| `session/request_permission` | the policy, or `on_permission` |
| `elicitation/create` | `on_form`, `on_page`, if they were given |
| `fs/*`, `terminal/*` | the workspace of the session, if files and terminals were offered |
| anything else | -32601 |

When a turn is cancelled, its requests to a person are answered `cancelled` at once (spec v1, prompt
turn, "Cancellation").
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from acphold.client.form_answers import (
    DISMISSED,
    AskForm,
    AskPage,
    form_answer,
    form_question,
    page_answer,
    page_question,
)
from acphold.client.policy import (
    AskPermission,
    PermissionQuestion,
    Policy,
    checked_policy,
    outcome,
    rule_for,
)
from acphold.errors import MethodNotFoundError, UnknownSessionError
from acphold.history.timeline import ToolCall, ToolDraft
from acphold.schema import (
    CREATE_ELICITATION,
    REQUEST_PERMISSION,
    BooleanConfigOptionCapabilities,
    CancelledPermissionOutcome,
    ClientCapabilities,
    ClientSessionCapabilities,
    CompactionCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileSystemCapabilities,
    NoticeCapabilities,
    RequestPermissionResponse,
    SessionConfigOptionsCapabilities,
    decode,
    encode,
)
from acphold.schema.initialize import ElicitationUrlCapabilities
from acphold.schema.splice import members

if TYPE_CHECKING:
    from acphold.workspace.workspace import Workspace

Handler: TypeAlias = Callable[[dict[str, Any]], "object | Awaitable[object]"]
"""Answers one method of an agent: JSON in, JSON out. Its exceptions become error answers."""


class AskingSession(Protocol):
    """The session that a request is about."""

    @property
    def id(self) -> str: ...

    @property
    def roots(self) -> Sequence[str]:
        """Its folders, absolute, `cwd` first."""

    @property
    def is_cancelling(self) -> bool:
        """True while a cancelled turn of it is not over."""

    @property
    def is_at_others(self) -> bool:
        """True if requests now may be for other clients: no turn of ours runs."""

    def tool(self, tool_call_id: str) -> ToolCall | None:
        """Return a tool call as it stands."""


class Answers(Struct, frozen=True, kw_only=True):
    """The answers to an agent's requests; see `acphold.connect`. Callbacks may be coroutines."""

    permission: Policy | None = None
    on_permission: AskPermission | None = None
    on_form: AskForm | None = None
    on_page: AskPage | None = None
    files: bool | Sequence[str] = False
    terminals: bool = False
    handlers: Mapping[str, Handler] = {}

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that are offered to the agent."""
        form, page = self.on_form is not None, self.on_page is not None
        files = bool(self.files)
        return ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=files, write_text_file=files),
            terminal=self.terminals,
            session=ClientSessionCapabilities(
                config_options=SessionConfigOptionsCapabilities(
                    boolean=BooleanConfigOptionCapabilities()
                ),
                notices=NoticeCapabilities(),
                compaction=CompactionCapabilities(),
            ),
            elicitation=ElicitationCapabilities(
                form=ElicitationFormCapabilities() if form else None,
                url=ElicitationUrlCapabilities() if page else None,
            )
            if form or page
            else None,
        )


LOOK_SECONDS = 1.0
"""Seconds between checks if another client still has the session open, to answer for its own
turn."""


async def left_to_others(session_id: str) -> None:
    """Return when no other client has the session open; if one answers, the question is withdrawn.

    Used for requests of another client's turn: the decision is that client's while it is attached.
    """
    from acphold.reading.neighbours import has_other_clients  # brings the server

    while await has_other_clients(session_id):  # noqa: ASYNC110 - they are in other processes
        await asyncio.sleep(LOOK_SECONDS)


class Duties:
    """Answers requests as `answers` says; closing it ends terminals."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._policy = checked_policy(
            answers.permission, has_callback=answers.on_permission is not None
        )
        self._is_mute = answers.permission is None and answers.on_permission is None
        self._workspaces: dict[str, Workspace] = {}
        self._open: dict[asyncio.Future[Any], str] = {}  # open questions to a person, by session

    async def answer(self, method: str, params: bytes, session: AskingSession | None) -> bytes:
        """Return the result as JSON; raises AcpholdError with the code for it."""
        if (handler := self._answers.handlers.get(method)) is not None:
            said = handler(msgspec.json.decode(params or b"{}"))
            return encode(await said if isawaitable(said) else said)
        match method:
            case REQUEST_PERMISSION.name:
                return encode(RequestPermissionResponse(await self._permit(params, session)))
            case CREATE_ELICITATION.name:
                return encode(await self._elicit(params, session))
        is_file, is_terminal = method.startswith("fs/"), method.startswith("terminal/")
        if not (is_file and self._answers.files) and not (is_terminal and self._answers.terminals):
            raise MethodNotFoundError(method)
        if session is None:
            raise UnknownSessionError("", reason=f"{method} names no session that is open here")
        return await self._workspace(session).answer(method, params)

    def cancel(self, session_id: str) -> None:
        """End the open questions of a session: its turn is cancelled."""
        for asked, asker in list(self._open.items()):
            if asker == session_id:
                asked.cancel()

    async def forget(self, session_id: str) -> None:
        """End the session's terminals: it is closed."""
        self.cancel(session_id)
        if (workspace := self._workspaces.pop(session_id, None)) is not None:
            await workspace.aclose()

    async def aclose(self) -> None:
        """End all terminals; may be called again."""
        for session_id in [*self._open.values(), *self._workspaces]:
            await self.forget(session_id)

    # -- what a person decides ------------------------------------------------------------

    async def _permit(self, params: bytes, session: AskingSession | None) -> Any:
        asked = decode(REQUEST_PERMISSION.params, params).value
        if session is not None and session.is_cancelling:
            return CancelledPermissionOutcome()
        known = None if session is None else session.tool(asked.tool_call.tool_call_id)
        draft = ToolDraft.of(known or ToolCall(asked.tool_call.tool_call_id, {}))
        draft.patch("tool_call_update", members(members(params)["toolCall"]))
        tool = draft.tool_call()
        rule = rule_for(self._policy, tool.kind)
        # Other clients decide while they are attached.
        is_theirs = self._is_mute and session is not None and session.is_at_others
        if is_theirs and await self._ask(left_to_others, asked.session_id, asked.session_id, True):
            return CancelledPermissionOutcome()
        if rule != "ask":
            return outcome(rule == "allow", asked.options)
        assert self._answers.on_permission is not None  # the policy was checked
        question = PermissionQuestion(asked.session_id, tool, asked.options, asked)
        answer = await self._ask(self._answers.on_permission, question, asked.session_id, None)
        return outcome(answer, asked.options)

    async def _elicit(self, params: bytes, session: AskingSession | None) -> object:
        asked = decode(CREATE_ELICITATION.params, params).value
        about = asked.session_id if isinstance(asked.session_id, str) else ""
        if session is not None and session.is_cancelling:
            return DISMISSED
        if asked.mode == "form" and self._answers.on_form is not None:
            form = form_question(asked)
            return form_answer(
                await self._ask(self._answers.on_form, form, about, "dismissed"), form.form
            )
        if asked.mode == "url" and self._answers.on_page is not None:
            agrees = await self._ask(self._answers.on_page, page_question(asked), about, None)
            return page_answer(agrees)
        raise MethodNotFoundError(CREATE_ELICITATION.name)

    async def _ask(
        self, callback: Callable[[Any], Any], question: object, session_id: str, cancelled: Any
    ) -> Any:
        """Return the callback's answer; `cancelled` if the turn is cancelled before."""
        said = callback(question)
        if not isawaitable(said):
            return said
        asking = asyncio.ensure_future(said)
        self._open[asking] = session_id
        try:
            await asyncio.wait([asking])
        finally:
            del self._open[asking]
            asking.cancel()  # if the question is withdrawn; no effect once there is an answer
        return cancelled if asking.cancelled() else asking.result()

    # -- what a session's folders are served for ------------------------------------------

    def _workspace(self, session: AskingSession) -> Workspace:
        if session.id not in self._workspaces:
            from acphold.workspace.roots import Roots
            from acphold.workspace.workspace import Workspace  # most programs serve neither

            cwd, *additional = session.roots
            files = self._answers.files
            roots = Roots(cwd, additional if isinstance(files, bool) else [*additional, *files])
            self._workspaces[session.id] = Workspace(roots)
        return self._workspaces[session.id]
