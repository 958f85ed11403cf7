"""The table of methods: wire names, and the type on each side. Source: ACP v1 schema, `x-method`.

Method names that begin with `_` are anybody's own (ACP v1, Extensibility) and not in the table.
"""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

import acphold.schema.client_services as client
import acphold.schema.configuration as configuration
import acphold.schema.elicitation as elicitation
import acphold.schema.initialize as connection
import acphold.schema.session_requests as sessions
import acphold.schema.tool_calls as tools
import acphold.schema.updates as updates

P = TypeVar("P")
R = TypeVar("R")


class Method(Struct, Generic[P, R], frozen=True):
    """An ACP request: its wire name and the type on each side."""

    name: str
    params: type[P]
    result: type[R]


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
NEW_SESSION = Method("session/new", sessions.NewSessionRequest, sessions.NewSessionResponse)
LOAD_SESSION = Method("session/load", sessions.LoadSessionRequest, sessions.LoadSessionResponse)
RESUME_SESSION = Method(
    "session/resume", sessions.ResumeSessionRequest, sessions.ResumeSessionResponse
)
LIST_SESSIONS = Method("session/list", sessions.ListSessionsRequest, sessions.ListSessionsResponse)
DELETE_SESSION = Method(
    "session/delete", sessions.DeleteSessionRequest, sessions.DeleteSessionResponse
)
CLOSE_SESSION = Method("session/close", sessions.CloseSessionRequest, sessions.CloseSessionResponse)
SET_SESSION_MODE = Method(
    "session/set_mode", configuration.SetSessionModeRequest, configuration.SetSessionModeResponse
)
SET_SESSION_CONFIG_OPTION = Method(
    "session/set_config_option",
    configuration.SetSessionConfigOptionRequest,
    configuration.SetSessionConfigOptionResponse,
)
PROMPT = Method("session/prompt", sessions.PromptRequest, sessions.PromptResponse)
CANCEL = Notification("session/cancel", sessions.CancelNotification)

UPDATE = Notification("session/update", updates.SessionNotification)
REQUEST_PERMISSION = Method(
    "session/request_permission", tools.RequestPermissionRequest, tools.RequestPermissionResponse
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
    elicitation.CreateElicitationRequest,
    elicitation.CreateElicitationResponse,
)
COMPLETE_ELICITATION = Notification(
    "elicitation/complete", elicitation.CompleteElicitationNotification
)

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
"""What an agent receives, by wire name."""

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
"""What a client receives, by wire name."""

PROTOCOL_METHODS = _by_name(CANCEL_REQUEST)
"""What either side receives, by wire name."""
