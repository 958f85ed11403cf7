"""The table of methods: wire names, and the type on each side. Source: ACP v1 schema, `x-method`.

Method names that begin with `_` are free for extensions (ACP v1, Extensibility) and not listed.
"""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from acp_wire.schema import (
    client_services as client,
    initialize as connection,
    session_requests as sessions,
    updates,
)

P = TypeVar("P")
R = TypeVar("R")


class Method(Struct, Generic[P, R], frozen=True):
    """An ACP request: its wire name, the type on each side, and its effect on a connection.

    Its answer means that the client has a session open (`opens`), which may be a new one named in
    the answer (`makes`), or no longer (`leaves`). A `repeatable` request may be sent again by a
    client that lost the answer: sent twice, it has the same effect as sent once.
    """

    name: str
    params: type[P]
    result: type[R]
    opens: bool = False
    makes: bool = False
    leaves: bool = False
    repeatable: bool = False

    @property
    def reopens(self) -> bool:
        """True if it opens an existing session, and names it."""
        return self.opens and not self.makes


class Notification(Struct, Generic[P], frozen=True):
    """An ACP message that gets no answer: its wire name and its type."""

    name: str
    params: type[P]


AnyMethod: TypeAlias = Method[Any, Any] | Notification[Any]

INITIALIZE = Method("initialize", connection.InitializeRequest, connection.InitializeResponse)
AUTHENTICATE = Method(
    "authenticate", connection.AuthenticateRequest, connection.AuthenticateResponse
)
LOGOUT = Method("logout", connection.LogoutRequest, connection.LogoutResponse)
NEW_SESSION = Method(
    "session/new",
    sessions.NewSessionRequest,
    sessions.NewSessionResponse,
    opens=True,
    makes=True,
)
LOAD_SESSION = Method(
    "session/load",
    sessions.LoadSessionRequest,
    sessions.LoadSessionResponse,
    opens=True,
    repeatable=True,
)
RESUME_SESSION = Method(
    "session/resume",
    sessions.ResumeSessionRequest,
    sessions.ResumeSessionResponse,
    opens=True,
    repeatable=True,
)
FORK_SESSION = Method(
    "session/fork",
    sessions.ForkSessionRequest,
    sessions.NewSessionResponse,
    opens=True,
    makes=True,
)
LIST_SESSIONS = Method(
    "session/list", sessions.ListSessionsRequest, sessions.ListSessionsResponse, repeatable=True
)
DELETE_SESSION = Method(
    "session/delete",
    sessions.DeleteSessionRequest,
    sessions.DeleteSessionResponse,
    leaves=True,
    repeatable=True,
)
CLOSE_SESSION = Method(
    "session/close",
    sessions.CloseSessionRequest,
    sessions.CloseSessionResponse,
    leaves=True,
    repeatable=True,
)
ARCHIVE_SESSION = Method(
    "session/archive",
    sessions.CloseSessionRequest,
    sessions.CloseSessionResponse,
    leaves=True,
    repeatable=True,
)
SET_SESSION_MODE = Method(
    "session/set_mode",
    sessions.SetSessionModeRequest,
    sessions.SetSessionModeResponse,
    repeatable=True,
)
SET_SESSION_CONFIG_OPTION = Method(
    "session/set_config_option",
    sessions.SetSessionConfigOptionRequest,
    sessions.SetSessionConfigOptionResponse,
    repeatable=True,
)
PROMPT = Method("session/prompt", sessions.PromptRequest, sessions.PromptResponse)
CANCEL = Notification("session/cancel", sessions.CancelNotification)

UPDATE = Notification("session/update", updates.SessionNotification)
REQUEST_PERMISSION = Method(
    "session/request_permission",
    updates.RequestPermissionRequest,
    updates.RequestPermissionResponse,
)
READ_TEXT_FILE = Method(
    "fs/read_text_file", client.ReadTextFileRequest, client.ReadTextFileResponse
)
WRITE_TEXT_FILE = Method(
    "fs/write_text_file", client.WriteTextFileRequest, client.WriteTextFileResponse
)
CREATE_TERMINAL = Method(
    "terminal/create", client.CreateTerminalRequest, client.CreateTerminalResponse
)
TERMINAL_OUTPUT = Method(
    "terminal/output", client.TerminalOutputRequest, client.TerminalOutputResponse
)
RELEASE_TERMINAL = Method(
    "terminal/release", client.ReleaseTerminalRequest, client.ReleaseTerminalResponse
)
WAIT_FOR_TERMINAL_EXIT = Method(
    "terminal/wait_for_exit", client.WaitForTerminalExitRequest, client.WaitForTerminalExitResponse
)
KILL_TERMINAL = Method("terminal/kill", client.KillTerminalRequest, client.KillTerminalResponse)
CREATE_ELICITATION = Method(
    "elicitation/create",
    client.CreateElicitationRequest,
    client.CreateElicitationResponse,
)
COMPLETE_ELICITATION = Notification("elicitation/complete", client.CompleteElicitationNotification)

CANCEL_REQUEST = Notification("$/cancel_request", connection.CancelRequestNotification)


def _by_name(*methods: AnyMethod) -> dict[str, AnyMethod]:
    return {method.name: method for method in methods}


AGENT_METHODS = _by_name(
    INITIALIZE,
    AUTHENTICATE,
    LOGOUT,
    NEW_SESSION,
    LOAD_SESSION,
    RESUME_SESSION,
    LIST_SESSIONS,
    DELETE_SESSION,
    CLOSE_SESSION,
    SET_SESSION_MODE,
    SET_SESSION_CONFIG_OPTION,
    PROMPT,
    CANCEL,
)
"""The messages to an agent, by wire name."""

CLIENT_METHODS = _by_name(
    UPDATE,
    REQUEST_PERMISSION,
    READ_TEXT_FILE,
    WRITE_TEXT_FILE,
    CREATE_TERMINAL,
    TERMINAL_OUTPUT,
    RELEASE_TERMINAL,
    WAIT_FOR_TERMINAL_EXIT,
    KILL_TERMINAL,
    CREATE_ELICITATION,
    COMPLETE_ELICITATION,
)
"""The messages to a client, by wire name."""

UNSTABLE_METHODS = _by_name(FORK_SESSION, ARCHIVE_SESSION)
"""Further messages to an agent, by wire name. Source: the unstable parts of the schema."""


class _Requests(dict["str | None", Method[Any, Any]]):
    def __missing__(self, name: str | None) -> Method[Any, Any]:
        return _OTHER


_OTHER: Method[Any, Any] = Method("", Struct, Struct)

REQUESTS = _Requests(
    (name, method)
    for name, method in (*AGENT_METHODS.items(), *UNSTABLE_METHODS.items())
    if isinstance(method, Method)
)
"""The requests to an agent, by wire name; any other has no effect on a connection."""

PROTOCOL_METHODS = _by_name(CANCEL_REQUEST)
"""The messages to either side, by wire name."""
