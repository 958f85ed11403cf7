"""Reading what ACP updates say, no more of them than needed, whatever they say.

What cannot be read is nothing, never an error.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import DecodeError, Struct

from acphold.errors import InvalidParamsError
from acphold.schema import items as items_of
from acphold.schema import members as members_of
from acphold.schema.update_kinds import UPDATE_KINDS

UNREADABLE: Final = (DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes it cannot read; ValidationError is one of them."""

ChunkKind = Literal[
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "compaction_summary_chunk",
]
Role = Literal["user", "agent", "thought"]
"""Who says a message; a thought is the agent's."""

ROLES: Final[dict[str, Role]] = {
    "user_message_chunk": "user",
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
}
"""Who speaks, by the kind of a chunk of a message."""


BEGUN: Final = "acphold/begun"
"""The `_meta` key by which clients and hubs agree on PROMPT_BEGUN."""

PROMPT_BEGUN: Final = (
    b'{"sessionUpdate":"session_info_update","_meta":{"%b":true}}' % BEGUN.encode()
)
"""Tells a client that the turn of its own prompt begins here; what came before was of others."""


class PlainText(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A content block that is nothing but text."""

    type: Literal["text"]
    text: str


class PlainChunk(
    Struct, frozen=True, gc=False, forbid_unknown_fields=True, rename={"kind": "sessionUpdate"}
):
    """A chunk that is nothing but text: two of one message, or of one summary, may become one."""

    kind: ChunkKind
    content: PlainText
    messageId: str | None = None
    compactionId: str | None = None


class _Head(Struct, gc=False):
    sessionUpdate: str = ""


class _ToolHead(Struct, gc=False):
    toolCallId: str = ""


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_tool_head = msgspec.json.Decoder(_ToolHead).decode
_decode_text = msgspec.json.Decoder(str).decode

decode_plain_chunk = msgspec.json.Decoder(PlainChunk).decode
"""A plain chunk from its bytes; raises one of UNREADABLE for anything else."""

decode_plain_text = msgspec.json.Decoder(PlainText).decode
"""A plain text block from its bytes; raises one of UNREADABLE for anything else."""


CHUNK_STARTS: Final = (
    b'{"sessionUpdate":"agent_message_chunk"',
    b'{"sessionUpdate":"agent_thought_chunk"',
)
"""How nearly every chunk begins, so that most are known without decoding; chunks set nothing."""


def may_be_chunk(raw: bytes) -> bool:
    """False for most updates that are no chunks, at a tenth of the price of decoding them."""
    return b"_chunk" in raw


_KIND_START: Final = b'{"sessionUpdate":"'
_KIND_NAMES: Final = {name.encode(): name for name in UPDATE_KINDS}

LONG: Final = 2048
"""Bytes from which on it is quicker to look how an update begins than to decode it."""


def update_kind(raw: bytes) -> str:
    """The `sessionUpdate` of an update, empty when it cannot be told."""
    if len(raw) > LONG and raw.startswith(_KIND_START):
        begin = len(_KIND_START)
        known = _KIND_NAMES.get(raw[begin : raw.find(b'"', begin, LONG)])
        if known is not None:
            return known
    try:
        return _decode_head(raw).sessionUpdate
    except UNREADABLE:
        return ""


def tool_id(raw: bytes) -> str:
    """The `toolCallId` of a `tool_call` or `tool_call_update`, empty when there is none."""
    try:
        return _decode_tool_head(raw).toolCallId
    except UNREADABLE:
        return ""


def string(raw: bytes | None) -> str | None:
    """The string that `raw` is, or None."""
    if raw is None or not raw.startswith(b'"'):
        return None
    try:
        return _decode_text(raw)
    except UNREADABLE:
        return None


def members(raw: bytes) -> dict[str, bytes]:
    """The members of a JSON object, each value byte for byte; none when it is no object."""
    if not raw:
        return {}
    try:
        return members_of(raw)
    except InvalidParamsError:
        return {}


def items(raw: bytes) -> list[bytes]:
    """The items of a JSON array, byte for byte; none when it is no array."""
    try:
        return items_of(raw)
    except InvalidParamsError:
        return []


def content_text(block: bytes) -> str | None:
    """The text of a block that is nothing but text, or None."""
    try:
        return decode_plain_text(block).text
    except UNREADABLE:
        return None


def text_block(text: str) -> bytes:
    """The content block that is nothing but `text`."""
    return b'{"type":"text","text":%b}' % encode_text(text)


def encode_text(text: str) -> bytes:
    """`text` as a JSON string; what came from no wire, such as a path, may be no whole text."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return msgspec.json.encode(storable(text))


def storable(text: str) -> str:
    """`text` with a question mark for each half of a surrogate pair, which UTF-8 cannot hold."""
    return text.encode(errors="replace").decode()


def encode_object(values: dict[str, bytes]) -> bytes:
    """A JSON object of values that are JSON already."""
    return b"{%b}" % b",".join(
        [b"%b:%b" % (encode_text(name), value) for name, value in values.items()]
    )
