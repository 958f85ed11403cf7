"""Durable, listable, shareable sessions for the Agent Client Protocol (ACP).

Public are the names in `__all__`, here and in `acphold.types`, `acphold.sync`, `acphold.testing`,
`acphold.otel` and the modules of `acphold.bridges`, and the types and methods of
the protocol in `acphold.schema`. Every other module below this one is internal, and may change with
any release.

The names here are imported when they are first used: an editor that starts `acphold wrap` does
not wait for the library.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from acphold.client import (
        FormQuestion as FormQuestion,
        PageQuestion as PageQuestion,
        PermissionQuestion as PermissionQuestion,
        RemoteAgent as RemoteAgent,
        RemoteSession as RemoteSession,
        RemoteTurn as RemoteTurn,
        connect as connect,
        connect_over as connect_over,
    )
    from acphold.errors import (
        AcpholdError as AcpholdError,
        AgentBusyError as AgentBusyError,
        AgentError as AgentError,
        AgentExitedError as AgentExitedError,
        AgentStartError as AgentStartError,
        AgentTimeoutError as AgentTimeoutError,
        AuthRequiredError as AuthRequiredError,
        CapabilityError as CapabilityError,
        ConnectionLostError as ConnectionLostError,
        DeclarationError as DeclarationError,
        FileAccessError as FileAccessError,
        FileTooLargeError as FileTooLargeError,
        ForbiddenError as ForbiddenError,
        InvalidParamsError as InvalidParamsError,
        JournalError as JournalError,
        McpAnswerError as McpAnswerError,
        McpConnectError as McpConnectError,
        McpError as McpError,
        McpLostError as McpLostError,
        MethodNotFoundError as MethodNotFoundError,
        MissingFileError as MissingFileError,
        NotTextError as NotTextError,
        OutsideRootsError as OutsideRootsError,
        RemoteError as RemoteError,
        RemoteRefusalError as RemoteRefusalError,
        TerminalStartError as TerminalStartError,
        UnknownSessionError as UnknownSessionError,
        WorkspaceError as WorkspaceError,
    )
    from acphold.history.fold import SessionState as SessionState
    from acphold.history.timeline import (
        ContextCompaction as ContextCompaction,
        Message as Message,
        SubAgent as SubAgent,
        ToolCall as ToolCall,
        TurnEnd as TurnEnd,
    )
    from acphold.library.agent import Agent as Agent
    from acphold.library.definition import (
        MaxTokens as MaxTokens,
        MaxTurnRequests as MaxTurnRequests,
        Refusal as Refusal,
        Step as Step,
        StopReason as StopReason,
    )
    from acphold.library.questions import (
        Decision as Decision,
        FormAnswer as FormAnswer,
        Visit as Visit,
    )
    from acphold.library.server import Server as Server
    from acphold.library.session import Session as Session
    from acphold.library.session_servers import (
        TurnServer as TurnServer,
        TurnServers as TurnServers,
    )
    from acphold.library.store import Store as Store
    from acphold.library.tools import RunningTool as RunningTool
    from acphold.library.turn import Turn as Turn
    from acphold.library.workspace import (
        CommandExit as CommandExit,
        CommandOutput as CommandOutput,
        PendingCommand as PendingCommand,
        RunningCommand as RunningCommand,
        SessionFiles as SessionFiles,
    )
    from acphold.logs import LogContext as LogContext
    from acphold.rpc.transport import Transport as Transport
    from acphold.schema import (
        AudioContent as AudioContent,
        BlobResourceContents as BlobResourceContents,
        EmbeddedResource as EmbeddedResource,
        EnvVariable as EnvVariable,
        HttpHeader as HttpHeader,
        ImageContent as ImageContent,
        McpServerHttp as McpServerHttp,
        McpServerSse as McpServerSse,
        McpServerStdio as McpServerStdio,
        PermissionOption as PermissionOption,
        PlanEntry as PlanEntry,
        ResourceLink as ResourceLink,
        TextContent as TextContent,
        TextResourceContents as TextResourceContents,
        ToolCallLocation as ToolCallLocation,
    )
    from acphold.server.principals import (
        Principal as Principal,
        Visitor as Visitor,
    )
    from acphold.transports.messages import (
        MessageConnection as MessageConnection,
        MessageTransport as MessageTransport,
        over_websocket as over_websocket,
    )
    from acphold.transports.streams import StreamTransport as StreamTransport
    from acphold.version import __version__ as __version__

_NAMES = {
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

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker reads it in the imports
    __all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import gc  # neither is above: `acphold wrap` needs them later
    from importlib import import_module

    from acphold.transports.late_tls import load_asyncio

    was_on = gc.isenabled()
    gc.disable()  # what is imported stays: looking for garbage in it takes a tenth of the start
    try:
        load_asyncio()
        found: object = getattr(import_module(f"acphold.{home}"), name)
    finally:
        if was_on:
            if not gc.get_freeze_count():
                gc.freeze()  # and back into the oldest generation: else enabling starts a search
                gc.unfreeze()
            gc.enable()
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*_HOMES]
