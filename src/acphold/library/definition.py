"""What an author declares of an agent: its prompt coroutine, modes, options, commands, hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import Struct

from acphold.errors import DeclarationError, UnknownSessionError
from acphold.schema import (
    AvailableCommand,
    SessionConfigSelectOption,
    SessionMode,
    UnstructuredCommandInput,
)

if TYPE_CHECKING:
    from acphold.library.authored import AuthoredSession
    from acphold.library.stopping import Ending
    from acphold.library.turn import Turn

PromptHandler: TypeAlias = "Callable[[Turn], Awaitable[Ending | None]]"
"""Answers one prompt; what it says and does goes through the turn. Returns a stop reason."""

CommandHandler: TypeAlias = "Callable[[Turn, str], Awaitable[Ending | None]]"
"""Answers `/name words`; gets the words."""

SessionHook: TypeAlias = "Callable[[AuthoredSession], Awaitable[None]]"
"""Told that a session was made, loaded or closed."""

AuthHandler: TypeAlias = "Callable[[], Awaitable[None]]"
"""Signs the person in or out; raises to refuse."""

SignedIn: TypeAlias = "Callable[[], Awaitable[bool]]"
"""Says whether the person is signed in, from an earlier time for instance."""

MethodHandler: TypeAlias = "Callable[[Any], Awaitable[Any]]"
"""Answers an extension method: JSON values in and out."""

Value: TypeAlias = "str | tuple[str, str] | tuple[str, str, str]"
"""One value of an option: itself, (itself, name), or (itself, name, description)."""

P = TypeVar("P", bound="PromptHandler")
C = TypeVar("C", bound="CommandHandler")
S = TypeVar("S", bound="SessionHook")
A = TypeVar("A", bound="AuthHandler")
I = TypeVar("I", bound="SignedIn")  # noqa: E741 — one letter, as its neighbours
M = TypeVar("M", bound="MethodHandler")
F = TypeVar("F")

MODE = "mode"
"""The category, and by default the id, of the option that stands for the session mode."""


class Option(Struct, frozen=True):
    """A config option; `values` is None for one that is true or false."""

    id: str
    name: str
    default: str | bool
    values: tuple[SessionConfigSelectOption, ...] | None = None
    description: str | None = None
    category: str | None = None

    def takes(self, value: object) -> bool:
        """Whether the option can have this value."""
        if self.values is None:
            return isinstance(value, bool)
        return any(value == known.value for known in self.values)


class AuthMethod(Struct, frozen=True):
    """A way to sign in."""

    id: str
    name: str
    description: str | None
    handler: AuthHandler


class AgentDefinition:
    """An agent as its author describes it; see `acphold.Agent`."""

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
        """Describe an agent.

        `name` is for programs: sessions are kept and listed under it. `title` is for people.
        `image`, `audio` and `embedded_context` say which content a prompt may hold beside text
        and links (spec v1, initialization, "Prompt capabilities"); other content is refused.
        """
        if not name:
            raise DeclarationError("an agent needs a name: its sessions are kept under it")
        self.name = name
        self.version = version
        self.title = title
        self.image = image
        self.audio = audio
        self.embedded_context = embedded_context
        self.modes: list[SessionMode] = []
        self.declared_options: list[Option] = []
        self.commands: dict[str, AvailableCommand] = {}
        self.command_handlers: dict[str, CommandHandler] = {}
        self.auth_methods: list[AuthMethod] = []
        self.signed_in_handler: SignedIn | None = None
        self.logout_handler: AuthHandler | None = None
        self.new_hooks: list[SessionHook] = []
        self.load_hooks: list[SessionHook] = []
        self.close_hooks: list[SessionHook] = []
        self.methods: dict[str, MethodHandler] = {}
        self.notifications: dict[str, MethodHandler] = {}
        self.open_sessions: dict[str, AuthoredSession] = {}
        self._prompt: PromptHandler | None = None

    # -- prompts --------------------------------------------------------------------------

    def prompt(self, handler: P) -> P:
        """Decorate the coroutine that answers prompts; one for each agent.

        It returns None when it has said everything, or a stop reason: "max_tokens",
        "max_turn_requests" or "refusal" (spec v1, prompt turn).
        """
        if self._prompt is not None:
            raise DeclarationError(f"agent {self.name!r} has a prompt handler already")
        self._prompt = _coroutine(handler)
        return handler

    @property
    def prompt_handler(self) -> PromptHandler:
        """What answers prompts; DeclarationError when nothing was declared."""
        if self._prompt is None:
            raise DeclarationError(
                f"agent {self.name!r} answers no prompts: decorate a coroutine with @agent.prompt"
            )
        return self._prompt

    def command(self, name: str, description: str, *, hint: str | None = None) -> Callable[[C], C]:
        """Declare the slash command `/name`; as a decorator, also what answers it.

        Without a handler the prompt coroutine gets it, as `turn.command`. `hint` says what may
        follow the name (spec v1, slash commands).
        """
        if not name or name.startswith("/") or any(char.isspace() for char in name):
            raise DeclarationError(f"{name!r}: a command is one word, declared without its slash")
        if name in self.commands:
            raise DeclarationError(f"agent {self.name!r} has a command {name!r} already")
        wants = None if hint is None else UnstructuredCommandInput(hint=hint)
        self.commands[name] = AvailableCommand(name=name, description=description, input=wants)

        def decorate(handler: C) -> C:
            self.command_handlers[name] = _coroutine(handler)
            return handler

        return decorate

    # -- choices --------------------------------------------------------------------------

    def mode(self, id: str, name: str | None = None, description: str | None = None) -> None:
        """Declare a session mode; the first is the one sessions begin in (spec v1, modes).

        Clients see the modes as a config option too, which is what newer ones show.
        """
        if any(mode.id == id for mode in self.modes):
            raise DeclarationError(f"agent {self.name!r} has a mode {id!r} already")
        self.modes.append(SessionMode(id=id, name=name or _title(id), description=description))

    def option(
        self,
        id: str,
        name: str | None = None,
        *,
        default: str | bool,
        values: Sequence[Value] | None = None,
        description: str | None = None,
        category: str | None = None,
    ) -> None:
        """Declare a config option: a choice of `values`, or true and false without any.

        A client that shows no boolean options is not shown those, and they keep their default.
        `category` is "mode", "model", "model_config", "thought_level", or begins with "_"
        (spec v1, session config options).
        """
        known = None if values is None else tuple(map(_value, values))
        option = Option(id, name or _title(id), default, known, description, category)
        if not option.takes(default):
            raise DeclarationError(
                f"option {id!r}: its default {default!r} is not one of its values"
            )
        if any(other.id == id for other in self.declared_options):
            raise DeclarationError(f"agent {self.name!r} has an option {id!r} already")
        self.declared_options.append(option)

    @property
    def options(self) -> list[Option]:
        """All config options: the declared ones, and the modes as one if none stands for them."""
        if not self.modes or any(
            MODE in (option.id, option.category) for option in self.declared_options
        ):
            return self.declared_options
        values = tuple(
            SessionConfigSelectOption(value=mode.id, name=mode.name, description=mode.description)
            for mode in self.modes
        )
        made = Option(MODE, "Mode", self.modes[0].id, values, category=MODE)
        return [made, *self.declared_options]

    # -- signing in -----------------------------------------------------------------------

    def auth(self, id: str, name: str, description: str | None = None) -> Callable[[A], A]:
        """Declare a way to sign in, and decorate what does it (spec v1, authentication).

        Sessions are refused with `auth_required` until one has succeeded. The handler refuses by
        raising; `acphold.AuthRequiredError("why")` tells the person why.
        """
        if any(method.id == id for method in self.auth_methods):
            raise DeclarationError(f"agent {self.name!r} has a way to sign in {id!r} already")

        def decorate(handler: A) -> A:
            self.auth_methods.append(AuthMethod(id, name, description, _coroutine(handler)))
            return handler

        return decorate

    def signed_in(self, handler: I) -> I:
        """Decorate what tells whether the person is signed in already, when a session opens."""
        self.signed_in_handler = _coroutine(handler)
        return handler

    def on_logout(self, handler: A) -> A:
        """Decorate what `logout` calls; sessions then need a new sign-in."""
        self.logout_handler = _coroutine(handler)
        return handler

    # -- hooks and extensions -------------------------------------------------------------

    def on_new(self, hook: S) -> S:
        """Decorate what is told of every new session, before the client is."""
        self.new_hooks.append(_coroutine(hook))
        return hook

    def on_load(self, hook: S) -> S:
        """Decorate what is told of every session that is opened again, before the client is.

        Its store and its history are there; its mode and options are set right afterwards.
        """
        self.load_hooks.append(_coroutine(hook))
        return hook

    def on_close(self, hook: S) -> S:
        """Decorate what is told when a session is closed, or the client leaves.

        It is for letting go of what the author holds; what it says or stores is not kept.
        """
        self.close_hooks.append(_coroutine(hook))
        return hook

    def method(self, name: str) -> Callable[[M], M]:
        """Decorate what answers the extension method `name`, which begins with `_`.

        It gets the params and returns the result, JSON values both. With a `sessionId` in the
        params, `agent.session` finds the session (spec v1, extensibility).
        """
        return _registered(self.methods, name)

    def notification(self, name: str) -> Callable[[M], M]:
        """Decorate what hears the extension notification `name`, which begins with `_`."""
        return _registered(self.notifications, name)

    def session(self, session_id: str) -> AuthoredSession:
        """A session that is open now; UnknownSessionError when there is none of this id."""
        try:
            return self.open_sessions[session_id]
        except KeyError:
            raise UnknownSessionError(session_id) from None


def _registered(handlers: dict[str, MethodHandler], name: str) -> Callable[[M], M]:
    if not name.startswith("_"):
        raise DeclarationError(
            f"{name!r}: names of extensions begin with '_' (spec v1, extensibility)"
        )

    def decorate(handler: M) -> M:
        handlers[name] = _coroutine(handler)
        return handler

    return decorate


def _coroutine(handler: F) -> F:
    """`handler`, if it can be awaited; DeclarationError for a plain function."""
    if isinstance(handler, FunctionType) and not iscoroutinefunction(handler):
        raise DeclarationError(f"{handler.__qualname__} has to be a coroutine: `async def`")
    return handler


def _value(value: Value) -> SessionConfigSelectOption:
    if isinstance(value, str):
        return SessionConfigSelectOption(value=value, name=value)
    described = value[2] if len(value) == 3 else None
    return SessionConfigSelectOption(value=value[0], name=value[1], description=described)


def _title(id: str) -> str:
    return id.replace("_", " ").replace("-", " ").title()
