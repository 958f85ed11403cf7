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
        INITIALIZE as INITIALIZE,
        NEW_SESSION as NEW_SESSION,
        PROMPT as PROMPT,
        PROTOCOL_VERSION as PROTOCOL_VERSION,
        AgentMessageChunk as AgentMessageChunk,
        InitializeRequest as InitializeRequest,
        InitializeResponse as InitializeResponse,
        NewSessionRequest as NewSessionRequest,
        NewSessionResponse as NewSessionResponse,
        PromptRequest as PromptRequest,
        PromptResponse as PromptResponse,
        SessionNotification as SessionNotification,
        TextContent as TextContent,
        decode as decode,
        encode as encode,
    )
    from acp_wire.transports.child import (
        ChildProcess as ChildProcess,
    )
    from acp_wire.transports.messages import (
        MessageConnection as MessageConnection,
        MessageTransport as MessageTransport,
        over_websocket as over_websocket,
    )
    from acp_wire.transports.stdio import (
        stdio_transport as stdio_transport,
    )
    from acp_wire.transports.streams import (
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
        AgentMessageChunk INITIALIZE InitializeRequest InitializeResponse NEW_SESSION
        NewSessionRequest NewSessionResponse PROMPT PROTOCOL_VERSION PromptRequest
        PromptResponse SessionNotification TextContent decode encode
    """,
    "acp_wire.transports.child": "ChildProcess",
    "acp_wire.transports.messages": "MessageConnection MessageTransport over_websocket",
    "acp_wire.transports.stdio": "stdio_transport",
    "acp_wire.transports.streams": "StreamTransport memory_pair",
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
