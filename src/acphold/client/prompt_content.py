"""A program's prompt (texts, paths, blocks), made into content blocks.

Content that the agent does not accept is refused before it is sent. Source: spec v1, content;
initialization, "Prompt capabilities".
"""

from __future__ import annotations

import mimetypes
import os
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from acphold.errors import CapabilityError, DeclarationError, MissingFileError
from acphold.schema import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from acphold.schema.content import UnknownContent
from acphold.workspace.regular_files import contents

if TYPE_CHECKING:
    from acphold.schema import ContentBlock
    from acphold.schema.initialize import PromptCapabilities

Content: TypeAlias = "str | os.PathLike[str] | tuple[bytes, str] | ContentBlock"
"""Text; a file or folder; bytes and their media type (`image/png`); or a content block."""

EMBEDDED_BYTES = 256 * 1024
"""Largest text file that is sent with its contents, in bytes, if the agent accepts that; a model's
context has room for about four of them."""

IMAGE_BYTES = 5 * 1024 * 1024
"""Largest image file that is sent as an image, in bytes; most models refuse larger ones."""


def content_blocks(
    content: Sequence[Content], takes: PromptCapabilities, agent: str
) -> tuple[ContentBlock, ...]:
    """Return the blocks for a prompt.

    A path is sent as the most that the agent accepts: an image or a text with its contents, else as
    a link, which every agent accepts. Raises CapabilityError, MissingFileError, DeclarationError.
    """
    if not content:
        raise DeclarationError("a prompt needs something to say")
    blocks: list[ContentBlock] = []
    for item in content:
        if isinstance(item, str):
            blocks.append(TextContent(text=item))
        elif isinstance(item, tuple):
            blocks.append(_from_bytes(*item))
        elif isinstance(item, os.PathLike):
            blocks.append(_from_path(Path(os.path.abspath(item)), takes))
        else:
            blocks.append(item)
    for block in blocks:  # clients must restrict prompts to what is advertised (prompt turn)
        match block:
            case ImageContent() if not takes.image:
                missing = "image"
            case AudioContent() if not takes.audio:
                missing = "audio"
            case EmbeddedResource() if not takes.embedded_context:
                missing = "embeddedContext"
            case UnknownContent(kind=kind):
                raise CapabilityError(
                    f"nothing says whether {agent} takes content of type {kind!r}"
                )
            case _:
                continue
        raise CapabilityError(
            f"{agent} takes no such content: it does not advertise `promptCapabilities.{missing}`"
        )
    return tuple(blocks)


def _from_bytes(data: bytes, mime_type: str) -> ContentBlock:
    family = mime_type.partition("/")[0]
    uri = f"urn:uuid:{uuid4()}"  # a resource needs one, and bytes have none
    if family == "image":
        return ImageContent(data=_base64(data), mime_type=mime_type)
    if family == "audio":
        return AudioContent(data=_base64(data), mime_type=mime_type)
    if family == "text":
        text = data.decode(errors="replace")
        resource = TextResourceContents(text=text, uri=uri, mime_type=mime_type)
        return EmbeddedResource(resource=resource)
    blob = BlobResourceContents(blob=_base64(data), uri=uri, mime_type=mime_type)
    return EmbeddedResource(resource=blob)


def _from_path(path: Path, takes: PromptCapabilities) -> ContentBlock:
    try:
        size = path.stat().st_size
        mime_type, _ = mimetypes.guess_type(path.name)
        is_image = mime_type is not None and mime_type.startswith("image/")
        if path.is_file() and is_image and takes.image and size <= IMAGE_BYTES:
            data = _base64(contents(path, IMAGE_BYTES))
            return ImageContent(data=data, mime_type=mime_type or "", uri=path.as_uri())
        if path.is_file() and not is_image and takes.embedded_context and size <= EMBEDDED_BYTES:
            text = contents(path, EMBEDDED_BYTES).decode()
            resource = TextResourceContents(text=text, uri=path.as_uri(), mime_type=mime_type)
            return EmbeddedResource(resource=resource)
    except UnicodeDecodeError:
        pass  # no text: the agent may know what to do with it
    except FileNotFoundError:
        raise MissingFileError(f"there is no file {str(path)!r} to send") from None
    except OSError as error:
        raise MissingFileError(f"cannot send {str(path)!r}: {error.strerror}") from error
    return ResourceLink(
        name=path.name or str(path), uri=path.as_uri(), mime_type=mime_type, size=size
    )


def _base64(data: bytes) -> str:
    return b64encode(data).decode("ascii")
