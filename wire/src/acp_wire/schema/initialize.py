"""Messages about the connection rather than a session: versions, capabilities, signing in.

A capability that is an object is advertised by its presence: `{}` means yes, absent or null no.
"""

from typing import TYPE_CHECKING, Annotated, Self, TypeAlias

from msgspec import UNSET, field
from msgspec.structs import replace

from acp_wire.schema.shapes import (
    Extensible,
    GoodItems,
    KnownValues,
    Nothing,
    NullIsDefault,
    OrDefault,
    Otherwise,
    Shape,
    UInt16,
)

PROTOCOL_VERSION = 1
"""The version of ACP these types describe."""


class PromptCapabilities(Extensible, frozen=True):
    """Content blocks a prompt may hold besides text and resource links."""

    image: OrDefault[bool] = False
    audio: OrDefault[bool] = False
    embedded_context: OrDefault[bool] = False


class McpCapabilities(Extensible, frozen=True):
    """MCP transports the agent connects to besides stdio."""

    http: OrDefault[bool] = False
    sse: OrDefault[bool] = False


class SessionListCapabilities(Extensible, frozen=True):
    """`session/list` is answered."""


class SessionDeleteCapabilities(Extensible, frozen=True):
    """`session/delete` is answered."""


class SessionAdditionalDirectoriesCapabilities(Extensible, frozen=True):
    """`additionalDirectories` may be sent."""


class SessionResumeCapabilities(Extensible, frozen=True):
    """`session/resume` is answered."""


class SessionCloseCapabilities(Extensible, frozen=True):
    """`session/close` is answered."""


class SessionCapabilities(Extensible, frozen=True):
    """Session methods besides new, prompt, cancel and update, which every agent has."""

    list: OrDefault[SessionListCapabilities | None] = None
    delete: OrDefault[SessionDeleteCapabilities | None] = None
    additional_directories: OrDefault[SessionAdditionalDirectoriesCapabilities | None] = None
    resume: OrDefault[SessionResumeCapabilities | None] = None
    close: OrDefault[SessionCloseCapabilities | None] = None


class LogoutCapabilities(Extensible, frozen=True):
    """`logout` is answered."""


class AgentAuthCapabilities(Extensible, frozen=True):
    """Methods about authentication besides `authenticate`."""

    logout: OrDefault[LogoutCapabilities | None] = None


class AgentCapabilities(Extensible, frozen=True):
    """The capabilities of an agent."""

    load_session: OrDefault[bool] = False
    prompt_capabilities: OrDefault[PromptCapabilities] = PromptCapabilities()
    mcp_capabilities: OrDefault[McpCapabilities] = McpCapabilities()
    session_capabilities: OrDefault[SessionCapabilities] = SessionCapabilities()
    auth: OrDefault[AgentAuthCapabilities] = AgentAuthCapabilities()


class FileSystemCapabilities(Extensible, frozen=True):
    """File methods the client answers."""

    read_text_file: OrDefault[bool] = False
    write_text_file: OrDefault[bool] = False


class CompactionCapabilities(Shape, frozen=True):
    """The client shows compaction updates."""


class NoticeCapabilities(Shape, frozen=True):
    """The client shows notices."""


class BooleanConfigOptionCapabilities(Extensible, frozen=True):
    """The client shows on/off config options."""


class SessionConfigOptionsCapabilities(Extensible, frozen=True):
    """Kinds of config options the client shows besides `select`."""

    boolean: OrDefault[BooleanConfigOptionCapabilities | None] = None


class ClientSessionCapabilities(Extensible, frozen=True):
    """Parts of a session the client shows."""

    compaction: OrDefault[CompactionCapabilities | None] = None
    config_options: OrDefault[SessionConfigOptionsCapabilities | None] = None
    notices: OrDefault[NoticeCapabilities | None] = None


class AuthCapabilities(Extensible, frozen=True):
    """Kinds of authentication the client can carry out; `terminal` opens one for the user."""

    terminal: OrDefault[bool] = False


class ElicitationFormCapabilities(Extensible, frozen=True):
    """The client shows forms."""


class ElicitationUrlCapabilities(Extensible, frozen=True):
    """The client opens URLs."""


class ElicitationCapabilities(Extensible, frozen=True):
    """The client's ways of asking the user."""

    form: OrDefault[ElicitationFormCapabilities | None] = None
    url: OrDefault[ElicitationUrlCapabilities | None] = None


class ClientCapabilities(Extensible, frozen=True):
    """The capabilities of a client."""

    fs: OrDefault[FileSystemCapabilities] = FileSystemCapabilities()
    terminal: OrDefault[bool] = False
    session: OrDefault[ClientSessionCapabilities | None] = None
    auth: OrDefault[AuthCapabilities] = AuthCapabilities()
    elicitation: OrDefault[ElicitationCapabilities | None] = None

    @classmethod
    def of(cls, *, files: bool, terminals: bool, forms: bool, pages: bool, sign_in: bool) -> Self:
        """Return those of a client that shows everything; of the rest it has what is True."""
        asks = ElicitationCapabilities(
            form=ElicitationFormCapabilities() if forms else None,
            url=ElicitationUrlCapabilities() if pages else None,
        )
        options = SessionConfigOptionsCapabilities(boolean=BooleanConfigOptionCapabilities())
        can = cls(
            fs=FileSystemCapabilities(read_text_file=files, write_text_file=files),
            terminal=terminals,
            session=ClientSessionCapabilities(
                config_options=options,
                notices=NoticeCapabilities(),
                compaction=CompactionCapabilities(),
            ),
            elicitation=asks if forms or pages else None,
        )
        return replace(can, auth=AuthCapabilities(terminal=True)) if sign_in else can


class Implementation(Extensible, frozen=True):
    """Name and version of a program; `title` is for people."""

    name: str
    version: str
    title: OrDefault[str | None] = None


class AuthMethodAgent(Extensible, frozen=True):
    """The agent signs the user in by itself when asked with `authenticate`."""

    id: str
    name: str
    description: OrDefault[str | None] = None


class AuthMethodTerminal(Extensible, frozen=True, tag="terminal", tag_field="type"):
    """The client runs the agent's program with `args` and `env` in a terminal to sign in."""

    id: str
    name: str
    description: OrDefault[str | None] = None
    args: NullIsDefault[tuple[str, ...]] = ()
    env: NullIsDefault[dict[str, str]] = field(default_factory=dict)


if TYPE_CHECKING:
    AuthMethod: TypeAlias = AuthMethodTerminal | AuthMethodAgent
else:
    AuthMethod = Annotated[AuthMethodTerminal | Nothing, Otherwise(untagged=AuthMethodAgent)]


class InitializeRequest(Extensible, frozen=True):
    """`initialize`: the newest version the client supports, and its capabilities."""

    protocol_version: UInt16
    client_capabilities: OrDefault[ClientCapabilities] = ClientCapabilities()
    client_info: OrDefault[Implementation | None] = None


class InitializeResponse(Extensible, frozen=True):
    """The version the agent chose, and its capabilities."""

    protocol_version: UInt16
    agent_capabilities: OrDefault[AgentCapabilities] = AgentCapabilities()
    auth_methods: GoodItems[tuple[AuthMethod, ...]] = ()
    agent_info: OrDefault[Implementation | None] = None


class AuthenticateRequest(Extensible, frozen=True):
    """`authenticate`: sign in with one of the `authMethods` of `initialize`."""

    method_id: str


class AuthenticateResponse(Extensible, frozen=True):
    """Signed in."""


class LogoutRequest(Extensible, frozen=True):
    """`logout`: sign out."""


class LogoutResponse(Extensible, frozen=True):
    """Signed out."""


RequestId: TypeAlias = int | str | None
"""The id of a JSON-RPC request, chosen by its sender."""

ErrorCode: TypeAlias = Annotated[
    int,
    KnownValues((-32700, -32600, -32601, -32602, -32603, -32800, -32000, -32002)),
]
"""A JSON-RPC error code; ACP gives these a meaning, see `acp_wire.errors`."""


class ErrorObject(Shape, frozen=True):
    """The `error` of a JSON-RPC response; `data` is any JSON, UNSET when not sent."""

    code: ErrorCode
    message: str
    data: OrDefault[object] = UNSET


class CancelRequestNotification(Extensible, frozen=True):
    """`$/cancel_request`: the sender of a request no longer needs its answer."""

    request_id: RequestId
