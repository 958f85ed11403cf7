"""A session from its making to its end: new, load, resume, list, delete, close.

`cwd` and `additional_directories` are absolute paths; `updated_at` is ISO 8601.
"""

from __future__ import annotations

from acphold.schema.mcp_servers import McpServer
from acphold.schema.settings import SessionConfigOption, SessionModeState
from acphold.schema.shapes import Extensible, GoodItems, NullIsDefault, OrDefault


class NewSessionRequest(Extensible, frozen=True):
    """`session/new`: begin a conversation."""

    cwd: str
    mcp_servers: NullIsDefault[tuple[McpServer, ...]]
    additional_directories: NullIsDefault[tuple[str, ...]] = ()


class NewSessionResponse(Extensible, frozen=True):
    """The id of the new session, and what can be set in it."""

    session_id: str
    modes: OrDefault[SessionModeState | None] = None
    config_options: GoodItems[tuple[SessionConfigOption, ...] | None] = None


class LoadSessionRequest(Extensible, frozen=True):
    """`session/load`: go on with a conversation, after replaying it."""

    session_id: str
    cwd: str
    mcp_servers: NullIsDefault[tuple[McpServer, ...]]
    additional_directories: NullIsDefault[tuple[str, ...]] = ()


class LoadSessionResponse(Extensible, frozen=True):
    """The replay is over."""

    modes: OrDefault[SessionModeState | None] = None
    config_options: GoodItems[tuple[SessionConfigOption, ...] | None] = None


class ResumeSessionRequest(Extensible, frozen=True):
    """`session/resume`: go on with a conversation, without a replay."""

    session_id: str
    cwd: str
    mcp_servers: NullIsDefault[tuple[McpServer, ...]] = ()
    additional_directories: NullIsDefault[tuple[str, ...]] = ()


class ResumeSessionResponse(Extensible, frozen=True):
    """The session is live again."""

    modes: OrDefault[SessionModeState | None] = None
    config_options: GoodItems[tuple[SessionConfigOption, ...] | None] = None


class ListSessionsRequest(Extensible, frozen=True):
    """`session/list`: one page, of all sessions or those of one `cwd`."""

    cwd: str | None = None
    cursor: str | None = None


class SessionInfo(Extensible, frozen=True):
    """One session in a list."""

    session_id: str
    cwd: str
    additional_directories: GoodItems[tuple[str, ...]] = ()
    title: OrDefault[str | None] = None
    updated_at: OrDefault[str | None] = None


class ListSessionsResponse(Extensible, frozen=True):
    """A page; with `next_cursor` there is another."""

    sessions: GoodItems[tuple[SessionInfo, ...]]
    next_cursor: OrDefault[str | None] = None


class DeleteSessionRequest(Extensible, frozen=True):
    """`session/delete`: take a session off the list for good."""

    session_id: str


class DeleteSessionResponse(Extensible, frozen=True):
    """The session is gone."""


class CloseSessionRequest(Extensible, frozen=True):
    """`session/close`: cancel what runs and free what the session holds."""

    session_id: str


class CloseSessionResponse(Extensible, frozen=True):
    """The session is closed."""
