"""The Agent Client Protocol without sessions: its types, JSON-RPC, transports and programs.

Public are the names in `__all__`, and the other types and methods of the protocol in
`acp_wire.schema`. Each is imported when it is first used: programs that start for an editor name
the modules themselves. In the modules with which they begin, `TYPE_CHECKING = False` stands where
`typing` would take longer than the rest, and `_signal`, `_socket` and `_struct` stand in for
modules with enums, or with what only servers need.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acp_wire.errors import (
        AcpError as AcpError,
        AgentStartError as AgentStartError,
        ConnectionLostError as ConnectionLostError,
        InvalidParamsError as InvalidParamsError,
        MethodNotFoundError as MethodNotFoundError,
        RemoteError as RemoteError,
        RequestCancelledError as RequestCancelledError,
        SilentPeerError as SilentPeerError,
    )
    from acp_wire.processes.program import (
        launch as launch,
    )
    from acp_wire.rpc import (
        NotificationReceived as NotificationReceived,
        Peer as Peer,
        Protocol as Protocol,
        Receiver as Receiver,
        Transport as Transport,
        connected as connected,
    )
    from acp_wire.rpc.requests import (
        Request as Request,
        hand_on as hand_on,
    )
    from acp_wire.schema import (
        AUTHENTICATE as AUTHENTICATE,
        CANCEL as CANCEL,
        CLOSE_SESSION as CLOSE_SESSION,
        INITIALIZE as INITIALIZE,
        LIST_SESSIONS as LIST_SESSIONS,
        LOAD_SESSION as LOAD_SESSION,
        NEW_SESSION as NEW_SESSION,
        PROMPT as PROMPT,
        PROTOCOL_VERSION as PROTOCOL_VERSION,
        READ_TEXT_FILE as READ_TEXT_FILE,
        REQUEST_PERMISSION as REQUEST_PERMISSION,
        RESUME_SESSION as RESUME_SESSION,
        SET_SESSION_MODE as SET_SESSION_MODE,
        UPDATE as UPDATE,
        WRITE_TEXT_FILE as WRITE_TEXT_FILE,
        AgentCapabilities as AgentCapabilities,
        AgentMessageChunk as AgentMessageChunk,
        AudioContent as AudioContent,
        CancelledPermissionOutcome as CancelledPermissionOutcome,
        CancelNotification as CancelNotification,
        ClientCapabilities as ClientCapabilities,
        ContentBlock as ContentBlock,
        Decoded as Decoded,
        Diff as Diff,
        EmbeddedResource as EmbeddedResource,
        ImageContent as ImageContent,
        Implementation as Implementation,
        InitializeRequest as InitializeRequest,
        InitializeResponse as InitializeResponse,
        ListSessionsRequest as ListSessionsRequest,
        ListSessionsResponse as ListSessionsResponse,
        LoadSessionRequest as LoadSessionRequest,
        McpServer as McpServer,
        Method as Method,
        NewSessionRequest as NewSessionRequest,
        NewSessionResponse as NewSessionResponse,
        PermissionOption as PermissionOption,
        Plan as Plan,
        PlanEntry as PlanEntry,
        PromptRequest as PromptRequest,
        PromptResponse as PromptResponse,
        RequestPermissionRequest as RequestPermissionRequest,
        RequestPermissionResponse as RequestPermissionResponse,
        ResourceLink as ResourceLink,
        ResumeSessionRequest as ResumeSessionRequest,
        SelectedPermissionOutcome as SelectedPermissionOutcome,
        SessionInfo as SessionInfo,
        SessionNotification as SessionNotification,
        TextContent as TextContent,
        ToolCallPatch as ToolCallPatch,
        ToolCallStart as ToolCallStart,
        UnknownUpdate as UnknownUpdate,
        Update as Update,
        decode as decode,
        decode_update as decode_update,
        encode as encode,
    )
    from acp_wire.transports.child import (
        ChildProcess as ChildProcess,
    )
    from acp_wire.transports.messages import (
        MessageConnection as MessageConnection,
        over_websocket as over_websocket,
    )
    from acp_wire.transports.stdio import (
        stdio_transport as stdio_transport,
    )
    from acp_wire.transports.streams import (
        MemoryTransport as MemoryTransport,
        StreamTransport as StreamTransport,
        memory_pair as memory_pair,
    )

_NAMES = {
    "acp_wire.errors": """
        AcpError AgentStartError ConnectionLostError InvalidParamsError MethodNotFoundError
        RemoteError RequestCancelledError SilentPeerError
    """,
    "acp_wire.processes.program": "launch",
    "acp_wire.rpc": """
        NotificationReceived Peer Protocol Receiver Transport connected
    """,
    "acp_wire.rpc.requests": "Request hand_on",
    "acp_wire.schema": """
        AUTHENTICATE AgentCapabilities AgentMessageChunk AudioContent CANCEL CLOSE_SESSION
        CancelNotification CancelledPermissionOutcome ClientCapabilities ContentBlock
        Decoded Diff EmbeddedResource INITIALIZE ImageContent Implementation
        InitializeRequest InitializeResponse LIST_SESSIONS LOAD_SESSION
        ListSessionsRequest ListSessionsResponse LoadSessionRequest McpServer Method
        NEW_SESSION NewSessionRequest NewSessionResponse PROMPT PROTOCOL_VERSION
        PermissionOption Plan PlanEntry PromptRequest PromptResponse READ_TEXT_FILE
        REQUEST_PERMISSION RESUME_SESSION RequestPermissionRequest
        RequestPermissionResponse ResourceLink ResumeSessionRequest SET_SESSION_MODE
        SelectedPermissionOutcome SessionInfo SessionNotification TextContent
        ToolCallPatch ToolCallStart UPDATE UnknownUpdate Update WRITE_TEXT_FILE decode
        decode_update encode
    """,
    "acp_wire.transports.child": "ChildProcess",
    "acp_wire.transports.messages": "MessageConnection over_websocket",
    "acp_wire.transports.stdio": "stdio_transport",
    "acp_wire.transports.streams": "MemoryTransport StreamTransport memory_pair",
}
"""The public names, by the module that defines them."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker reads it in the imports
    __all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if (home := _HOMES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*_HOMES]
