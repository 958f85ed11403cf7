"""What each side says it can do, in `initialize`.

A capability that is an object is advertised by its presence: `{}` means yes, absent or null no.
"""

from __future__ import annotations

from acphold.schema.shapes import Extensible, OrDefault, Shape


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
    """Session methods besides new, prompt, cancel and update, which everybody has."""

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
    """What an agent can do."""

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
    """Ways of asking the user that the client has."""

    form: OrDefault[ElicitationFormCapabilities | None] = None
    url: OrDefault[ElicitationUrlCapabilities | None] = None


class ClientCapabilities(Extensible, frozen=True):
    """What a client can do."""

    fs: OrDefault[FileSystemCapabilities] = FileSystemCapabilities()
    terminal: OrDefault[bool] = False
    session: OrDefault[ClientSessionCapabilities | None] = None
    auth: OrDefault[AuthCapabilities] = AuthCapabilities()
    elicitation: OrDefault[ElicitationCapabilities | None] = None
