"""Params and prompts of a client, checked against the advertised capabilities before they are sent.

Sources: spec v1, initialization; session setup; session list; session delete; authentication;
content.
"""

from __future__ import annotations

import mimetypes
import os
import stat
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from acp_wire.processes.program import on_path
from acp_wire.schema import (
    AgentCapabilities,
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    McpServer,
    McpServerHttp,
    McpServerSse,
    McpServerStdio,
    NewSessionRequest,
    ResourceLink,
    TextContent,
    TextResourceContents,
    decode,
    encode,
)
from acp_wire.schema.shapes import UnknownVariant
from acp_wire.workspace.regular_files import contents
from acphold.client import bounds
from acphold.errors import CapabilityError, DeclarationError, MissingFileError
from acphold.known_agents import short_name
from acphold.live.agents.extensions import has_steering

if TYPE_CHECKING:
    from acp_wire.schema import InitializeResponse, PromptCapabilities


Folder: TypeAlias = str | os.PathLike[str]
"""A path; if relative, from this program's folder."""


class OpenOptions(TypedDict, total=False):
    """`agent` names the one that is to continue it, if the server lacks the session's own."""

    mcp_servers: Sequence[McpServer]
    additional_directories: Sequence[Folder] | None
    agent: str | None


Content: TypeAlias = "str | os.PathLike[str] | tuple[bytes, str] | ContentBlock"
"""Text; a file or folder; bytes and their media type (`image/png`); or a content block."""


def in_ms(moment: datetime | None) -> int | None:
    """Return a time as the journal has it, in ms since the epoch; DeclarationError if it has no
    zone."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise DeclarationError(f"{moment!r} has no zone, as datetime.now(UTC) has")
    return int(moment.timestamp() * 1000)


def absolute(path: Folder) -> str:
    """Return `path` as the protocol wants paths: absolute, from the folder that this program is
    in."""
    return os.path.abspath(os.fspath(path))


def require_folder(path: Folder) -> str:
    """Return the same for a folder whose files are served; raises NotADirectoryError if it is
    none."""
    folder = absolute(path)
    if not os.path.isdir(folder):
        raise NotADirectoryError(f"files: folder {folder!r} does not exist; make it first")
    return folder


class Advertised:
    """An agent's answer to `initialize`: its name, and its capabilities, as a check before each
    use of one. `name` is for an agent that tells none."""

    def __init__(self, introduction: InitializeResponse, name: str) -> None:
        info = introduction.agent_info
        self.name: str = name if info is None else info.title or short_name(info.name)
        self.capabilities: AgentCapabilities = introduction.agent_capabilities
        self._meta: Mapping[str, object] | None = introduction.meta

    @property
    def has_steering(self) -> bool:
        """True if it accepts messages during a running turn."""
        return has_steering(self._meta)

    def to_steer(self) -> None:
        """Check that it accepts messages during a running turn; raises CapabilityError."""
        self._require(self.has_steering, "accept messages in a running turn", "_meta.steering")

    def to_load(self) -> None:
        """Check that it can load sessions; raises CapabilityError, as all methods here."""
        self._require(self.capabilities.load_session, "load sessions", "loadSession")

    def check(self, verb: str) -> None:
        """Check that it can `resume`, `list`, `close` or `delete` sessions."""
        has_it = getattr(self.capabilities.session_capabilities, verb) is not None
        self._require(has_it, f"{verb} sessions", f"sessionCapabilities.{verb}")

    def to_log_out(self) -> None:
        self._require(self.capabilities.auth.logout is not None, "log out", "auth.logout")

    def blocks(self, content: Sequence[Content]) -> tuple[ContentBlock, ...]:
        """Return the blocks of a prompt, as `content_blocks` does."""
        return content_blocks(content, self.capabilities.prompt_capabilities, self.name)

    def servers(self, servers: Sequence[McpServer]) -> tuple[McpServer, ...]:
        """Return MCP servers as they are sent: commands with absolute paths (spec v1, session
        setup). A plain dict becomes the type that it stands for; InvalidParamsError."""
        takes = self.capabilities.mcp_capabilities
        sent: list[McpServer] = []
        if any(isinstance(server, dict) for server in servers):
            params = encode({"cwd": "/", "mcpServers": servers})
            servers = decode(NewSessionRequest, params).value.mcp_servers
        for server in servers:
            match server:
                case McpServerHttp():
                    self._require(takes.http, "use MCP servers over HTTP", "mcpCapabilities.http")
                case McpServerSse():
                    self._require(takes.sse, "use MCP servers over SSE", "mcpCapabilities.sse")
                case McpServerStdio(command=command) if not os.path.isabs(command):
                    path = on_path(command)
                    # A missing program is left to the agent, which can report where it looked.
                    if path is not None or "/" in command:
                        server = replace(server, command=absolute(path or command))
            sent.append(server)
        return tuple(sent)

    def directories(self, folders: Sequence[Folder]) -> tuple[str, ...]:
        """Return additional directories as they are sent: absolute."""
        if folders:
            has_them = self.capabilities.session_capabilities.additional_directories is not None
            capability = "sessionCapabilities.additionalDirectories"
            self._require(has_them, "use additional directories", capability)
        return tuple(map(absolute, folders))

    def _require(self, has_it: bool, what: str, capability: str) -> None:
        if not has_it:
            raise CapabilityError(
                f"{self.name} cannot {what}: it does not advertise `{capability}`"
            )


def content_blocks(
    content: Sequence[Content], takes: PromptCapabilities, agent: str
) -> tuple[ContentBlock, ...]:
    """Return the blocks for a prompt.

    An image or a text file is sent with its contents if the agent accepts that, any other path as a
    link, which every agent accepts. Raises CapabilityError, MissingFileError, DeclarationError,
    TypeError.
    """
    if not content:
        raise DeclarationError("a prompt must not be empty")
    blocks: list[ContentBlock] = []
    for item in content:
        if isinstance(item, str):
            blocks.append(TextContent(text=item))
        elif isinstance(item, tuple):
            data, mime_type = item
            family = mime_type.partition("/")[0]
            uri = f"urn:uuid:{uuid4()}"  # a resource needs one, and bytes have none
            if family == "image":
                blocks.append(ImageContent(data=_base64(data), mime_type=mime_type))
            elif family == "audio":
                blocks.append(AudioContent(data=_base64(data), mime_type=mime_type))
            elif family == "text":
                text = data.decode(errors="replace")
                resource = TextResourceContents(text=text, uri=uri, mime_type=mime_type)
                blocks.append(EmbeddedResource(resource=resource))
            else:
                blob = BlobResourceContents(blob=_base64(data), uri=uri, mime_type=mime_type)
                blocks.append(EmbeddedResource(resource=blob))
        elif isinstance(item, os.PathLike):
            blocks.append(_from_path(Path(os.path.abspath(item)), takes))
        elif isinstance(item, Struct | UnknownVariant | dict):
            blocks.append(item)
        else:
            raise TypeError(
                "a piece of a prompt is text, a path, bytes with their type or a content block, "
                f"not {item!r}"
            )
    for block in blocks:  # clients must send nothing else (spec v1, prompt turn)
        match block:
            case ImageContent() if not takes.image:
                missing = "image"
            case AudioContent() if not takes.audio:
                missing = "audio"
            case EmbeddedResource() if not takes.embedded_context:
                missing = "embeddedContext"
            case UnknownVariant(kind=kind):
                raise CapabilityError(f"it is unknown if {agent} accepts content of type {kind!r}")
            case _:
                continue
        raise CapabilityError(
            f"{agent} cannot accept this content: "
            f"it does not advertise `promptCapabilities.{missing}`"
        )
    return tuple(blocks)


def _from_path(path: Path, takes: PromptCapabilities) -> ContentBlock:
    try:
        status = path.stat()
        size = status.st_size if stat.S_ISREG(status.st_mode) else None
        mime_type, _ = mimetypes.guess_type(path.name)
        if size is not None:
            if mime_type is not None and mime_type.startswith("image/"):
                if takes.image and size <= bounds.IMAGE_BYTES:
                    data = _base64(contents(path, bounds.IMAGE_BYTES))
                    return ImageContent(data=data, mime_type=mime_type, uri=path.as_uri())
            elif takes.embedded_context and size <= bounds.EMBEDDED_BYTES:
                text = contents(path, bounds.EMBEDDED_BYTES).decode()
                resource = TextResourceContents(text=text, uri=path.as_uri(), mime_type=mime_type)
                return EmbeddedResource(resource=resource)
    except UnicodeDecodeError:
        pass  # not a text: the agent may know what to do with it
    except FileNotFoundError:
        raise MissingFileError(f"cannot send {str(path)!r}: the file does not exist") from None
    except OSError as error:
        raise MissingFileError(f"cannot send {str(path)!r}: {error.strerror}") from error
    return ResourceLink(
        name=path.name or str(path), uri=path.as_uri(), mime_type=mime_type, size=size
    )


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
