"""The tools of a session's MCP servers, for a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import UserContent
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets.abstract import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from holdfast.agents.model.modes import PLAN
from holdfast.agents.model.prompting import joined, model_content
from holdfast.agents.model.secrecy import without_keys
from holdfast.agents.model.sketches import Sketch, sketch
from holdfast.agents.model.work import RESULT_CHARACTERS, Work

if TYPE_CHECKING:
    from pydantic_ai import RunContext

    from holdfast.agents.toolcall import RunningTool
    from holdfast.mcp import CallResult, Progress, Tool

LONGEST_NAME = 64
"""Characters of a tool's name that every service takes."""

ANYTHING = SchemaValidator(
    core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema())
)
"""The server checks its arguments itself, and says better what is wrong."""


class ServerTools(AbstractToolset[Work]):
    """What the servers offer, as `server__tool`; asked for anew before each model request.

    A server that cannot be reached offers nothing: the person has been told by the session.
    """

    def __init__(self) -> None:
        self._known: dict[str, Tool] = {}

    @property
    def id(self) -> str:
        return "mcp"

    async def get_tools(self, ctx: RunContext[Work]) -> dict[str, ToolsetTool[Work]]:
        self._known = named(await ctx.deps.turn.mcp.tools())
        return {
            name: ToolsetTool(
                toolset=self,
                max_retries=1,
                args_validator=ANYTHING,
                tool_def=ToolDefinition(
                    name=name,
                    description=tool.description,
                    parameters_json_schema=tool.input_schema,
                    sequential=not reads_only(tool),
                ),
            )
            for name, tool in self._known.items()
            if ctx.deps.mode != PLAN or reads_only(tool)
        }

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Work],
        tool: ToolsetTool[Work],
    ) -> str | list[UserContent]:
        known = self._known[name]
        work = ctx.deps
        async with work.running(ctx) as call:
            if not reads_only(known):
                await work.permit(call, f"mcp {known.server} {known.name}")
            await call.start()

            async def show(progress: Progress) -> None:
                await call.progress(_words(progress))

            connection = work.turn.mcp[known.server]
            with work.turn.waiting():
                result = await connection.call(known.name, tool_args, on_progress=show)
            return await _told(call, result)

    def draw(self, name: str, arguments: Mapping[str, object]) -> Sketch:
        """How a call looks, of one of these tools or of our own."""
        known = self._known.get(name)
        if known is None:
            return sketch(name, arguments)
        title = known.title or known.name
        return Sketch(f"{known.server}: {title}", "read" if reads_only(known) else "other")


def named(tools: tuple[Tool, ...]) -> dict[str, Tool]:
    """The tools by names that services take and that differ."""
    found: dict[str, Tool] = {}
    for tool in tools:
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", f"{tool.server}__{tool.name}")[:LONGEST_NAME]
        number = 1
        while name in found:
            number += 1
            tail = f"_{number}"
            name = name[: LONGEST_NAME - len(tail)] + tail
        found[name] = tool
    return found


def reads_only(tool: Tool) -> bool:
    """Whether the server says that the tool changes nothing; the person chose to trust it."""
    return (tool.annotations or {}).get("readOnlyHint") is True


async def _told(call: RunningTool, result: CallResult) -> str | list[UserContent]:
    """Show the result, and give the model what it can take of it; ToolFailed if it is none."""
    for block in result.content:
        await call.content(block)
    await call.output(result.raw)
    if result.failed:
        raise ToolFailed(_short(result.text) or "the tool failed and does not say why")
    content = joined(model_content(result.content))
    if isinstance(content, str):
        return _short(content) or "(Nothing.)"
    return [_short(part) if isinstance(part, str) else part for part in content]


def _short(text: str) -> str:
    text = without_keys(text)
    return text if len(text) <= RESULT_CHARACTERS else f"{text[:RESULT_CHARACTERS]}…"


def _words(progress: Progress) -> str:
    total = f" of {progress.total:g}" if progress.total is not None else ""
    done = f"{progress.done:g}{total}"
    return f"{done}: {progress.message}" if progress.message else done
