"""A client's requests about a session, and the settings of one: its mode and its config options.

`cwd` and `additional_directories` are absolute paths; `updated_at` is ISO 8601.

Annotations are no strings here: the first `session/load` of a process waits for its decoder.
"""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from acp_wire.schema.content import ContentBlock
from acp_wire.schema.shapes import (
    Extensible,
    GoodItems,
    KnownValues,
    NullIsDefault,
    OrDefault,
    Otherwise,
    UnknownVariant,
)


class SessionMode(Extensible, frozen=True):
    """A way of working the agent offers, like `ask` or `code`."""

    id: str
    name: str
    description: OrDefault[str | None] = None


class SessionModeState(Extensible, frozen=True):
    """The modes of a session, and the one it is in."""

    current_mode_id: str
    available_modes: GoodItems[tuple[SessionMode, ...]]


class SetSessionModeRequest(Extensible, frozen=True):
    """`session/set_mode`: switch to another mode."""

    session_id: str
    mode_id: str


class SetSessionModeResponse(Extensible, frozen=True):
    """The mode is set."""


SessionConfigOptionCategory: TypeAlias = Annotated[
    str, KnownValues(("mode", "model", "model_config", "thought_level"))
]
"""The category of an option, only for its place on screen; others may be added."""


class SessionConfigSelectOption(Extensible, frozen=True):
    """One value of a select."""

    value: str
    name: str
    description: OrDefault[str | None] = None


class SessionConfigSelectGroup(Extensible, frozen=True):
    """Values of a select under one heading."""

    group: str
    name: str
    options: GoodItems[tuple[SessionConfigSelectOption, ...]]


if TYPE_CHECKING:
    SessionConfigSelectOptions: TypeAlias = (
        tuple[SessionConfigSelectOption, ...] | tuple[SessionConfigSelectGroup, ...]
    )
else:
    SessionConfigSelectOptions = Annotated[
        tuple[SessionConfigSelectOption, ...],
        Otherwise(untagged=tuple[SessionConfigSelectGroup, ...]),
    ]


class ConfigOptionFields(Extensible, frozen=True):
    """The fields of every kind of config option."""

    id: str
    name: str
    description: OrDefault[str | None] = None
    category: OrDefault[SessionConfigOptionCategory | None] = None


class SessionConfigSelect(
    ConfigOptionFields, frozen=True, kw_only=True, tag="select", tag_field="type"
):
    """A config option with one of several values."""

    current_value: str
    options: SessionConfigSelectOptions

    @property
    def values(self) -> list[SessionConfigSelectOption]:
        """Its values, those of all groups."""
        found: list[SessionConfigSelectOption] = []
        for item in self.options:
            found += item.options if isinstance(item, SessionConfigSelectGroup) else (item,)
        return found


class SessionConfigBoolean(
    ConfigOptionFields, frozen=True, kw_only=True, tag="boolean", tag_field="type"
):
    """A config option that is on or off."""

    current_value: bool


class UnknownConfigOption(UnknownVariant):
    """A config option of a `type` newer than this release, byte for byte."""


if TYPE_CHECKING:
    SessionConfigOption: TypeAlias = (
        SessionConfigSelect | SessionConfigBoolean | UnknownConfigOption
    )
else:
    SessionConfigOption = Annotated[
        SessionConfigSelect | SessionConfigBoolean, Otherwise(unknown=UnknownConfigOption)
    ]


class SetSessionConfigOptionRequest(Extensible, frozen=True):
    """`session/set_config_option`: the id of a value, or a bool, which needs `type="boolean"`."""

    session_id: str
    config_id: str
    value: str | bool
    type: Annotated[str, KnownValues(("boolean",))] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) and self.type != "boolean":
            raise ValueError('`value` is a boolean, so `type` must be "boolean"')


class SetSessionConfigOptionResponse(Extensible, frozen=True):
    """All options of the session, since setting one may change others."""

    config_options: GoodItems[tuple[SessionConfigOption, ...]]


# -- the MCP servers a client names for a session; values of `env` and `headers` are secrets ------


class EnvVariable(Extensible, frozen=True):
    """One environment variable."""

    name: str
    value: str


class HttpHeader(Extensible, frozen=True):
    """One header of an HTTP request."""

    name: str
    value: str


class McpServerStdio(Extensible, frozen=True):
    """A program to run; `command` is an absolute path."""

    name: str
    command: str
    args: NullIsDefault[tuple[str, ...]]
    env: NullIsDefault[tuple[EnvVariable, ...]]


class McpServerHttp(Extensible, frozen=True, tag="http", tag_field="type"):
    """A server reached over streamable HTTP."""

    name: str
    url: str
    headers: NullIsDefault[tuple[HttpHeader, ...]]


class McpServerSse(Extensible, frozen=True, tag="sse", tag_field="type"):
    """A server reached over HTTP with server-sent events."""

    name: str
    url: str
    headers: NullIsDefault[tuple[HttpHeader, ...]]


class UnknownMcpServer(UnknownVariant):
    """A server reached in a way newer than this release, byte for byte."""


if TYPE_CHECKING:
    McpServer: TypeAlias = McpServerStdio | McpServerHttp | McpServerSse | UnknownMcpServer
else:
    McpServer = Annotated[
        McpServerHttp | McpServerSse,
        Otherwise(untagged=McpServerStdio, unknown=UnknownMcpServer),
    ]


# -- life of a session ------------------------------------------------------------------------


class NewSessionRequest(Extensible, frozen=True):
    """`session/new`: begin a conversation."""

    cwd: str
    mcp_servers: NullIsDefault[tuple[McpServer, ...]]
    additional_directories: NullIsDefault[tuple[str, ...]] = ()


class NewSessionResponse(Extensible, frozen=True):
    """The id of the new session, and its settings."""

    session_id: str
    modes: OrDefault[SessionModeState | None] = None
    config_options: GoodItems[tuple[SessionConfigOption, ...] | None] = None


class LoadSessionRequest(Extensible, frozen=True):
    """`session/load`: continue a conversation, after replaying it."""

    session_id: str
    cwd: str
    mcp_servers: NullIsDefault[tuple[McpServer, ...]]
    additional_directories: NullIsDefault[tuple[str, ...]] = ()


class LoadSessionResponse(Extensible, frozen=True):
    """The replay is over."""

    modes: OrDefault[SessionModeState | None] = None
    config_options: GoodItems[tuple[SessionConfigOption, ...] | None] = None


class ResumeSessionRequest(Extensible, frozen=True):
    """`session/resume`: continue a conversation, without a replay."""

    session_id: str
    cwd: str
    mcp_servers: NullIsDefault[tuple[McpServer, ...]] = ()
    additional_directories: NullIsDefault[tuple[str, ...]] = ()


class ForkSessionRequest(ResumeSessionRequest, frozen=True):
    """`session/fork`: as `session/resume`, of the session that is forked. Unstable."""


class ResumeSessionResponse(LoadSessionResponse, frozen=True):
    """The session is live again."""


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
    """`session/close`: cancel its turn and free its resources."""

    session_id: str


class CloseSessionResponse(Extensible, frozen=True):
    """The session is closed."""


# -- a turn ---------------------------------------------------------------------------------------

StopReason: TypeAlias = Literal[
    "end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"
]


class PromptRequest(Extensible, frozen=True):
    """`session/prompt`: the user's message."""

    session_id: str
    prompt: tuple[ContentBlock, ...]


class PromptResponse(Extensible, frozen=True):
    """The turn is over, with the reason."""

    stop_reason: StopReason


class CancelNotification(Extensible, frozen=True):
    """`session/cancel`: end the running turn; its prompt is answered `cancelled`."""

    session_id: str
