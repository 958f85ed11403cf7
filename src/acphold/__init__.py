"""Durable, listable, shareable sessions for the Agent Client Protocol (ACP).

The names here are imported when they are first used: an editor that starts `acphold wrap` does
not wait for the library.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from acphold.errors import (
        AcpholdError,
        AuthRequiredError,
        CapabilityError,
        DeclarationError,
        McpError,
        RemoteError,
        WorkspaceError,
    )
    from acphold.journal.fold import SessionState
    from acphold.journal.timeline import Message
    from acphold.journal.timeline import ToolCall as PastToolCall
    from acphold.library.agent import Agent
    from acphold.library.authored import AuthoredSession as Session
    from acphold.library.stopping import MaxTokens, MaxTurnRequests, Refusal
    from acphold.library.terminals import RunningCommand
    from acphold.library.toolcall import RunningTool
    from acphold.library.turn import Turn
    from acphold.schema import (
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
    "AcpholdError",
    "Agent",
    "AudioContent",
    "AuthRequiredError",
    "BlobResourceContents",
    "CapabilityError",
    "DeclarationError",
    "EmbeddedResource",
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
    "library.agent": ("Agent",),
    "library.authored": ("Session",),
    "library.stopping": ("MaxTokens", "MaxTurnRequests", "Refusal"),
    "library.terminals": ("RunningCommand",),
    "library.toolcall": ("RunningTool",),
    "library.turn": ("Turn",),
    "errors": (
        "AuthRequiredError",
        "CapabilityError",
        "DeclarationError",
        "AcpholdError",
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
            found = getattr(_imported(f"acphold.{module}"), _RENAMED.get(name, name))
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _imported(module: str) -> object:
    from acphold.transports.imports import importing
    from acphold.transports.late_tls import load_asyncio

    with importing():
        load_asyncio()
        return import_module(module)


def __dir__() -> list[str]:
    return __all__
