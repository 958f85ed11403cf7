"""OpenTelemetry spans of an agent's turns: `agent.middleware(acphold.otel.spans())`.

Needs `acphold[otel]`. The names are those of the semantic conventions for generative AI (agent and
tool spans; MCP), which are in development; names that these lack begin with `acphold.`.
No span holds what was said, asked or done: neither text nor the arguments of tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from acphold.extras import require
from acphold.library.definition import StopTurn
from acphold.library.questions import Decision, FormAnswer, Visit
from acphold.version import __version__

require("otel", "acphold.otel")
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_tracer  # noqa: E402 - there

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

    from acphold.library.definition import Step

__all__ = ["spans"]

OPERATION = "gen_ai.operation.name"
TOOL, TOOL_CALL = "gen_ai.tool.name", "gen_ai.tool.call.id"
MCP_METHOD, MCP_SERVER = "mcp.method.name", "acphold.mcp.server"
ERROR_TYPE = "error.type"
STOP_REASON = "acphold.stop_reason"


def spans(provider: TracerProvider | None = None) -> Callable[[Step], AsyncIterator[None]]:
    """Return middleware that makes a span of each step; a model's own spans lie in the turn's.

    Spans are `invoke_agent AGENT`, `command NAME`, `execute_tool TOOL`, `ask_permission`,
    `ask_form` and `ask_page`; of kind client `tools/call TOOL`, `resources/read` and `prompts/get
    PROMPT`.
    Without a `provider`, the global one is used. An error sets the status and `error.type`.
    """
    tracer = get_tracer("acphold", __version__, provider)

    async def span_of(step: Step) -> AsyncIterator[None]:
        name, attributes = _describe(step)
        kind = SpanKind.CLIENT if step.kind.startswith("mcp") else SpanKind.INTERNAL
        with tracer.start_as_current_span(
            name,
            kind=kind,
            attributes=attributes,
            record_exception=False,  # its message may quote the conversation
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except asyncio.CancelledError:
                span.set_attribute(STOP_REASON, "cancelled")
                raise
            except StopTurn as stop:
                span.set_attribute(STOP_REASON, stop.reason)
                raise
            except BaseException as exc:
                _fail(span, type(exc).__qualname__)
                raise
            match step.kind:
                case "turn" | "command":
                    span.set_attribute(STOP_REASON, step.result or "end_turn")
                case "permission" if isinstance(step.result, Decision):
                    span.set_attribute("acphold.permission.allowed", step.result.allowed)
                case "form" | "page" if isinstance(step.result, FormAnswer | Visit):
                    span.set_attribute("acphold.outcome", step.result.outcome)
                case "mcp" if step.result.failed:
                    _fail(span, "tool_error")
                case "tool" if step.tool is not None and step.tool.status == "failed":
                    _fail(span, "tool_error")

    return span_of


def _describe(step: Step) -> tuple[str, dict[str, AttributeValue]]:
    """Return the name of a span, and its attributes at the beginning of the step."""
    told: dict[str, AttributeValue] = {"gen_ai.conversation.id": step.turn.session.id}
    if step.tool is not None:
        told[TOOL_CALL] = step.tool.id
    match step.kind:
        case "turn":
            told |= {OPERATION: "invoke_agent", "gen_ai.agent.name": step.name}
            return f"invoke_agent {step.name}", told
        case "command":
            return f"command {step.name}", told | {"acphold.command.name": step.name}
        case "mcp":
            server, _, tool = step.name.partition("/")
            told |= {OPERATION: "execute_tool", TOOL: tool, MCP_SERVER: server}
            return f"tools/call {tool}", told | {MCP_METHOD: "tools/call"}
        case "mcp_resource":  # without its URI, which may name a file of the person
            server = step.name.partition("/")[0]
            return "resources/read", told | {MCP_METHOD: "resources/read", MCP_SERVER: server}
        case "mcp_prompt":
            server, _, prompt = step.name.partition("/")
            told |= {"gen_ai.prompt.name": prompt, MCP_SERVER: server}
            return f"prompts/get {prompt}", told | {MCP_METHOD: "prompts/get"}
        case "permission" | "form" | "page":
            return f"ask_{step.kind}", told
        case "tool":
            assert step.tool is not None
            # A title describes one call; it is not the name of a tool.
            tool = step.tool.name or step.tool.kind
            told |= {OPERATION: "execute_tool", TOOL: tool, "gen_ai.tool.type": "function"}
            return f"execute_tool {tool}", told


def _fail(span: Span, why: str) -> None:
    span.set_attribute(ERROR_TYPE, why)
    span.set_status(Status(StatusCode.ERROR))
