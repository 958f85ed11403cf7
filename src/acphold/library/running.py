"""A turn while it runs: the author's coroutine, its cancellation, its end and its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from acphold.errors import AcpholdError, AuthRequiredError, InvalidParamsError
from acphold.library.slash import arguments, missing, slash_command
from acphold.library.stopping import Ending, StopTurn, ending, told_by
from acphold.library.turn import Turn
from acphold.rpc.incidents import as_remote, incident
from acphold.schema import AudioContent, EmbeddedResource, ImageContent, encode

if TYPE_CHECKING:
    from acphold.library.authored import AuthoredSession
    from acphold.library.definition import AgentDefinition
    from acphold.mcp import Prompt
    from acphold.rpc.peer import Answer
    from acphold.schema import ContentBlock

log = logging.getLogger(__name__)


class RunningTurn:
    """One prompt from its arrival to its answer, in a task of its own.

    A cancellation reaches the author's code and nothing else: what ends the turn is not cut short.
    `wants_sign_in` is set when the code said that the person has to sign in.
    """

    def __init__(
        self,
        definition: AgentDefinition,
        session: AuthoredSession,
        prompt: tuple[ContentBlock, ...],
    ) -> None:
        self.wants_sign_in = False
        self.task: asyncio.Task[None]
        self._definition = definition
        self._session = session
        self._prompt = prompt
        self._turn: Turn | None = None
        self._cancelled = False
        self._authors = False

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Begin with `work`, which awaits `run`."""
        self.task = asyncio.create_task(work, name="turn")

    def cancel(self) -> None:
        """Raise CancelledError in the author's code; whatever it does, the turn is cancelled."""
        self._cancelled = True
        if self._authors:
            self.task.cancel()

    def give_up(self) -> None:
        """It does not end: it can say nothing more."""
        if self._turn is not None:
            self._turn.close()
        self.cancel()

    async def run(self) -> Answer:
        """The answer to the prompt, once everything of the turn has ended."""
        try:
            self._check_content()
        except InvalidParamsError as exc:
            return as_remote(exc)
        turn = self._turn = Turn(self._session, self._prompt, on_cancel=self.cancel)
        answer = await self._outcome(turn)
        try:
            await turn.aclose()
        except AcpholdError as exc:  # the journal's: the hub has been told
            return as_remote(exc)
        if self._cancelled:
            return stopped("cancelled")
        return answer

    async def _outcome(self, turn: Turn) -> Answer:
        """What the author's code came to. Of a cancelled one nothing is told but that."""
        try:
            return stopped(await self._authors_part(turn))
        except StopTurn as stop:
            return stopped(stop.reason)
        except asyncio.CancelledError as exc:
            if self._cancelled:
                return stopped("cancelled")
            return as_remote(incident(exc))  # somebody else's: a library that leaks its own
        except (Exception, SystemExit) as exc:
            if self._cancelled:
                # What a library raises because it was cancelled is a cancellation by any name.
                log.info("a cancelled turn raised %r", exc)
                return stopped("cancelled")
            return self._failed(exc)

    def _failed(self, error: BaseException) -> Answer:
        match told_by(error):
            case StopTurn(reason=reason):
                return stopped(reason)
            case AcpholdError() as told:
                self.wants_sign_in = isinstance(told, AuthRequiredError)
                log.warning("a turn failed: %s", told, exc_info=error)
                return as_remote(told)
        return as_remote(incident(error))

    async def _authors_part(self, turn: Turn) -> Ending:
        self._authors = True
        try:
            if self._cancelled:
                raise asyncio.CancelledError
            return ending(await self._handle(turn))
        finally:
            self._authors = False

    async def _handle(self, turn: Turn) -> object:
        called = slash_command(turn.prompt)
        commands = self._session.commands
        if called is None or commands is None:
            return await self._definition.prompt_handler(turn)
        name, words = called
        if commands.is_command(name):
            turn.command = called
            handler = self._definition.command_handlers.get(name)
            if handler is not None:
                return await handler(turn, words)
        elif (prompt := commands.prompt(name)) is not None:
            turn.command = called
            if not await self._filled_in(turn, prompt, words):
                return None
        return await self._definition.prompt_handler(turn)

    async def _filled_in(self, turn: Turn, prompt: Prompt, words: str) -> bool:
        """Put what an MCP server makes of its prompt in the place of the command."""
        given = arguments(prompt, words)
        if lacking := missing(prompt, given):
            await turn.say(f"`/{prompt.server}:{prompt.name}` needs: {', '.join(lacking)}")
            return False
        made = await turn.mcp[prompt.server].get_prompt(prompt.name, given)
        turn.prompt = (*(message.content for message in made.messages), *turn.prompt[1:])
        return True

    def _check_content(self) -> None:
        """Content that was not advertised is refused (spec v1, prompt turn, "User Message")."""
        takes = self._definition
        for place, block in enumerate(self._prompt):
            for kind, name, allowed in (
                (ImageContent, "image", takes.image),
                (AudioContent, "audio", takes.audio),
                (EmbeddedResource, "resource", takes.embedded_context),
            ):
                if isinstance(block, kind) and not allowed:
                    raise InvalidParamsError(
                        f"prompt[{place}]: this agent takes no {name} content",
                        field=f"prompt[{place}]",
                    )


def stopped(reason: str) -> bytes:
    """The answer to a prompt that ended so."""
    return encode({"stopReason": reason})
