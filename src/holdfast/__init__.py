"""Durable, listable, shareable sessions for the Agent Client Protocol (ACP).

The names here are imported when they are first used: an editor that starts `holdfast wrap` does
not wait for the library.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from holdfast.agent import Agent
    from holdfast.agents.authored import AuthoredSession as Session
    from holdfast.agents.stopping import MaxTokens, MaxTurnRequests, Refusal
    from holdfast.agents.terminals import RunningCommand
    from holdfast.agents.toolcall import RunningTool
    from holdfast.agents.turn import Turn
    from holdfast.errors import (
        AuthRequiredError,
        CapabilityError,
        DeclarationError,
        HoldfastError,
        McpError,
        RemoteError,
        WorkspaceError,
    )
    from holdfast.journal.fold import Message, SessionState
    from holdfast.journal.timeline import ToolCall as PastToolCall
    from holdfast.schema import (
        AudioContent,
        BlobResourceContents,
        EmbeddedResource,
        ImageContent,
        PermissionOption,
        PlanEntry,
        ResourceLink,
        TextContent,
        TextResourceContents,
        ToolCallLocation,
    )

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AudioContent",
    "AuthRequiredError",
    "BlobResourceContents",
    "CapabilityError",
    "DeclarationError",
    "EmbeddedResource",
    "HoldfastError",
    "ImageContent",
    "MaxTokens",
    "MaxTurnRequests",
    "McpError",
    "Message",
    "PastToolCall",
    "PermissionOption",
    "PlanEntry",
    "Refusal",
    "RemoteError",
    "ResourceLink",
    "RunningCommand",
    "RunningTool",
    "Session",
    "SessionState",
    "TextContent",
    "TextResourceContents",
    "ToolCallLocation",
    "Turn",
    "WorkspaceError",
    "__version__",
]

_RENAMED = {"Session": "AuthoredSession", "PastToolCall": "ToolCall"}

_HOMES = {
    "agent": ("Agent",),
    "agents.authored": ("Session",),
    "agents.stopping": ("MaxTokens", "MaxTurnRequests", "Refusal"),
    "agents.terminals": ("RunningCommand",),
    "agents.toolcall": ("RunningTool",),
    "agents.turn": ("Turn",),
    "errors": (
        "AuthRequiredError",
        "CapabilityError",
        "DeclarationError",
        "HoldfastError",
        "McpError",
        "RemoteError",
        "WorkspaceError",
    ),
    "journal.fold": ("Message", "SessionState"),
    "journal.timeline": ("PastToolCall",),
    "schema": (
        "AudioContent",
        "BlobResourceContents",
        "EmbeddedResource",
        "ImageContent",
        "PermissionOption",
        "PlanEntry",
        "ResourceLink",
        "TextContent",
        "TextResourceContents",
        "ToolCallLocation",
    ),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            found = getattr(_imported(f"holdfast.{module}"), _RENAMED.get(name, name))
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _imported(module: str) -> object:
    from holdfast.transports.imports import importing
    from holdfast.transports.late_tls import load_asyncio

    with importing():
        load_asyncio()
        return import_module(module)


def __dir__() -> list[str]:
    return __all__
