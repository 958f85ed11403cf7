"""The table of methods: wire names, and the type on each side. Source: ACP v1 schema, `x-method`.

Method names that begin with `_` are anybody's own (ACP v1, Extensibility) and not in the table.
"""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from acphold.schema import (
    elicitation,
    files,
    initialize,
    permission,
    requests,
    sessions,
    settings,
    terminals,
    turns,
    updates,
)

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


INITIALIZE = Method("initialize", initialize.InitializeRequest, initialize.InitializeResponse)
AUTHENTICATE = Method(
    "authenticate", initialize.AuthenticateRequest, initialize.AuthenticateResponse
)
LOGOUT = Method("logout", initialize.LogoutRequest, initialize.LogoutResponse)
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
    "session/set_mode", settings.SetSessionModeRequest, settings.SetSessionModeResponse
)
SET_SESSION_CONFIG_OPTION = Method(
    "session/set_config_option",
    settings.SetSessionConfigOptionRequest,
    settings.SetSessionConfigOptionResponse,
)
PROMPT = Method("session/prompt", turns.PromptRequest, turns.PromptResponse)
CANCEL = Notification("session/cancel", turns.CancelNotification)

UPDATE = Notification("session/update", updates.SessionNotification)
REQUEST_PERMISSION = Method(
    "session/request_permission",
    permission.RequestPermissionRequest,
    permission.RequestPermissionResponse,
)
READ_TEXT_FILE = Method("fs/read_text_file", files.ReadTextFileRequest, files.ReadTextFileResponse)
WRITE_TEXT_FILE = Method(
    "fs/write_text_file", files.WriteTextFileRequest, files.WriteTextFileResponse
)
CREATE_TERMINAL = Method(
    "terminal/create", terminals.CreateTerminalRequest, terminals.CreateTerminalResponse
)
TERMINAL_OUTPUT = Method(
    "terminal/output", terminals.TerminalOutputRequest, terminals.TerminalOutputResponse
)
RELEASE_TERMINAL = Method(
    "terminal/release", terminals.ReleaseTerminalRequest, terminals.ReleaseTerminalResponse
)
WAIT_FOR_TERMINAL_EXIT = Method(
    "terminal/wait_for_exit",
    terminals.WaitForTerminalExitRequest,
    terminals.WaitForTerminalExitResponse,
)
KILL_TERMINAL = Method(
    "terminal/kill", terminals.KillTerminalRequest, terminals.KillTerminalResponse
)
CREATE_ELICITATION = Method(
    "elicitation/create",
    elicitation.CreateElicitationRequest,
    elicitation.CreateElicitationResponse,
)
COMPLETE_ELICITATION = Notification(
    "elicitation/complete", elicitation.CompleteElicitationNotification
)

CANCEL_REQUEST = Notification("$/cancel_request", requests.CancelRequestNotification)

AnyMethod: TypeAlias = Method[Any, Any] | Notification[Any]

AGENT_METHODS: dict[str, AnyMethod] = {
    method.name: method
    for method in (
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
}
"""What an agent receives, by wire name."""

CLIENT_METHODS: dict[str, AnyMethod] = {
    method.name: method
    for method in (
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
}
"""What a client receives, by wire name."""

PROTOCOL_METHODS: dict[str, AnyMethod] = {CANCEL_REQUEST.name: CANCEL_REQUEST}
"""What either side receives, by wire name."""
