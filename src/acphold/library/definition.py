"""An agent's declarations: prompt coroutine, modes, options, commands, hooks.

Sources: spec v1, prompt turn, "Stop Reasons"; session modes; slash commands; authentication.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field

from acphold.errors import DeclarationError
from acphold.library.selection import MODE, Option, mode_option

if TYPE_CHECKING:
    from acphold.library.author_session import Session
    from acphold.library.middleware import Around
    from acphold.library.turn import Turn
    from acphold.schema import AvailableCommand, SessionMode
    from acphold.server.entrance import Visitor

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal"]
"""A prompt coroutine may return these; None is `end_turn`. Only clients cause `cancelled`."""

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
"""Tells if a visitor is signed in, from an earlier time for instance; or returns its tenant."""

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
    modes: list[SessionMode] = field(default_factory=list)
    declared_options: list[Option] = field(default_factory=list)
    commands: dict[str, AvailableCommand] = field(default_factory=dict)
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
        return [mode_option(self.modes), *self.declared_options]
