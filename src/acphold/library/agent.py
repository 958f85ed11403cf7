"""`acphold.Agent`: declare an agent and run it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import update_wrapper
from os import PathLike, fspath
from types import FunctionType, MethodType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Concatenate,
    Final,
    Generic,
    Literal,
    NewType,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

import msgspec

from acp_wire import schema
from acp_wire.rpc import Transport
from acphold.errors import DeclarationError, UnknownSessionError
from acphold.library.definition import (
    AuthHandler,
    AuthMethod,
    Definition,
    LogoutHandler,
    MethodHandler,
    Middleware,
    SessionHook,
    SignedIn,
    StopReason,
    around_each,
)
from acphold.library.session import Option
from acphold.library.stdio import claim_stdio_as, run_on
from acphold.serve_options import AgentOptions

if TYPE_CHECKING:
    from inspect import Signature

    from acphold.library.server import Server
    from acphold.library.session import Session
    from acphold.library.turn import Turn

Value: TypeAlias = "str | tuple[str, str] | tuple[str, str, str]"
"""An option's value; its name and description, if it has them."""

CustomCategory = NewType("CustomCategory", str)
"""One that clients know from you; it begins with "_"."""

OptionCategory: TypeAlias = (
    Literal["mode", "model", "model_config", "thought_level"] | CustomCategory
)
"""Says where clients show a config option."""

CATEGORIES: Final[tuple[str, ...]] = get_args(get_args(OptionCategory)[0])

IS_COROUTINE: Final = 0x80
"""The flag of the code of an `async def`. Source: inspect, CO_COROUTINE."""

NAME: Final = re.compile(r"\w[\w.+@-]*")
"""The name of an agent, which becomes part of addresses, lists and commands."""

StopReasonOrNone = TypeVar("StopReasonOrNone", bound="StopReason | None")
"""The result of a coroutine; a type checker shows this name to the author of a wrong one."""

S = TypeVar("S", bound="SessionHook")
A = TypeVar("A", bound="AuthHandler")
L = TypeVar("L", bound="LogoutHandler")
I = TypeVar("I", bound="SignedIn")  # noqa: E741 — one letter, as its neighbours
M = TypeVar("M", bound="MethodHandler")
W = TypeVar("W", bound="Middleware")
F = TypeVar("F")
Taken = TypeVar("Taken")
P = ParamSpec("P")
R = TypeVar("R")


class ServedOn(AgentOptions, frozen=True):
    """The options of serving one client on `transport`, until it leaves or `stop` is set."""

    transport: Transport
    stop: asyncio.Event | None = None


class ServerOptions(AgentOptions, frozen=True, kw_only=True):
    """The options of serving an agent to many clients."""

    share: bool = True


def _taking(
    options: Callable[P, Taken],
) -> Callable[[Callable[[Agent, Taken], R]], Callable[Concatenate[Agent, P], R]]:
    """Make a method take the fields of a Struct as its arguments, and list them in its `help`."""
    return lambda method: _Taking(options, method)


class _Taking(Generic[P, Taken, R]):
    # Its help is made when somebody asks for it: that takes a twentieth of an agent's start.

    def __init__(self, options: Callable[P, Taken], method: Callable[[Agent, Taken], R]) -> None:
        update_wrapper(self, method, ("__module__", "__name__", "__qualname__"))
        self._options = options
        self._method = method

    def __get__(self, agent: Agent | None, owner: type[Agent]) -> Callable[..., R]:
        return self if agent is None else MethodType(self, agent)

    def __call__(self, agent: Agent, /, *args: P.args, **given: P.kwargs) -> R:
        if given:
            method = self._method.__qualname__
            fields = msgspec.structs.fields(cast("type[msgspec.Struct]", self._options))
            kinds = {field.name: field.type for field in fields}
        for name, value in given.items():
            if name not in kinds:
                known = ", ".join(kinds)
                raise DeclarationError(f"{method}: no option {name!r}; there are: {known}")
            kind, simple = kinds[name], value
            if name == "journal":  # msgspec knows no paths
                kind, simple = str | None, fspath(value) if isinstance(value, PathLike) else value
            elif kind is not bool and get_origin(kind) is not Annotated:
                continue  # an object
            try:
                msgspec.convert(simple, kind)
            except msgspec.ValidationError as error:
                raise DeclarationError(
                    f"{method}: {name}={value!r}: {error}; see help(acphold.{method})"
                ) from None
        return self._method(agent, self._options(*args, **given))

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        from acphold.library.method_help import help_on

        return help_on(self._method, self._options)

    @property
    def __signature__(self) -> Signature:
        from acphold.library.method_help import signature_with

        return signature_with(self._options)


class Agent:
    """An agent that every ACP client can use, with durable sessions.

        agent = acphold.Agent("echo", version="1.0")

        @agent.prompt
        async def echo(turn: acphold.Turn) -> None:
            await turn.say(turn.text)

        agent.run()

    Clients can list, load, resume, close and delete its sessions, after a crash too. Only `prompt`
    has to be declared; everything is declared before `run`.

    Sessions are kept and listed under `name`; `title` is for people. `image`, `audio` and
    `embedded_context` permit such content in prompts, besides text and links (spec v1,
    initialization, "Prompt capabilities"); other content is refused.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str,
        title: str | None = None,
        image: bool = False,
        audio: bool = False,
        embedded_context: bool = False,
    ) -> None:
        if not NAME.fullmatch(name):
            raise DeclarationError(
                f"{name!r} cannot be the name of an agent, under which its sessions are stored: it "
                "is one word of letters, digits, and -_.+@ behind the first; people see `title`"
            )
        self._definition = Definition(name, version, title, image, audio, embedded_context)

    def __repr__(self) -> str:
        return f"<Agent {self.name!r} {self._definition.version}>"

    @property
    def name(self) -> str:
        """The name under which its sessions are listed."""
        return self._definition.name

    @property
    def _declarations(self) -> Definition:
        """Its declarations, to add to; DeclarationError once it was served."""
        if self._definition.is_used:
            raise DeclarationError(
                f"agent {self.name!r} is in use already: declare all of it before it is served"
            )
        return self._definition

    # -- prompts --------------------------------------------------------------------------

    def prompt(
        self, handler: Callable[[Turn], Awaitable[StopReasonOrNone]]
    ) -> Callable[[Turn], Awaitable[StopReasonOrNone]]:
        """Decorate the coroutine that answers prompts.

        It returns None or another `acphold.StopReason` (spec v1, prompt turn).
        """
        if self._declarations.prompt is not None:
            raise DeclarationError(f"agent {self.name!r} already has a prompt handler")
        self._declarations.prompt = _coroutine(handler)
        return handler

    def command(
        self, name: str, description: str, *, hint: str | None = None
    ) -> Callable[
        [Callable[[Turn, str], Awaitable[StopReasonOrNone]]],
        Callable[[Turn, str], Awaitable[StopReasonOrNone]],
    ]:
        """Declare the slash command `/name`, and decorate the coroutine that answers it.

        Without one, the command goes to that for prompts, as `turn.command`. `hint` says what may
        follow the name (spec v1, slash commands).
        """
        if not name or name.startswith("/") or any(char.isspace() for char in name):
            raise DeclarationError(f"{name!r}: a command is a single word, without the slash")
        if name in self._declarations.commands:
            raise DeclarationError(f"agent {self.name!r} already has a command {name!r}")
        wants = None if hint is None else schema.UnstructuredCommandInput(hint=hint)
        command = schema.AvailableCommand(name=name, description=description, input=wants)
        self._declarations.commands[name] = command

        def decorate(
            handler: Callable[[Turn, str], Awaitable[StopReasonOrNone]],
        ) -> Callable[[Turn, str], Awaitable[StopReasonOrNone]]:
            self._declarations.command_handlers[name] = _coroutine(handler)
            return handler

        return decorate

    # -- choices --------------------------------------------------------------------------

    def mode(self, id: str, name: str | None = None, description: str | None = None) -> None:
        """Declare a session mode; sessions start in the first one (spec v1, modes).

        Newer clients show the config option that stands for the modes.
        """
        if any(mode.id == id for mode in self._declarations.modes):
            raise DeclarationError(f"agent {self.name!r} already has a mode {id!r}")
        mode = schema.SessionMode(id=id, name=name or _title(id), description=description)
        self._declarations.modes.append(mode)

    def option(
        self,
        id: str,
        name: str | None = None,
        *,
        default: str | bool,
        values: Sequence[Value] | None = None,
        description: str | None = None,
        category: OptionCategory | None = None,
    ) -> None:
        """Declare a config option: a choice of `values`, or without them a boolean.

        A client that cannot show booleans does not get them: they keep their default. Source: spec
        v1, session config options.
        """
        if category is not None and category not in CATEGORIES and not category.startswith("_"):
            raise DeclarationError(
                f"option {id!r}: the category is one of {', '.join(CATEGORIES)}, or begins with "
                f"'_'; not {category!r}"
            )
        known: tuple[schema.SessionConfigSelectOption, ...] | None = None
        if values is not None:
            told = [(value, value) if isinstance(value, str) else value for value in values]
            known = tuple(
                schema.SessionConfigSelectOption(
                    value=value, name=name, description=described[0] if described else None
                )
                for value, name, *described in told
            )
        option = Option(id, name or _title(id), default, known, description, category)
        if not option.takes(default):
            raise DeclarationError(
                f"option {id!r}: its default {default!r} is not one of its values"
            )
        if any(other.id == id for other in self._declarations.declared_options):
            raise DeclarationError(f"agent {self.name!r} already has an option {id!r}")
        self._declarations.declared_options.append(option)

    # -- signing in -----------------------------------------------------------------------

    def auth(self, id: str, name: str, description: str | None = None) -> Callable[[A], A]:
        """Declare a way to sign in, and decorate the coroutine that does it.

        Each connection refuses every request with `auth_required` until a sign-in has succeeded
        there. The coroutine refuses by raising; `acphold.AuthRequiredError("why")` tells the person
        why. If it returns the name of a tenant, the connection has only the sessions of that
        tenant. Source: spec v1, authentication.
        """
        if any(method.id == id for method in self._declarations.auth_methods):
            raise DeclarationError(f"agent {self.name!r} already has a sign-in method {id!r}")

        def decorate(handler: A) -> A:
            method = AuthMethod(id, name, description, _coroutine(handler))
            self._declarations.auth_methods.append(method)
            return handler

        return decorate

    def signed_in(self, handler: I) -> I:
        """Decorate the coroutine that says whether a visitor is signed in already.

        It is called with the first request of each connection.
        """
        self._declarations.signed_in = _coroutine(handler)
        return handler

    def on_logout(self, handler: L) -> L:
        """Decorate the coroutine that `logout` calls with the `acphold.Visitor`.

        Afterwards the connection has no open session and needs a new sign-in.
        """
        self._declarations.logout = _coroutine(handler)
        return handler

    # -- hooks and extensions -------------------------------------------------------------

    def on_new(self, hook: S) -> S:
        """Decorate a coroutine that gets each new session before the client hears of it."""
        self._declarations.new_hooks.append(_coroutine(hook))
        return hook

    def on_load(self, hook: S) -> S:
        """Decorate a coroutine that gets each session that is opened again.

        It is called before the client has the session: store and history are loaded, mode and
        options are not yet restored. Raise an AcpError to refuse to open the session.
        """
        self._declarations.load_hooks.append(_coroutine(hook))
        return hook

    def on_close(self, hook: S) -> S:
        """Decorate a coroutine that gets each session that is closed or left.

        Use it to release what you hold; anything said or stored here is lost.
        """
        self._declarations.close_hooks.append(_coroutine(hook))
        return hook

    def middleware(self, middleware: W) -> W:
        """Decorate an asynchronous generator that wraps each step of a turn; it yields once.

            @agent.middleware
            async def timed(step: acphold.Step) -> AsyncIterator[None]:
                began = time.monotonic()
                try:
                    yield
                finally:
                    print(step.kind, step.name, time.monotonic() - began)

        `acphold.Step` lists the steps. The first middleware declared is outermost. An exception
        before the `yield` replaces the step. An error of the step is raised at the `yield`, and
        goes on afterwards even if it was caught there, unless another one replaces it. A function
        that returns a context manager works too.
        """
        self._declarations.middleware.append(around_each(middleware))
        return middleware

    def method(self, name: str) -> Callable[[M], M]:
        """Decorate the coroutine that answers the extension method `name`, which begins with `_`.

        `agent.session` finds the session for a `sessionId` in the params (spec v1, extensibility).
        """
        return _register(self._declarations.methods, name)

    def notification(self, name: str) -> Callable[[M], M]:
        """Decorate the coroutine that gets the extension notification `name`, which begins with
        `_`.
        """
        return _register(self._declarations.notifications, name)

    def session(self, session_id: str) -> Session:
        """Return the open session with this id; raises UnknownSessionError when there is none."""
        try:
            return self._definition.sessions[session_id]
        except KeyError:
            raise UnknownSessionError(session_id) from None

    # -- serving --------------------------------------------------------------------------

    @_taking(AgentOptions)
    def run(self, options: AgentOptions) -> None:
        """Serve on stdin and stdout until the client leaves or a signal comes.

        Prints then go to stderr. Raises DeclarationError without a prompt coroutine, and for a
        wrong option.
        """
        definition = definition_of(self)
        if _importing:
            return  # by `acphold agent run`, which runs it
        run_on(definition, claim_stdio_as(self.name), options)

    @_taking(ServedOn)
    async def serve(self, served: ServedOn) -> None:
        """Serve one client on `transport` until it leaves or `stop` is set; otherwise as `run`."""
        # late, as below: an editor's agent answers `initialize` first
        from acphold.library.server import service_of
        from acphold.live.server.service import serve

        service = service_of(definition_of(self), served)
        await serve(served.transport, service, stop=served.stop or asyncio.Event())

    @_taking(ServerOptions)
    def server(self, options: ServerOptions) -> Server:
        """Serve many clients: `async with agent.server() as server:` and `server.attend` for each.

        The options are those of `run`. Without `share`, no other process of this user can join the
        sessions. Raises JournalError, and DeclarationError as `run` does.
        """
        from acphold.library.server import Server, service_of

        return Server(service_of(definition_of(self), options, share=options.share))


def definition_of(agent: Agent) -> Definition:
    """Return the agent's declarations; DeclarationError when nothing answers its prompts."""
    agent._definition.prompt_handler  # noqa: B018 — refused before it is asked
    return agent._definition


_importing = False


@contextmanager
def import_only() -> Iterator[None]:
    """In this block `Agent.run` returns at once: a program is imported for the agent in it."""
    global _importing
    _importing = True
    try:
        yield
    finally:
        _importing = False


def _register(handlers: dict[str, MethodHandler], name: str) -> Callable[[M], M]:
    if not name.startswith("_"):
        raise DeclarationError(
            f"{name!r}: names of extensions must begin with '_' (spec v1, extensibility)"
        )

    def decorate(handler: M) -> M:
        handlers[name] = _coroutine(handler)
        return handler

    return decorate


def _coroutine(handler: F) -> F:
    """Return `handler` if it can be awaited; DeclarationError for a plain function."""
    if isinstance(handler, FunctionType) and not handler.__code__.co_flags & IS_COROUTINE:
        from inspect import iscoroutinefunction  # late: few handlers are marked as coroutines

        if not iscoroutinefunction(handler):
            raise DeclarationError(
                f"{handler.__qualname__} must be a coroutine function: `async def`"
            )
    return handler


def _title(id: str) -> str:
    return id.replace("_", " ").replace("-", " ").title()
