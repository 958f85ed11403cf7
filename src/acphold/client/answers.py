"""A client's answers to an agent: permission, forms and pages, files and terminals.

| request | answered by |
|---|---|
| anything in `handlers` | that handler |
| `session/request_permission` | the policy, or `on_permission` |
| `elicitation/create` | `on_form`, `on_page`, if they were given |
| `fs/*`, `terminal/*` | the workspace of the session, if files and terminals were offered |
| anything else | -32601 |

When a turn is cancelled, its requests to a person are answered `cancelled` at once.

Sources: spec v1, tool calls, "Requesting Permission"; prompt turn, "Cancellation"; elicitation.
"""

# See docs/decisions.md, 6.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Struct

from acp_wire.schema import (
    CREATE_ELICITATION,
    REQUEST_PERMISSION,
    CancelledPermissionOutcome,
    ClientCapabilities,
    CreateElicitationResponse,
    ElicitationContentValue,
    ElicitationSchema,
    PermissionOption,
    RequestPermissionRequest,
    SelectedPermissionOutcome,
    ToolKind,
    decode,
    encode,
    members,
)
from acp_wire.surroundings import Surroundings
from acphold.client import bounds
from acphold.conversation.history.timeline import ToolCall, ToolDraft
from acphold.errors import DeclarationError, MethodNotFoundError, UnknownSessionError

if TYPE_CHECKING:
    from acp_wire.workspace.workspace import Workspace


class FormQuestion(Struct, frozen=True):
    """An agent asks for values; `session_id` is None while there is no session yet.

    Show which agent asks, and let the person change what they entered.
    """

    message: str
    form: ElicitationSchema
    session_id: str | None = None
    tool_call_id: str | None = None


class PageQuestion(Struct, frozen=True):
    """An agent asks a person to open `url`, as for a sign-in.

    Show all of it and its host before.
    """

    message: str
    url: str
    id: str
    session_id: str | None = None


Filled: TypeAlias = "Mapping[str, ElicitationContentValue] | Literal['dismissed'] | None"
"""The values by field; None if they are declined."""

AskForm: TypeAlias = Callable[[FormQuestion], "Filled | Awaitable[Filled]"]
"""Fills in a form."""

AskPage: TypeAlias = Callable[[PageQuestion], "bool | Awaitable[bool | None] | None"]
"""True to open it, False if declined, None if they go away."""

DISMISSED = CreateElicitationResponse(action="cancel")
DECLINED = CreateElicitationResponse(action="decline")


def form_answer(filled: Filled, form: ElicitationSchema) -> CreateElicitationResponse:
    """Return the answer to the agent; DeclarationError if the values do not fit the form.

    Fields that were left out get the form's defaults.
    """
    if filled is None:
        return DECLINED
    if isinstance(filled, str):
        return DISMISSED
    defaults = {name: getattr(field, "default", None) for name, field in form.properties.items()}
    values = {name: value for name, value in defaults.items() if value is not None} | {**filled}
    if bad := form.misfits(values) | {name for name in values if name not in form.properties}:
        raise DeclarationError(f"these values do not fit the form: {', '.join(sorted(bad))}")
    return CreateElicitationResponse(action="accept", content=values)


def page_answer(agrees: bool | None) -> CreateElicitationResponse:
    """Return the answer to the agent about a page."""
    if agrees is None:
        return DISMISSED
    return CreateElicitationResponse(action="accept") if agrees else DECLINED


Rule: TypeAlias = Literal["allow", "reject", "ask"]
"""Allow it once, reject it, or ask the callback."""

Kind: TypeAlias = "ToolKind | Literal['*']"
"""A kind of tool that a policy names; `*` is the rest."""

Policy: TypeAlias = "Rule | Mapping[Kind, Rule]"
"""A rule for all, or for each kind of tool (`read`, `edit`, `execute` …)."""

KINDS = (*get_args(ToolKind), "*")

SWITCH_MODE = "switch_mode"
"""The kind of a tool that changes what the agent may do from then on."""


class PermissionQuestion(Struct, frozen=True):
    """An agent asks for permission. `tool_call` has the fields of the request, `options` are the
    answers in the order to show them.
    """

    session_id: str
    tool_call: ToolCall
    options: tuple[PermissionOption, ...]
    request: RequestPermissionRequest


PermissionAnswer: TypeAlias = PermissionOption | str | bool | None
"""An option or its id; True or False to allow or reject once; None if nobody chose, which ends the
turn at some agents."""

AskPermission: TypeAlias = Callable[
    [PermissionQuestion], "PermissionAnswer | Awaitable[PermissionAnswer]"
]
"""Decides it."""


def policy_to_follow(policy: Policy | None, *, has_callback: bool) -> Policy:
    """Return the policy to follow; DeclarationError if it cannot be followed.

    Without one, a callback is asked; without that, everything is rejected.
    """
    if policy is None:
        return "ask" if has_callback else "reject"
    if not isinstance(policy, (str, Mapping)):
        raise DeclarationError(
            "a policy must be a rule, or a mapping from kinds of tools to rules; pass a function "
            "as `on_permission`"
        )
    rules = {"*": policy} if isinstance(policy, str) else policy
    for kind in rules:
        if kind not in KINDS:
            raise DeclarationError(
                f"{kind!r} is not a kind of tool; the kinds are {', '.join(KINDS)}"
            )
    for rule in rules.values():
        if rule not in get_args(Rule):
            raise DeclarationError(
                f"{rule!r} is not a rule for permissions; the rules are allow, reject and ask"
            )
        if rule == "ask" and not has_callback:
            raise DeclarationError("a policy with the rule `ask` needs `on_permission`")
    return policy


def rule_for(policy: Policy, kind: str) -> Rule:
    """Return the policy's rule for a kind of tool.

    A change of mode is allowed only by a policy that names that kind: the agent may then do things
    unasked that the policy was not meant for.
    """
    if isinstance(policy, str):
        return "reject" if kind == SWITCH_MODE and policy == "allow" else policy
    for known, rule in policy.items():  # not by the key: an agent may be newer than our kinds
        if known == kind:
            return rule
    return rule_for(policy.get("*", "reject"), kind)


def option_for(
    answer: PermissionAnswer, options: Sequence[PermissionOption]
) -> PermissionOption | None:
    """Return the option for an answer; None if the agent offers no such option.

    True and False never stand for "always". DeclarationError for an option that is not offered.
    """
    if answer is None:
        return None
    if isinstance(answer, bool):
        kind = "allow_once" if answer else "reject_once"
        return next((option for option in options if option.kind == kind), None)
    wanted = answer if isinstance(answer, str) else answer.option_id
    for option in options:
        if option.option_id == wanted:
            return option
    offered = ", ".join(option.option_id for option in options)
    raise DeclarationError(f"the agent offers no option {wanted!r}, only {offered}")


def outcome(
    answer: PermissionAnswer, options: Sequence[PermissionOption]
) -> SelectedPermissionOutcome | CancelledPermissionOutcome:
    """Return the answer to the agent.

    A "yes" becomes a "no" if the agent only offers to allow always. A "no" is a reject option if
    the agent has one, because "cancelled" ends the whole turn at some agents.
    """
    option = option_for(answer, options)
    if option is None and answer is True:
        option = option_for(False, options)
    if option is None:
        return CancelledPermissionOutcome()
    return SelectedPermissionOutcome(option_id=option.option_id)


Handler: TypeAlias = Callable[[dict[str, Any]], "object | Awaitable[object]"]
"""Answers a method, JSON in, JSON out. Its exceptions become error answers."""


class AskingSession(Protocol):
    """The session that a request is about."""

    @property
    def id(self) -> str: ...

    @property
    def roots(self) -> Sequence[str]:
        """Its folders, absolute, `cwd` first."""

    @property
    def is_cancelling(self) -> bool:
        """True from the cancellation of its turn until the turn has ended."""

    @property
    def may_be_for_others(self) -> bool:
        """True if requests may now be for other clients: no turn of ours is running."""

    def tool(self, tool_call_id: str) -> ToolCall | None:
        """Return the present state of a tool call."""

    def give_up(self, error: Exception) -> bool:
        """Cancel its turn, which is to raise this error; False if there is none of ours."""


class Answers(Struct, frozen=True, kw_only=True):
    """The answers to an agent's requests; see `acphold.connect`. Callbacks may be coroutines."""

    permission: Policy | None = None
    on_permission: AskPermission | None = None
    on_form: AskForm | None = None
    on_page: AskPage | None = None
    files: bool | Sequence[str] = False
    terminals: bool = False
    signs_in: bool = False
    handlers: Mapping[str, Handler] = {}

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that are offered to the agent."""
        return ClientCapabilities.of(
            files=bool(self.files),
            terminals=self.terminals,
            forms=self.on_form is not None,
            pages=self.on_page is not None,
            sign_in=self.signs_in,
        )


async def leave_to_others(session_id: str) -> None:
    """Return when no other client has the session open; if one answers, the question is withdrawn.

    Used for requests of another client's turn: that client decides while it is attached.
    """
    from acphold.live.reading.processes import has_other_clients  # imports the server

    while await has_other_clients(session_id):  # noqa: ASYNC110 - they are in other processes
        await asyncio.sleep(bounds.OTHERS_LOOK_SECONDS)


class Duties:
    """Answers requests as `answers` says; closing it ends terminals."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._policy = policy_to_follow(
            answers.permission, has_callback=answers.on_permission is not None
        )
        self._leaves_to_others = answers.permission is None and answers.on_permission is None
        self._workspaces: dict[str, Workspace] = {}
        self._open: dict[asyncio.Future[Any], str] = {}  # open questions to a person, by session

    async def answer(self, method: str, params: bytes, session: AskingSession | None) -> bytes:
        """Return the result as JSON; raises AcpError with the code for it."""
        if (handler := self._answers.handlers.get(method)) is not None:
            from inspect import isawaitable  # late: many a command asks nothing

            result = handler(msgspec.json.decode(params or b"{}"))
            return encode(await result if isawaitable(result) else result)
        if method == REQUEST_PERMISSION.name:
            return encode(REQUEST_PERMISSION.result(await self._permit(params, session)))
        if method == CREATE_ELICITATION.name:
            return encode(await self._elicit(params, session))
        serves_files = method.startswith("fs/") and self._answers.files
        serves_terminals = method.startswith("terminal/") and self._answers.terminals
        if not serves_files and not serves_terminals:
            raise MethodNotFoundError(method)
        if session is None:
            raise UnknownSessionError("", reason=f"{method} names no session that is open here")
        if session.id not in self._workspaces:
            from acp_wire.workspace.roots import Roots
            from acp_wire.workspace.workspace import Workspace  # most programs serve neither

            cwd, *additional = session.roots
            files = self._answers.files
            roots = Roots(cwd, additional if isinstance(files, bool) else [*additional, *files])
            self._workspaces[session.id] = Workspace(roots, Surroundings.here())
        return await self._workspaces[session.id].answer(method, params)

    def cancel(self, session_id: str) -> None:
        """Cancel the open questions of a session: its turn is cancelled."""
        for question, asking_session in list(self._open.items()):
            if asking_session == session_id:
                question.cancel()

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
        asking_session = asked.session_id if session is None else session.id  # of a sub-agent, too
        may_be_for_others = session is not None and session.may_be_for_others
        # Other clients decide while they are attached.
        if (
            self._leaves_to_others
            and may_be_for_others
            and (await self._ask(leave_to_others, asking_session, asking_session, True))
        ):
            return CancelledPermissionOutcome()
        if rule != "ask":
            return outcome(rule == "allow", asked.options)
        assert self._answers.on_permission is not None  # the policy was checked
        question = PermissionQuestion(asked.session_id, tool, asked.options, asked)
        asking = self._ask(self._answers.on_permission, question, asking_session, None)
        return await _decide(asking, session, lambda it: outcome(it, asked.options), None)

    async def _elicit(self, params: bytes, session: AskingSession | None) -> object:
        asked = decode(CREATE_ELICITATION.params, params).value
        session_id = None if asked.session_id is UNSET else asked.session_id
        asking_session = (session_id or "") if session is None else session.id
        if session is not None and session.is_cancelling:
            return DISMISSED
        if asked.mode == "form" and self._answers.on_form is not None:
            form = asked.requested_schema
            assert isinstance(form, ElicitationSchema)  # the type has checked it
            question = FormQuestion(asked.message, form, session_id, asked.tool_call_id)
            asking = self._ask(self._answers.on_form, question, asking_session, "dismissed")
            return await _decide(asking, session, lambda it: form_answer(it, form), "dismissed")
        if asked.mode == "url" and self._answers.on_page is not None:
            assert isinstance(asked.url, str)
            assert isinstance(asked.elicitation_id, str)
            page = PageQuestion(asked.message, asked.url, asked.elicitation_id, session_id)
            asking = self._ask(self._answers.on_page, page, asking_session, None)
            return await _decide(asking, session, page_answer, None)
        raise MethodNotFoundError(CREATE_ELICITATION.name)

    async def _ask(
        self, callback: Callable[[Any], Any], question: object, session_id: str, cancelled: Any
    ) -> Any:
        """Return the callback's answer; `cancelled` if the turn is cancelled first."""
        from inspect import isawaitable

        answer = callback(question)
        if not isawaitable(answer):
            return answer
        asking = asyncio.ensure_future(answer)
        self._open[asking] = session_id
        try:
            await asyncio.wait([asking])
        finally:
            del self._open[asking]
            asking.cancel()  # if the question is withdrawn; no effect once there is an answer
        return cancelled if asking.cancelled() else asking.result()


async def _decide(
    asking: Awaitable[Any],
    session: AskingSession | None,
    meaning: Callable[[Any], object],
    no_answer: Any,
) -> object:
    """Return the meaning of the answer of one of the program's callbacks. What that raises is
    raised by the turn, which is cancelled; without a turn, the agent is told of it."""
    try:
        return meaning(await asking)
    except Exception as exc:
        if session is None or not session.give_up(exc):
            raise
        return meaning(no_answer)
