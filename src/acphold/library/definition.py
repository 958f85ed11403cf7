"""An agent's declarations: prompt, modes, options, commands, hooks, middleware; its introduction.

Sources: spec v1, initialization; authentication; prompt turn, "Stop Reasons"; session modes; slash
commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec import Struct, field

from acp_wire import schema
from acp_wire.rpc.wire_errors import incident
from acp_wire.schema import encode, members, splice
from acphold.errors import AcpError, DeclarationError, InvalidParamsError, MethodNotFoundError
from acphold.extras import is_installed
from acphold.library.session import MODE, Option, Session

if TYPE_CHECKING:
    from acphold.library.tools import RunningTool, StepKind
    from acphold.library.turn import Turn
    from acphold.live.server.principals import Visitor

T = TypeVar("T")


class Step:
    """A step of a turn, as `Agent.middleware` gets it.

    | `kind`                              | `name`                          | `result`         |
    |-------------------------------------|---------------------------------|------------------|
    | `turn`, `command`                   | of the agent or command         | the stop reason  |
    | `tool`: the block of a tool call    | of the tool, else its title     | None             |
    | `mcp`, `mcp_resource`, `mcp_prompt` | server/tool, server/uri …       | what came        |
    | `permission`, `form`, `page`        | the question that waits         | Decision, Visit… |

    `result` is set once the step is over, unless it has raised.
    `turn` is the turn it belongs to, and `tool` the tool call that it is or is about.
    """

    __slots__ = ("kind", "name", "result", "tool", "turn")

    def __init__(
        self, kind: StepKind, name: str, turn: Turn, tool: RunningTool | None = None
    ) -> None:
        self.kind: StepKind = kind
        self.name: str = name
        self.turn: Turn = turn
        self.tool: RunningTool | None = tool
        self.result: Any = None

    def __repr__(self) -> str:
        return f"<Step {self.kind} {self.name!r}>"


Middleware: TypeAlias = "Callable[[Step], AsyncIterator[None] | AbstractAsyncContextManager[Any]]"
"""Gets a step and yields once while it is done; or returns a context manager for it."""

Around: TypeAlias = "Callable[[Step], AbstractAsyncContextManager[Any]]"
"""Returns the context manager around a step."""


def around_each(middleware: Middleware) -> Around:
    """Return the middleware as a context manager; DeclarationError if it cannot be one."""
    import inspect  # late: few agents have middleware

    if inspect.isasyncgenfunction(middleware):
        return asynccontextmanager(middleware)
    # A coroutine without a `yield`, or a generator without `async`: neither could wrap a step.
    is_wrong = inspect.iscoroutinefunction(middleware) or inspect.isgeneratorfunction(middleware)
    if is_wrong or not callable(middleware):
        raise DeclarationError(
            f"{middleware!r} is not middleware: write an `async def` with one `yield`"
        )
    return middleware  # type: ignore[return-value]  # generators were the other half


@asynccontextmanager
async def take_step(
    middleware: Sequence[Around],
    turn: Turn,
    kind: StepKind,
    name: str,
    tool: RunningTool | None = None,
) -> AsyncIterator[Step]:
    """Take a step of `turn` in this block; the first of the middleware is the outermost.

    An exception of the block passes through all of them; one that catches it sees it but cannot
    suppress it. An exception raised by middleware replaces it; before the block, it replaces the
    step.
    """
    step = Step(kind, name, turn, tool)
    error: BaseException | None = None
    async with AsyncExitStack() as stack:
        for each in middleware:
            await stack.enter_async_context(each(step))
        try:
            yield step
        except BaseException as exc:
            error = exc
            raise
    if error is not None:
        raise error


StopReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal"]
"""Of a prompt coroutine; None is `end_turn`."""

STOP_REASONS: tuple[StopReason, ...] = ("end_turn", "max_tokens", "max_turn_requests", "refusal")

PromptHandler: TypeAlias = "Callable[[Turn], Awaitable[StopReason | None]]"
"""Answers one prompt; it speaks and acts through the turn."""

CommandHandler: TypeAlias = "Callable[[Turn, str], Awaitable[StopReason | None]]"
"""Answers `/name words`; it gets the words."""

SessionHook: TypeAlias = "Callable[[Session], Awaitable[None]]"
"""Gets a session that was made, loaded or closed."""

AuthHandler: TypeAlias = "Callable[[Visitor], Awaitable[str | None]]"
"""Signs a visitor in; raises to refuse. Returns the tenant whose sessions the visitor has."""

LogoutHandler: TypeAlias = "Callable[[Visitor], Awaitable[None]]"
"""Signs a visitor out."""

SignedIn: TypeAlias = "Callable[[Visitor], Awaitable[bool | str]]"
"""Tells if a visitor is signed in already; or returns its tenant."""

MethodHandler: TypeAlias = "Callable[[Any], Awaitable[Any]]"
"""Answers an extension method: JSON values in and out."""


class StopTurn(Exception):
    """Raised by an author to end the turn; the client is answered with `reason`."""

    reason: StopReason = "end_turn"


class Refusal(StopTurn):
    """The agent refuses to go on; the client may take the prompt out of the conversation."""

    reason: StopReason = "refusal"


class MaxTokens(StopTurn):
    """The model's token limit is reached."""

    reason: StopReason = "max_tokens"


class MaxTurnRequests(StopTurn):
    """The limit of model requests in one turn is reached."""

    reason: StopReason = "max_turn_requests"


class AuthMethod(Struct, frozen=True):
    """A way to sign in."""

    id: str
    name: str
    description: str | None
    handler: AuthHandler


class Definition(Struct):
    """An agent as its author has declared it; see `acphold.Agent`."""

    name: str
    version: str
    title: str | None = None
    image: bool = False
    audio: bool = False
    embedded_context: bool = False
    prompt: PromptHandler | None = None
    modes: list[schema.SessionMode] = field(default_factory=list)
    declared_options: list[Option] = field(default_factory=list)
    commands: dict[str, schema.AvailableCommand] = field(default_factory=dict)
    command_handlers: dict[str, CommandHandler] = field(default_factory=dict)
    auth_methods: list[AuthMethod] = field(default_factory=list)
    signed_in: SignedIn | None = None
    logout: LogoutHandler | None = None
    new_hooks: list[SessionHook] = field(default_factory=list)
    load_hooks: list[SessionHook] = field(default_factory=list)
    close_hooks: list[SessionHook] = field(default_factory=list)
    middleware: list[Around] = field(default_factory=list)
    methods: dict[str, MethodHandler] = field(default_factory=dict)
    notifications: dict[str, MethodHandler] = field(default_factory=dict)
    is_used: bool = False
    sessions: dict[str, Session] = field(default_factory=dict)
    """The open sessions, by id."""

    @property
    def prompt_handler(self) -> PromptHandler:
        """The coroutine that answers prompts; DeclarationError when none was declared."""
        if self.prompt is None:
            raise DeclarationError(
                f"agent {self.name!r} answers no prompts: decorate a coroutine with @agent.prompt"
            )
        return self.prompt

    @property
    def options(self) -> list[Option]:
        """All config options: the declared ones, and one for the modes if none stands for them."""
        if not self.modes or any(
            MODE in (option.id, option.category) for option in self.declared_options
        ):
            return self.declared_options
        values = tuple(
            schema.SessionConfigSelectOption(value=it.id, name=it.name, description=it.description)
            for it in self.modes
        )
        mode = Option(MODE, "Mode", self.modes[0].id, values, category=MODE)
        return [mode, *self.declared_options]


class SignIn:
    """The author's ways to sign in, as a `server.principals.Door`."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    async def tenant(self, visitor: Visitor) -> str | None:
        if self._definition.signed_in is None:
            return None
        tenant = await guard(self._definition.signed_in(visitor))
        if tenant is True:
            return ""
        return tenant if isinstance(tenant, str) else None

    async def sign_in(self, visitor: Visitor, method_id: str) -> str:
        for method in self._definition.auth_methods:
            if method.id == method_id:
                return await guard(method.handler(visitor)) or ""
        raise InvalidParamsError(
            f"methodId: there is no sign-in method {method_id!r}", field="methodId"
        )

    async def sign_out(self, visitor: Visitor) -> None:
        if self._definition.logout is None:
            raise MethodNotFoundError(schema.LOGOUT.name)
        await guard(self._definition.logout(visitor))


def introduction(definition: Definition, capabilities: schema.AgentCapabilities) -> bytes:
    """Return the answer to `initialize`."""
    answer = encode(
        schema.InitializeResponse(
            protocol_version=schema.PROTOCOL_VERSION,
            agent_capabilities=capabilities,
            auth_methods=tuple(
                schema.AuthMethodAgent(
                    id=method.id, name=method.name, description=method.description
                )
                for method in definition.auth_methods
            ),
            agent_info=schema.Implementation(
                name=definition.name, version=definition.version, title=definition.title
            ),
        )
    )
    # `mcpCapabilities.acp` is only in the unstable schema, so it is added to the encoded answer.
    advertised = members(answer)["agentCapabilities"]
    acp = b"true" if capabilities.mcp_capabilities.http else None  # by the same package
    mcp = splice(members(advertised)["mcpCapabilities"], {"acp": acp})
    return splice(answer, {"agentCapabilities": splice(advertised, {"mcpCapabilities": mcp})})


def capabilities_of(definition: Definition) -> schema.AgentCapabilities:
    """Return the capabilities that the agent advertises."""
    has_mcp = is_installed("mcp")
    logout = schema.LogoutCapabilities() if definition.logout is not None else None
    return schema.AgentCapabilities(
        prompt_capabilities=schema.PromptCapabilities(
            image=definition.image,
            audio=definition.audio,
            embedded_context=definition.embedded_context,
        ),
        mcp_capabilities=schema.McpCapabilities(http=has_mcp, sse=has_mcp),
        session_capabilities=schema.SessionCapabilities(
            additional_directories=schema.SessionAdditionalDirectoriesCapabilities(),
            resume=schema.SessionResumeCapabilities(),
            close=schema.SessionCloseCapabilities(),
        ),
        auth=schema.AgentAuthCapabilities(logout=logout),
    )


async def guard(work: Awaitable[T]) -> T:
    """Run an author's code: its exception is an incident, unless it is an error of ours.

    This applies to any exception but a cancellation of the task that waits here.
    """
    try:
        return await work
    except AcpError:
        raise
    except BaseException as exc:
        task = asyncio.current_task()
        if isinstance(exc, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        raise incident(exc) from exc
