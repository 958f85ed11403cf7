"""Durable, listable, shareable sessions for the Agent Client Protocol (ACP).

Public are `open` and the names in `__all__`, here and in `acphold.types`, `acphold.sync`,
`acphold.testing` and `acphold.otel`; the types and methods of the protocol are in
`acp_wire.schema`. Every other module below this one is internal, and may change with any release.

The names here are imported when they are first used: an editor that starts `acphold wrap` does
not wait for the library.
"""

from __future__ import annotations

TYPE_CHECKING = False  # see quick_start
if TYPE_CHECKING:
    from acp_wire.schema import (
        EmbeddedResource as EmbeddedResource,
        ImageContent as ImageContent,
        PlanEntry as PlanEntry,
        ResourceLink as ResourceLink,
        TextContent as TextContent,
        TextResourceContents as TextResourceContents,
    )
    from acphold.client import (
        FormQuestion as FormQuestion,
        PageQuestion as PageQuestion,
        PermissionQuestion as PermissionQuestion,
        RemoteAgent as RemoteAgent,
        RemoteSession as RemoteSession,
        RemoteTurn as RemoteTurn,
        connect as connect,
    )
    from acphold.conversation.history.fold import SessionState as SessionState
    from acphold.conversation.history.timeline import (
        ContextCompaction as ContextCompaction,
        Message as Message,
        SubAgent as SubAgent,
        ToolCall as ToolCall,
        TurnEnd as TurnEnd,
    )
    from acphold.errors import (
        AcpError as AcpError,
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
    from acphold.library.session_servers import McpServers as McpServers, TurnServer as TurnServer
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
    from acphold.live.server.principals import Principal as Principal, Visitor as Visitor
    from acphold.logs import LogContext as LogContext
    from acphold.mcp_servers.errors import (
        McpAnswerError as McpAnswerError,
        McpConnectError as McpConnectError,
        McpError as McpError,
        McpLostError as McpLostError,
    )
    from acphold.reader import (
        KeptQuestion as KeptQuestion,
        KeptSession as KeptSession,
        KeptSessions as KeptSessions,
        SearchResult as SearchResult,
        Usage as Usage,
        open as open,
    )
    from acphold.version import __version__ as __version__

_NAMES = {
    "acphold.client": """
        FormQuestion PageQuestion PermissionQuestion RemoteAgent RemoteSession RemoteTurn connect
    """,
    "acphold.errors": """
        AcpError AgentBusyError AgentError AgentExitedError AgentStartError AgentTimeoutError
        AuthRequiredError CapabilityError ConnectionLostError DeclarationError
        FileAccessError FileTooLargeError ForbiddenError InvalidParamsError JournalError
        MethodNotFoundError MissingFileError NotTextError OutsideRootsError RemoteError
        RemoteRefusalError TerminalStartError UnknownSessionError WorkspaceError
    """,
    "acphold.conversation.history.fold": "SessionState",
    "acphold.conversation.history.timeline": "ContextCompaction Message SubAgent ToolCall TurnEnd",
    "acphold.library.agent": "Agent",
    "acphold.library.session": "Session",
    "acphold.library.workspace": """
        CommandExit CommandOutput PendingCommand RunningCommand SessionFiles
    """,
    "acphold.library.definition": "MaxTokens MaxTurnRequests Refusal Step StopReason",
    "acphold.library.questions": "Decision FormAnswer Visit",
    "acphold.library.server": "Server",
    "acphold.library.session_servers": "McpServers TurnServer",
    "acphold.library.store": "Store",
    "acphold.library.tools": "RunningTool",
    "acphold.library.turn": "Turn",
    "acphold.logs": "LogContext",
    "acphold.reader": "KeptQuestion KeptSession KeptSessions SearchResult Usage open",
    "acp_wire.schema": """
        EmbeddedResource ImageContent PlanEntry ResourceLink TextContent TextResourceContents
    """,
    "acphold.mcp_servers.errors": "McpAnswerError McpConnectError McpError McpLostError",
    "acphold.live.server.principals": "Principal Visitor",
    "acphold.version": "__version__",
}
"""The public names, by the module that defines them."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker reads it in the imports
    # `from acphold import *` leaves Python's own `open`.
    __all__ = [name for name in _HOMES if name != "open"]


def __getattr__(name: str) -> object:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from acphold.quick_start import load_name

    found = load_name(home, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*_HOMES]
