"""What a model does while it streams in, shown to the client: text, thoughts, tool calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
)

from holdfast.agents.model.sketches import Sketch, partial_arguments
from holdfast.schema import ToolCallUpdate, encode

if TYPE_CHECKING:
    from pydantic_ai.messages import AgentStreamEvent

    from holdfast.agents.toolcall import RunningTool
    from holdfast.agents.turn import Turn

UNSHOWN = frozenset({"plan"})
"""Tools whose calls are no news of their own: what they do is shown in another way."""

PEEK_CHARACTERS = 4096
"""Behind so much of a call's arguments, its title is not looked for any more."""

Draw = Callable[[str, dict[str, object]], Sketch]
"""How a call looks, by the name of the tool and its arguments so far."""


class Shown(Struct):
    """A call of the model's and how it is shown; `arguments` is its JSON as far as it has come."""

    call: RunningTool
    name: str
    arguments: str = ""
    looked_at: int = 0
    complete: bool = False


class Showing:
    """The tool calls of a turn, by the model's ids, and where in its stream it is.

    A call is pending from its first word on; what runs it says the rest, see `Work.running`.
    """

    def __init__(self, turn: Turn, draw: Draw) -> None:
        self._turn = turn
        self._draw = draw
        self._calls: dict[str, Shown] = {}
        self._arriving: dict[int, Shown] = {}
        self._said = False
        self._apart = False

    def call(self, call_id: str) -> RunningTool | None:
        """The call with this id, if it is shown."""
        shown = self._calls.get(call_id)
        return None if shown is None else shown.call

    def next_response(self) -> None:
        """The model begins anew: what it says now is another paragraph."""
        self._arriving.clear()
        self._apart = self._said

    async def event(self, event: AgentStreamEvent) -> None:
        """Show one event of the stream."""
        match event:
            case (
                PartStartEvent(part=TextPart(content=text))
                | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
            ):
                await self._say(text)
            case PartStartEvent(part=ThinkingPart(content=text)):
                await self._think(text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                await self._think(text)
            case PartStartEvent(index=index, part=ToolCallPart() as part):
                await self._begin(index, part)
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=str(text))):
                await self._go_on(index, text)
            case PartEndEvent(part=ToolCallPart() as part) | FunctionToolCallEvent(part=part):
                await self._complete(part)
            case FunctionToolResultEvent(part=result):
                await self._settle(result)
            case _:
                pass  # of no interest to the person, or newer than this release

    # -- words ----------------------------------------------------------------------------

    async def _say(self, text: str) -> None:
        if text:
            await self._turn.say(f"\n\n{text}" if self._apart else text)
            self._said, self._apart = True, False

    async def _think(self, text: str) -> None:
        if text:
            await self._turn.think(text)

    # -- tool calls -----------------------------------------------------------------------

    async def _begin(self, index: int, part: ToolCallPart) -> None:
        if part.tool_name not in UNSHOWN:
            shown = self._arriving[index] = await self._announce(part)
            if isinstance(part.args, str):
                await self._go_on(index, part.args)
            else:
                shown.looked_at = PEEK_CHARACTERS + 1

    async def _announce(self, part: ToolCallPart) -> Shown:
        look = self._draw(part.tool_name, {})
        call = self._turn.tool(look.title, kind=look.kind)
        shown = self._calls[part.tool_call_id] = Shown(call, part.tool_name)
        self._said = self._apart = False  # it stands between what was and what will be said
        await call.announce()
        return shown

    async def _go_on(self, index: int, text: str) -> None:
        shown = self._arriving.get(index)
        if shown is None or shown.looked_at > PEEK_CHARACTERS:
            return
        shown.arguments += text
        # Not at each piece: all that has come is read again.
        if len(shown.arguments) >= 2 * shown.looked_at:
            shown.looked_at = len(shown.arguments)
            await self._rename(shown, self._draw(shown.name, partial_arguments(shown.arguments)))

    async def _complete(self, part: ToolCallPart) -> None:
        """All arguments are there."""
        if part.tool_name in UNSHOWN:
            return
        shown = self._calls.get(part.tool_call_id) or await self._announce(part)
        if shown.complete:
            return
        shown.complete = True
        arguments = partial_arguments(part.args_as_json_str())
        look = self._draw(part.tool_name, arguments)
        await self._rename(shown, look)
        update = ToolCallUpdate(tool_call_id=shown.call.id, raw_input=arguments)
        await self._turn.session.outbox.put(encode(update))
        if look.path is not None:
            await shown.call.location(look.path, look.line)

    async def _rename(self, shown: Shown, look: Sketch) -> None:
        if look.title != shown.call.title:
            await shown.call.rename(look.title)

    async def _settle(self, result: ToolReturnPart) -> None:
        """A call that never ran: a tool there is not, or arguments that it does not take."""
        if (call := self.call(result.tool_call_id)) is not None:
            await call.fail(result.model_response_str(wrap_if_error=False))
