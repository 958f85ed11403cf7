"""Durable, listable, shareable sessions for the Agent Client Protocol (ACP).

Public are the names in `__all__`, here and in `acphold.types`, `acphold.sync`, `acphold.testing`,
`acphold.stores`, `acphold.otel` and the modules of `acphold.bridges`, and the types and methods of
the protocol in `acphold.schema`. Every other module below this one is internal, and may change with
any release.

The names here are imported when they are first used: an editor that starts `acphold wrap` does
not wait for the library.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from acphold.client import (
        FormQuestion,
        PageQuestion,
        PermissionQuestion,
        RemoteAgent,
        RemoteSession,
        RemoteTurn,
        connect,
        connect_over,
    )
    from acphold.errors import (
        AcpholdError,
        AgentBusyError,
        AgentError,
        AgentExitedError,
        AgentStartError,
        AgentTimeoutError,
        AuthRequiredError,
        CapabilityError,
        ConnectionLostError,
        DeclarationError,
        FileAccessError,
        FileTooLargeError,
        ForbiddenError,
        InvalidParamsError,
        JournalError,
        McpAnswerError,
        McpConnectError,
        McpError,
        McpLostError,
        MethodNotFoundError,
        MissingFileError,
        NotTextError,
        OutsideRootsError,
        RemoteError,
        RemoteRefusalError,
        TerminalStartError,
        UnknownSessionError,
        WorkspaceError,
    )
    from acphold.history.fold import SessionState
    from acphold.history.timeline import ContextCompaction, Message, SubAgent, ToolCall, TurnEnd
    from acphold.library.agent import Agent
    from acphold.library.definition import MaxTokens, MaxTurnRequests, Refusal, Step, StopReason
    from acphold.library.questions import Decision, FormAnswer, Visit
    from acphold.library.server import Server
    from acphold.library.session import Session
    from acphold.library.session_servers import TurnServer, TurnServers
    from acphold.library.store import Store
    from acphold.library.tools import RunningTool
    from acphold.library.turn import Turn
    from acphold.library.workspace import (
        CommandExit,
        CommandOutput,
        PendingCommand,
        RunningCommand,
        SessionFiles,
    )
    from acphold.logs import LogContext
    from acphold.rpc.transport import Transport
    from acphold.schema import (
        AudioContent,
        BlobResourceContents,
        EmbeddedResource,
        EnvVariable,
        HttpHeader,
        ImageContent,
        McpServerHttp,
        McpServerSse,
        McpServerStdio,
        PermissionOption,
        PlanEntry,
        ResourceLink,
        TextContent,
        TextResourceContents,
        ToolCallLocation,
    )
    from acphold.server.principals import Principal, Visitor
    from acphold.transports.messages import MessageConnection, MessageTransport, over_websocket
    from acphold.transports.streams import StreamTransport
    from acphold.version import __version__

__all__ = [
    "AcpholdError",
    "Agent",
    "AgentBusyError",
    "AgentError",
    "AgentExitedError",
    "AgentStartError",
    "AgentTimeoutError",
    "AudioContent",
    "AuthRequiredError",
    "BlobResourceContents",
    "CapabilityError",
    "CommandExit",
    "CommandOutput",
    "ConnectionLostError",
    "ContextCompaction",
    "Decision",
    "DeclarationError",
    "EmbeddedResource",
    "EnvVariable",
    "FileAccessError",
    "FileTooLargeError",
    "ForbiddenError",
    "FormAnswer",
    "FormQuestion",
    "HttpHeader",
    "ImageContent",
    "InvalidParamsError",
    "JournalError",
    "LogContext",
    "MaxTokens",
    "MaxTurnRequests",
    "McpAnswerError",
    "McpConnectError",
    "McpError",
    "McpLostError",
    "McpServerHttp",
    "McpServerSse",
    "McpServerStdio",
    "Message",
    "MessageConnection",
    "MessageTransport",
    "MethodNotFoundError",
    "MissingFileError",
    "NotTextError",
    "OutsideRootsError",
    "PageQuestion",
    "PendingCommand",
    "PermissionOption",
    "PermissionQuestion",
    "PlanEntry",
    "Principal",
    "Refusal",
    "RemoteAgent",
    "RemoteError",
    "RemoteRefusalError",
    "RemoteSession",
    "RemoteTurn",
    "ResourceLink",
    "RunningCommand",
    "RunningTool",
    "Server",
    "Session",
    "SessionFiles",
    "SessionState",
    "Step",
    "StopReason",
    "Store",
    "StreamTransport",
    "SubAgent",
    "TerminalStartError",
    "TextContent",
    "TextResourceContents",
    "ToolCall",
    "ToolCallLocation",
    "Transport",
    "Turn",
    "TurnEnd",
    "TurnServer",
    "TurnServers",
    "UnknownSessionError",
    "Visit",
    "Visitor",
    "WorkspaceError",
    "__version__",
    "connect",
    "connect_over",
    "over_websocket",
]

_HOMES = {
    "client": """
        FormQuestion PageQuestion PermissionQuestion RemoteAgent RemoteSession RemoteTurn connect
        connect_over
    """,
    "errors": """
        AcpholdError AgentBusyError AgentError AgentExitedError AgentStartError AgentTimeoutError
        AuthRequiredError CapabilityError ConnectionLostError DeclarationError
        FileAccessError FileTooLargeError ForbiddenError InvalidParamsError JournalError
        McpAnswerError McpConnectError McpError McpLostError MethodNotFoundError MissingFileError
        NotTextError OutsideRootsError RemoteError RemoteRefusalError TerminalStartError
        UnknownSessionError WorkspaceError
    """,
    "history.fold": "SessionState",
    "history.timeline": "ContextCompaction Message SubAgent ToolCall TurnEnd",
    "library.agent": "Agent",
    "library.session": "Session",
    "library.workspace": "CommandExit CommandOutput PendingCommand RunningCommand SessionFiles",
    "library.definition": "MaxTokens MaxTurnRequests Refusal Step StopReason",
    "library.questions": "Decision FormAnswer Visit",
    "library.server": "Server",
    "library.session_servers": "TurnServer TurnServers",
    "library.store": "Store",
    "library.tools": "RunningTool",
    "library.turn": "Turn",
    "logs": "LogContext",
    "schema": """
        AudioContent BlobResourceContents EmbeddedResource EnvVariable HttpHeader
        ImageContent McpServerHttp McpServerSse McpServerStdio PermissionOption PlanEntry
        ResourceLink TextContent TextResourceContents ToolCallLocation
    """,
    "rpc.transport": "Transport",
    "server.principals": "Principal Visitor",
    "transports.messages": "MessageConnection MessageTransport over_websocket",
    "transports.streams": "StreamTransport",
    "version": "__version__",
}
"""The public names, by the module that defines them."""


def __getattr__(name: str) -> object:
    home = next((module for module, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import gc  # neither is above: `acphold wrap` needs them later
    from importlib import import_module

    from acphold.transports.late_tls import load_asyncio

    was_on = gc.isenabled()
    gc.disable()  # what is imported stays: looking for garbage in it takes some milliseconds
    try:
        load_asyncio()
        found: object = getattr(import_module(f"acphold.{home}"), name)
    finally:
        if was_on:
            gc.enable()
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
