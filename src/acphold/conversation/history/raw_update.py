"""Parts of ACP updates, read no further than needed: kinds, texts, `_meta`, and the speaker.

Unreadable parts count as absent; they are never an error.

Marks tell the speaker: a `_meta` key that begins with `acphold/`, and a message id that begins with
`acphold-`. Only acphold sets them; updates of a wrapped agent lose them on arrival. So an update
without a mark is the agent's word, even if it claims to quote the person: a replay of a session
held outside acphold, or a message that it puts into their mouth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec
from msgspec import Struct

from acp_wire.errors import InvalidParamsError
from acp_wire.schema import items as items_of, members as members_of, splice
from acp_wire.schema.splice import UNREADABLE
from acp_wire.schema.updates import UPDATE_KINDS, UpdateForm, has_capability

ChunkKind = Literal[
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "compaction_summary_chunk",
]
Role = Literal["user", "agent", "thought"]
"""The speaker of a message."""

ROLES: Final[dict[str, Role]] = {
    "user_message_chunk": "user",
    "agent_message_chunk": "agent",
    "agent_thought_chunk": "thought",
}
"""The speaker, by the kind of a chunk of a message."""


BEGUN: Final = "acphold/begun"
"""The `_meta` key by which clients and hubs agree on PROMPT_BEGUN."""

PROMPT_BEGUN: Final = (
    b'{"sessionUpdate":"session_info_update","_meta":{"%b":true}}' % BEGUN.encode()
)
"""Tells a client that the turn of its own prompt begins here; earlier updates were of others."""

TOOL_KINDS: Final = ("tool_call", "tool_call_update")
"""The kinds for tool calls."""

CHILD: Final = "subagent_update"
"""The kind that announces a sub-agent: a client without it gets nothing of the sub-agent."""

OPENCODE_CHILD: Final = "opencode/session/child_update"
"""opencode's notification about sub-agents.

It is no `session/update`, and has a capability key of its own.
"""

_OPENCODE_CHILDREN: Final = ("_meta", "opencode/child-session-updates")


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


class _UpdateHead(Struct, gc=False):
    sessionUpdate: str = ""


class _ToolHead(Struct, gc=False):
    toolCallId: str = ""


_decode_head = msgspec.json.Decoder(_UpdateHead).decode
_decode_tool_head = msgspec.json.Decoder(_ToolHead).decode
_decode_text = msgspec.json.Decoder(str).decode

_decode_plain_chunk = msgspec.json.Decoder(PlainChunk).decode
_decode_plain_text = msgspec.json.Decoder(PlainText).decode


CHUNK_STARTS: Final = (
    b'{"sessionUpdate":"agent_message_chunk"',
    b'{"sessionUpdate":"agent_thought_chunk"',
)
"""The beginnings of nearly all chunks, known without decoding; chunks set no attribute."""


def may_be_chunk(raw: bytes) -> bool:
    """Return False for most updates that are no chunks, at a tenth of the cost of decoding them."""
    return b"_chunk" in raw


def plain_chunk(raw: bytes) -> PlainChunk | None:
    """Return the update as a plain chunk; None if it is anything else."""
    if len(raw) > LONG:
        if not update_kind(raw).endswith("_chunk"):
            return None
    elif b"_chunk" not in raw:  # see `may_be_chunk`
        return None
    try:
        return _decode_plain_chunk(raw)
    except UNREADABLE:
        return None


_KIND_START: Final = b'{"sessionUpdate":"'
_KIND_NAMES: Final = {name.encode(): name for name in UPDATE_KINDS}

LONG: Final = 2048
"""Bytes above which looking at an update's beginning is quicker than decoding it."""


def update_kind(raw: bytes) -> str:
    """Return the `sessionUpdate` of an update, "" if it cannot be read."""
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
    """Return the `toolCallId` of a `tool_call` or `tool_call_update`, "" if there is none."""
    try:
        return _decode_tool_head(raw).toolCallId
    except UNREADABLE:
        return ""


def string(raw: bytes | None) -> str | None:
    """Return the string that `raw` is, or None."""
    if raw is None or not raw.startswith(b'"'):
        return None
    try:
        return _decode_text(raw)
    except UNREADABLE:
        return None


def is_same_json(one: bytes, other: bytes | None) -> bool:
    """Return True if two JSON values are equal, however they are written; False if there is no
    other, or one cannot be read."""
    if other is None:
        return False
    try:
        return one == other or bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except UNREADABLE:
        return False


def members(raw: bytes) -> dict[str, bytes]:
    """Return the members of a JSON object, each value byte for byte; {} if it is no object."""
    if not raw:
        return {}
    try:
        return members_of(raw)
    except InvalidParamsError:
        return {}


def items(raw: bytes) -> list[bytes]:
    """Return the items of a JSON array, byte for byte; [] if it is no array."""
    try:
        return items_of(raw)
    except InvalidParamsError:
        return []


def values_in(raw: bytes | None) -> Iterator[object]:
    """Yield a JSON value and all values in it, in their order; nothing if it cannot be read."""
    if raw is None:
        return
    try:
        waiting: list[object] = [msgspec.json.decode(raw)]
    except UNREADABLE:
        return
    while waiting:
        yield (value := waiting.pop())
        if isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))


def content_text(block: bytes) -> str | None:
    """Return the text of a block that is nothing but text, or None."""
    try:
        return _decode_plain_text(block).text
    except UNREADABLE:
        return None


def text_block(text: str) -> bytes:
    """Return the content block that is nothing but `text`."""
    return b'{"type":"text","text":%b}' % encode_text(text)


def encode_text(text: str) -> bytes:
    """Return `text` as a JSON string; a text from outside, such as a path, may have half
    characters."""
    try:
        return msgspec.json.encode(text)
    except UnicodeEncodeError:
        return msgspec.json.encode(storable(text))


def storable(text: str) -> str:
    """Return `text` with a question mark for each half of a surrogate pair, which UTF-8 cannot
    hold."""
    return text.encode(errors="replace").decode()


def array(values: Iterable[bytes]) -> bytes:
    """Return a JSON array of values that are JSON already."""
    return b"[%b]" % b",".join(values)


def encode_object(values: Mapping[str, bytes]) -> bytes:
    """Return a JSON object of values that are JSON already."""
    return b"{%b}" % b",".join(
        [b"%b:%b" % (encode_text(name), value) for name, value in values.items()]
    )


# See docs/decisions.md, 8.


KEYS: Final = "acphold/"
"""The beginning of each `_meta` key of ours."""

OUR_METHODS: Final = "_acphold/"
"""The beginning of each method of ours: agents neither call it nor tell it."""

MESSAGES: Final = "acphold-"
"""The beginning of the id of each message that the person sent through acphold."""

NOTICE: Final = "acphold/notice"
"""The `_meta` key of a notice that is not a wrapped agent's own. Its value has `from` if an agent
of the library speaks, and not acphold."""

METHOD: Final = "acphold/method"
"""The `_meta` key of a person's words sent by an extension, into a turn: its value is the
method."""


def may_have_marks(raw: bytes) -> bool:
    """Return False if there is certainly no mark, in one update or many: true for nearly all
    agents' words."""
    # A mark contains this name, or an escape for one of its letters.
    return b"acphold" in raw or (b"\\" in raw and (b"\\u00" in raw or b"\\/" in raw))


def without_marks(update: bytes) -> bytes:
    """Return an update of an agent, without marks that would make it our word or the person's.

    The keys are removed. A message id is changed and not removed, for it tells messages apart.
    """
    if not may_have_marks(update):
        return update
    parts = members(update)
    kept = dict(parts)
    if "_meta" in parts and (meta := meta_without_marks(parts["_meta"])) != parts["_meta"]:
        kept["_meta"] = meta
    message_id = string(parts.get("messageId")) or ""
    if message_id.startswith(MESSAGES) and update_kind(update) == "user_message_chunk":
        kept["messageId"] = encode_text(f"agent:{message_id}")
    return update if kept == parts else encode_object(kept)


def params_without_marks(params: bytes) -> bytes:
    """Return the params of an update of an agent, without the same marks."""
    return _params_without_marks(params, "update")


def message_without_marks(params: bytes) -> bytes:
    """Return the params of any other message of an agent, or its answer, and a tool call in it,
    without the same marks."""
    return _params_without_marks(params, "toolCall") if may_have_marks(params) else params


def _params_without_marks(params: bytes, name: str) -> bytes:
    """Return params without marks in their `_meta`, and in the member of this name."""
    parts = members(params)
    kept = dict(parts)
    if "_meta" in parts:
        kept["_meta"] = meta_without_marks(parts["_meta"])
    if name in parts:
        kept[name] = without_marks(parts[name])
    return params if kept == parts else encode_object(kept)


def meta_without_marks(meta: bytes) -> bytes:
    """Return a `_meta` of an agent without the keys that are ours; itself if it has none."""
    parts = members(meta)
    kept = {name: value for name, value in parts.items() if not name.startswith(KEYS)}
    return meta if len(kept) == len(parts) else encode_object(kept)


def is_the_persons(message_id: str | None) -> bool:
    """Return True if a user message with this id was sent by the person through acphold."""
    return message_id is not None and message_id.startswith(MESSAGES)


def is_our_notice(parts: Mapping[str, bytes]) -> bool:
    """Return True if acphold itself gives the notice with these members."""
    notice = members(parts.get("_meta", b"")).get(NOTICE)
    return notice is not None and "from" not in members(notice)


# -- kinds and `_meta` ----------------------------------------------------------------------


def is_for_the_moment(name: str) -> bool:
    """Return True if this kind is for connected clients only, and not part of history."""
    kind = UPDATE_KINDS.get(name)
    return kind is not None and kind.form is UpdateForm.MOMENT


OFFERS: Final = frozenset(
    {place for kind in UPDATE_KINDS.values() for place in kind.needs} | {_OPENCODE_CHILDREN}
)
"""The places in `clientCapabilities` where a client offers to show kinds of updates."""


def kinds_about(*subjects: str) -> frozenset[str]:
    """Return the names of the kinds about one of these subjects."""
    return frozenset(kind.name for kind in UPDATE_KINDS.values() if kind.subject in subjects)


ATTRIBUTE_KINDS: Final = kinds_about("choices", "commands", "cost", "title")
"""Kinds about the state of a session, whenever they come; all others belong to a turn."""


def kinds_to_withhold(capabilities: bytes) -> frozenset[str]:
    """Return the kinds that a client with these `clientCapabilities` (JSON) has not offered to
    show.

    They may include OPENCODE_CHILD, the one notification that has to be offered.
    """
    try:
        can = msgspec.json.decode(capabilities)
    except UNREADABLE:
        can = None  # unreadable ones offer nothing
    needs = {kind.name: kind.needs for kind in UPDATE_KINDS.values() if kind.needs}
    needs[OPENCODE_CHILD] = (_OPENCODE_CHILDREN,)
    return frozenset(
        name for name, places in needs.items() if not any(has_capability(can, *it) for it in places)
    )


def in_meta(raw: bytes, key: str) -> bytes | None:
    """Return the value of this key in the `_meta` of the object `raw`; None if there is none."""
    meta = members_of(raw).get("_meta", b"")
    return members_of(meta).get(key) if meta.startswith(b"{") else None


def without_meta(raw: bytes, *keys: str) -> bytes:
    """Return the object `raw` without these keys in its `_meta`, and without an empty one."""
    meta = splice(members_of(raw).get("_meta", b"{}"), dict.fromkeys(keys))
    return splice(raw, {"_meta": meta if members_of(meta) else None})


def with_meta(raw: bytes, key: str, value: bytes) -> bytes:
    """Return the object `raw` with this key in its `_meta`, replacing a `_meta` that is no
    object.
    """
    meta = members_of(raw).get("_meta", b"")
    return splice(raw, {"_meta": splice(meta if meta.startswith(b"{") else b"{}", {key: value})})
