"""What an author declares of an agent: its prompt coroutine, modes, options, commands, hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from holdfast.errors import DeclarationError
from holdfast.schema import AvailableCommand, SessionMode, UnstructuredCommandInput

if TYPE_CHECKING:
    from holdfast.agents.authored import AuthoredSession
    from holdfast.agents.turn import Turn

PromptHandler = Callable[["Turn"], Awaitable[None]]
"""Answers one prompt; what it says and does goes through the turn."""

CommandHandler = Callable[["Turn", str], Awaitable[None]]
"""Answers `/name words`; gets the words."""

SessionHook = Callable[["AuthoredSession"], Awaitable[None]]
"""Told that a session was made, loaded or closed."""

AuthHandler = Callable[[], Awaitable[None]]
"""Signs the person in or out; raises to refuse."""

MethodHandler = Callable[[Any], Awaitable[Any]]
"""Answers an extension method: JSON values in and out."""

H = TypeVar("H")


class Option(Struct, frozen=True):
    """A config option: `values` are (value, name) pairs; None for one that is true or false."""

    id: str
    name: str
    default: str | bool
    values: tuple[tuple[str, str], ...] | None = None
    description: str | None = None
    category: str | None = None


class AuthMethod(Struct, frozen=True):
    """A way to sign in."""

    id: str
    name: str
    description: str | None
    handler: AuthHandler


class AgentDefinition:
    """An agent as its author describes it.

    `image`, `audio` and `embedded_context` say which content a prompt may have beside text and
    links (spec v1, initialization, "Prompt capabilities").
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
        self.name = name
        self.version = version
        self.title = title
        self.image = image
        self.audio = audio
        self.embedded_context = embedded_context
        self.modes: list[SessionMode] = []
        self.options: list[Option] = []
        self.commands: dict[str, AvailableCommand] = {}
        self.command_handlers: dict[str, CommandHandler] = {}
        self.auth_methods: list[AuthMethod] = []
        self.logout_handler: AuthHandler | None = None
        self.new_hooks: list[SessionHook] = []
        self.load_hooks: list[SessionHook] = []
        self.close_hooks: list[SessionHook] = []
        self.methods: dict[str, MethodHandler] = {}
        self.notifications: dict[str, MethodHandler] = {}
        self._prompt: PromptHandler | None = None

    # -- prompts --------------------------------------------------------------------------

    def prompt(self, handler: PromptHandler) -> PromptHandler:
        """Decorate the coroutine that answers prompts; one for each agent."""
        if self._prompt is not None:
            raise DeclarationError(f"agent {self.name!r} has a prompt handler already")
        self._prompt = handler
        return handler

    @property
    def prompt_handler(self) -> PromptHandler:
        """What answers prompts; DeclarationError when nothing was declared."""
        if self._prompt is None:
            raise DeclarationError(
                f"agent {self.name!r} answers no prompts: decorate a coroutine with @agent.prompt"
            )
        return self._prompt

    def command(
        self, name: str, description: str, *, hint: str | None = None
    ) -> Callable[[CommandHandler], CommandHandler]:
        """Declare the slash command `/name`; as a decorator, also what answers it.

        Without a handler the prompt coroutine gets it, as `turn.command`. `hint` says what may
        follow the name (spec v1, slash commands).
        """
        if name in self.commands:
            raise DeclarationError(f"agent {self.name!r} has a command {name!r} already")
        wants = None if hint is None else UnstructuredCommandInput(hint=hint)
        self.commands[name] = AvailableCommand(name=name, description=description, input=wants)

        def decorate(handler: CommandHandler) -> CommandHandler:
            self.command_handlers[name] = handler
            return handler

        return decorate

    # -- choices --------------------------------------------------------------------------

    def mode(self, id: str, name: str | None = None, description: str | None = None) -> None:
        """Declare a session mode; the first is the one sessions begin in (spec v1, modes)."""
        if any(mode.id == id for mode in self.modes):
            raise DeclarationError(f"agent {self.name!r} has a mode {id!r} already")
        self.modes.append(SessionMode(id=id, name=name or id.title(), description=description))

    def option(
        self,
        id: str,
        name: str | None = None,
        *,
        default: str | bool,
        values: Sequence[str | tuple[str, str]] | None = None,
        description: str | None = None,
        category: str | None = None,
    ) -> None:
        """Declare a config option: a choice of `values`, or true and false without any.

        `values` are strings, or (value, name) pairs (spec v1, session config options).
        """
        pairs = None
        if values is not None:
            pairs = tuple(v if isinstance(v, tuple) else (v, v) for v in values)
        fits = isinstance(default, bool) if pairs is None else default in {v for v, _ in pairs}
        if not fits:
            raise DeclarationError(
                f"option {id!r}: its default {default!r} is not one of its values"
            )
        if any(option.id == id for option in self.options):
            raise DeclarationError(f"agent {self.name!r} has an option {id!r} already")
        shown = name or id.replace("_", " ").title()
        self.options.append(Option(id, shown, default, pairs, description, category))

    # -- signing in -----------------------------------------------------------------------

    def auth(
        self, id: str, name: str, description: str | None = None
    ) -> Callable[[AuthHandler], AuthHandler]:
        """Declare a way to sign in; new sessions are refused until one has succeeded."""

        def decorate(handler: AuthHandler) -> AuthHandler:
            self.auth_methods.append(AuthMethod(id, name, description, handler))
            return handler

        return decorate

    def on_logout(self, handler: AuthHandler) -> AuthHandler:
        """Decorate what `logout` calls."""
        self.logout_handler = handler
        return handler

    # -- hooks and extensions -------------------------------------------------------------

    def on_new(self, hook: SessionHook) -> SessionHook:
        """Decorate what is told of every new session, before it is answered."""
        self.new_hooks.append(hook)
        return hook

    def on_load(self, hook: SessionHook) -> SessionHook:
        """Decorate what is told of every session that is opened again."""
        self.load_hooks.append(hook)
        return hook

    def on_close(self, hook: SessionHook) -> SessionHook:
        """Decorate what is told when a session is closed."""
        self.close_hooks.append(hook)
        return hook

    def method(self, name: str) -> Callable[[MethodHandler], MethodHandler]:
        """Decorate what answers the extension method `name`, which begins with `_`."""
        return _registered(self.methods, name)

    def notification(self, name: str) -> Callable[[MethodHandler], MethodHandler]:
        """Decorate what hears the extension notification `name`, which begins with `_`."""
        return _registered(self.notifications, name)


def _registered(
    handlers: dict[str, MethodHandler], name: str
) -> Callable[[MethodHandler], MethodHandler]:
    if not name.startswith("_"):
        raise DeclarationError(
            f"{name!r}: names of extensions begin with '_' (spec v1, extensibility)"
        )

    def decorate(handler: MethodHandler) -> MethodHandler:
        handlers[name] = handler
        return handler

    return decorate
