"""What the person sends, as a model takes it."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pydantic_ai.messages import BinaryContent

from holdfast.errors import InvalidParamsError
from holdfast.schema import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

if TYPE_CHECKING:
    from pydantic_ai.messages import UserContent

    from holdfast.schema import ContentBlock

SEEN = ("image/", "audio/", "application/pdf")
"""What models can look at; other bytes are text or nothing."""


def user_content(prompt: Sequence[ContentBlock]) -> list[UserContent]:
    """The blocks of a prompt, in order; raises InvalidParamsError for data that is not base64."""
    return [_content(block, f"prompt[{place}]") for place, block in enumerate(prompt)]


def model_content(blocks: Sequence[ContentBlock]) -> list[UserContent]:
    """The blocks that a tool answered with, as `user_content`."""
    return [_content(block, f"content[{place}]") for place, block in enumerate(blocks)]


def joined(content: list[UserContent]) -> str | list[UserContent]:
    """Text alone as such: it is what most content is."""
    texts = [part for part in content if isinstance(part, str)]
    return "\n\n".join(texts) if len(texts) == len(content) else content


def _content(block: ContentBlock, place: str) -> UserContent:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(data=data, mime_type=kind) | AudioContent(data=data, mime_type=kind):
            return BinaryContent(_bytes(data, f"{place}.data"), media_type=kind)
        case ResourceLink(name=name, uri=uri, description=about):
            return f"[{name}]({_local(uri)}){f': {about}' if about else ''}"
        case EmbeddedResource(resource=TextResourceContents(text=text, uri=uri)):
            return _framed(uri, text)
        case EmbeddedResource(resource=BlobResourceContents(blob=blob, uri=uri, mime_type=kind)):
            return _blob(_bytes(blob, f"{place}.resource.blob"), uri, kind or "")
        case _:
            return "(something this agent cannot read)"


def _blob(data: bytes, uri: str, kind: str) -> UserContent:
    if kind.startswith(SEEN):
        return BinaryContent(data, media_type=kind)
    try:
        return _framed(uri, data.decode())
    except UnicodeDecodeError:
        return f"({_local(uri)}: {len(data)} bytes of {kind or 'unknown type'}, not shown)"


def _framed(uri: str, text: str) -> str:
    return f'<resource uri="{_local(uri)}">\n{text}\n</resource>'


def _local(uri: str) -> str:
    """The path in a file:// URI, so that tools can be given it; other URIs as they are."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" and not parts.query else uri


def _bytes(data: str, field: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidParamsError(f"{field} is not base64", field) from None
