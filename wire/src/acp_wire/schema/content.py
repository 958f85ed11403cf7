"""Content blocks: the parts of prompts, messages and tool results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from acp_wire.schema.shapes import (
    Extensible,
    GoodItems,
    Int64,
    OrDefault,
    Otherwise,
    UnknownVariant,
)

Role: TypeAlias = Literal["assistant", "user"]


class Annotations(Extensible, frozen=True):
    """Hints on the audience of content; `last_modified` is ISO 8601, `priority` 0 to 1."""

    audience: GoodItems[tuple[Role, ...] | None] = None
    last_modified: OrDefault[str | None] = None
    priority: OrDefault[float | None] = None


class TextContent(Extensible, frozen=True, tag="text", tag_field="type"):
    """Text, Markdown unless known otherwise."""

    text: str
    annotations: OrDefault[Annotations | None] = None


class ImageContent(Extensible, frozen=True, tag="image", tag_field="type"):
    """An image; `data` is base64."""

    data: str
    mime_type: str
    uri: OrDefault[str | None] = None
    annotations: OrDefault[Annotations | None] = None


class AudioContent(Extensible, frozen=True, tag="audio", tag_field="type"):
    """A recording; `data` is base64."""

    data: str
    mime_type: str
    annotations: OrDefault[Annotations | None] = None


class ResourceLink(Extensible, frozen=True, tag="resource_link", tag_field="type"):
    """Something the agent can fetch; `size` in bytes."""

    name: str
    uri: str
    title: OrDefault[str | None] = None
    description: OrDefault[str | None] = None
    mime_type: OrDefault[str | None] = None
    size: OrDefault[Int64 | None] = None
    annotations: OrDefault[Annotations | None] = None


class TextResourceContents(Extensible, frozen=True):
    """A resource that is text."""

    text: str
    uri: str
    mime_type: OrDefault[str | None] = None


class BlobResourceContents(Extensible, frozen=True):
    """A resource that is bytes; `blob` is base64."""

    blob: str
    uri: str
    mime_type: OrDefault[str | None] = None


if TYPE_CHECKING:
    EmbeddedResourceResource: TypeAlias = TextResourceContents | BlobResourceContents
else:
    EmbeddedResourceResource = Annotated[
        TextResourceContents, Otherwise(untagged=BlobResourceContents)
    ]


class EmbeddedResource(Extensible, frozen=True, tag="resource", tag_field="type"):
    """A resource, contents and all."""

    resource: EmbeddedResourceResource
    annotations: OrDefault[Annotations | None] = None


class UnknownContent(UnknownVariant):
    """A content block of a `type` newer than this release, byte for byte."""


if TYPE_CHECKING:
    ContentBlock: TypeAlias = (
        TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent
    )
else:
    ContentBlock = Annotated[
        TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource,
        Otherwise(unknown=UnknownContent),
    ]
