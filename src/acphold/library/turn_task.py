"""A running turn: the author's coroutine in a task, its cancellation, its end, its answer.

Source: spec v1, prompt turn, "Stop Reasons" and "Cancellation".
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from functools import partial
from traceback import walk_tb
from typing import TYPE_CHECKING

import acp_wire
from acp_wire.rpc.wire_errors import as_remote, incident
from acp_wire.schema import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    encode,
)
from acphold import errors
from acphold.library.definition import STOP_REASONS, Definition, StopReason, StopTurn, take_step
from acphold.library.session import AuthorSession, arguments, missing, slash_command
from acphold.library.turn import Turn, TurnScope
from acphold.logs import about

if TYPE_CHECKING:
    from acp_wire.rpc.requests import Answer

log = logging.getLogger(__name__)


class TurnTask:
    """One prompt from its arrival to its answer, in the task that runs it.

    A cancellation reaches only the author's code; the work that ends the turn is not cut short.
    `number` is the turn's number in the log.
    """

    def __init__(
        self,
        definition: Definition,
        opened: AuthorSession,
        prompt: tuple[ContentBlock, ...],
        number: int,
    ) -> None:
        self.task: asyncio.Task[object]
        self._definition = definition
        self._opened = opened
        self._prompt = prompt
        self._number = number
        self._scope: TurnScope | None = None
        self._cancelled = False
        self._runs_author_code = False

    def cancel(self) -> None:
        """Raise CancelledError in the author's code; the turn is cancelled whatever that does."""
        self._cancelled = True
        if self._runs_author_code:
            self.task.cancel()

    def give_up(self) -> None:
        """Refuse further updates of the turn, which does not end; and cancel it."""
        if self._scope is not None:
            self._scope.give_up()
        self.cancel()

    async def run(self) -> Answer:
        """Run the turn; returns the answer to the prompt once everything of the turn has ended."""
        task = asyncio.current_task()
        assert task is not None
        self.task = task
        try:
            check_content(self._definition, self._prompt)
        except errors.InvalidParamsError as exc:
            return as_remote(exc)
        scope = self._scope = TurnScope(self._opened, self.cancel)
        with about(self._opened.id, str(self._number)):
            turn = Turn(scope, self._prompt)
            if middleware := self._definition.middleware:
                scope.around = partial(take_step, middleware, turn)
            answer = await self._outcome(turn, scope)
            try:
                await scope.aclose()
            except errors.AcpError as exc:  # an error of the journal: the hub was told
                return as_remote(exc)
        self._scope = None  # it holds this task: a cycle is collected late
        if self._cancelled:
            return stop_answer("cancelled")
        return answer

    async def _outcome(self, turn: Turn, scope: TurnScope) -> Answer:
        """Run the author's code; returns its answer. A cancelled turn has only "cancelled"."""
        self._runs_author_code = True
        try:
            if self._cancelled:
                raise asyncio.CancelledError
            async with scope.around("turn", self._definition.name, None) as step:
                step.result = reason = stop_reason(await self._handle(turn, scope))
            return stop_answer(reason)
        except BaseException as exc:  # whatever it is, it ends the turn and not the process
            if self._cancelled:
                # A library may turn the cancellation into an exception of its own: it still is one.
                if not isinstance(exc, asyncio.CancelledError | StopTurn):
                    log.info("a cancelled turn raised %r", exc)
                return stop_answer("cancelled")
            match meaning(exc):
                case StopTurn(reason=reason):
                    return stop_answer(reason)
                case errors.AcpError() as meant:
                    # The author's line that raised it, in place of a traceback.
                    ours = tuple(os.path.dirname(str(one.__file__)) for one in (acp_wire, errors))
                    lines = [
                        f" ({frame.f_code.co_filename}:{line})"
                        for frame, line in walk_tb(meant.__traceback__)
                        if not frame.f_code.co_filename.startswith(ours)
                    ]
                    log.warning("a turn failed: %s%s", meant, "".join(lines[-1:]))
                    return failure(meant)
            return as_remote(incident(exc))  # also for a cancellation that a library leaked
        finally:
            self._runs_author_code = False

    async def _handle(self, turn: Turn, scope: TurnScope) -> object:
        """Run the author's coroutine for the slash command or for prompts; returns its result."""
        called = slash_command(turn.prompt)
        commands = self._opened.slash
        if called is None:
            return await self._definition.prompt_handler(turn)
        name, words = called
        if name in commands.declared:
            turn.command = called
            handler = self._definition.command_handlers.get(name)
            if handler is not None:
                async with scope.around("command", name, None) as step:
                    step.result = reason = stop_reason(await handler(turn, words))
                return reason
        elif (prompt := commands.prompts.get(name)) is not None:
            turn.command = called
            given = arguments(prompt, words)
            if lacking := missing(prompt, given):
                await turn.say(f"`/{prompt.server}:{prompt.name}` needs: {', '.join(lacking)}")
                return None
            # The prompt that the MCP server makes takes the place of the command.
            made = await turn.mcp[prompt.server].get_prompt(prompt.name, given)
            turn.prompt = (*(message.content for message in made.messages), *turn.prompt[1:])
        return await self._definition.prompt_handler(turn)


def check_content(definition: Definition, prompt: tuple[ContentBlock, ...]) -> None:
    """Refuse content that was not advertised (spec v1, prompt turn, "User Message")."""
    for index, block in enumerate(prompt):
        match block:
            case TextContent():
                continue
            case ImageContent() if not definition.image:
                name = "image"
            case AudioContent() if not definition.audio:
                name = "audio"
            case EmbeddedResource() if not definition.embedded_context:
                name = "resource"
            case _:
                continue
        field = f"prompt[{index}]"
        raise errors.InvalidParamsError(
            f"{field}: this agent does not accept {name} content", field=field
        )


def stop_answer(reason: str) -> bytes:
    """Return the answer to a prompt that ended with `reason`."""
    return encode({"stopReason": reason})


def stop_reason(returned: object) -> StopReason:
    """Return the stop reason for a coroutine's result; raises DeclarationError."""
    if returned is None:
        return "end_turn"
    for known in STOP_REASONS:
        if returned == known:
            return known
    raise errors.DeclarationError(
        f"a turn ends with one of {', '.join(STOP_REASONS)}, not with {returned!r}"
    )


def failure(error: errors.AcpError) -> errors.RemoteError:
    """Return an error of an author's code as the answer to a request of the client's.

    Its code is that of any error, or AUTH_REQUIRED: another would be about the request itself.
    """
    code = error.code if isinstance(error, errors.AuthRequiredError) else errors.AcpError.code
    return as_remote(error, code)


def meaning(error: BaseException) -> StopTurn | errors.AcpError | None:
    """Return the intended meaning of an exception; None if it is an accident.

    A group, as raised by a TaskGroup, means the same as its first member if all its members are
    intended.
    """
    leaves = [leaf for leaf in _leaves(error) if not isinstance(leaf, asyncio.CancelledError)]
    meant = [leaf for leaf in leaves if isinstance(leaf, StopTurn | errors.AcpError)]
    return meant[0] if meant and len(meant) == len(leaves) else None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _leaves(member)
    else:
        yield error
