"""The timeline of a session: its messages, tool calls and ends of turns, in order.

Updates add up to it: chunks join the message that they belong to, and each field that an update of
a tool call names replaces the old value (ACP v1, `ToolCallUpdate`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from acphold.errors import InvalidParamsError
from acphold.history.raw_update import (
    UNREADABLE,
    Role,
    content_text,
    encode_object,
    encode_text,
    items,
    members,
    string,
    text_block,
)
from acphold.schema import (
    Content,
    ContentBlock,
    Diff,
    ToolCallContent,
    ToolCallLocation,
    ToolCallPatch,
    UnknownContent,
    decode,
    decode_blocks,
)

FINAL_STATUSES: Final = frozenset({"completed", "failed"})
"""Statuses after which nothing more is expected of a tool call."""

_STRINGS: Final = frozenset({"title", "name", "kind", "status"})
_ARRAYS: Final = frozenset({"content", "locations"})
_NULLABLE: Final = frozenset({*_STRINGS, *_ARRAYS, "rawInput", "rawOutput", "_meta"})


class Message(Struct, frozen=True):
    """What one side said; `content` holds its content blocks raw, plain text in a row as one."""

    role: Role
    message_id: str | None
    content: tuple[bytes, ...]

    def __repr__(self) -> str:
        return f"<Message of {self.role}: {shortened(self.text)!r}>"

    @property
    def blocks(self) -> tuple[ContentBlock, ...]:
        """Its content blocks; one that breaks the schema is UnknownContent."""
        return tuple(map(_block, self.content))

    @property
    def text(self) -> str:
        """All that is plain text in it."""
        return "".join(filter(None, map(content_text, self.content)))


def _block(raw: bytes) -> ContentBlock:
    try:
        [block] = decode_blocks(b"[%b]" % raw).value
    except InvalidParamsError:
        return UnknownContent(string(members(raw).get("type")) or "", raw)
    return block


def shortened(text: str) -> str:
    """As much of a text as is read in passing, in a `repr`."""
    return text if len(text) < 60 else f"{text[:59]}…"


class ToolCall(Struct, frozen=True):
    """A tool call as it stands; `fields` has the newest value of each, raw and by its name on the
    wire."""

    tool_call_id: str
    fields: Mapping[str, bytes]

    def __repr__(self) -> str:
        about = shortened(self.title or self.name or "")
        return f"<ToolCall {self.tool_call_id!r} {self.status}: {about!r}>"

    @property
    def name(self) -> str | None:
        """The tool's name for programs, where the agent tells it."""
        return string(self.fields.get("name"))

    @property
    def title(self) -> str:
        """What the call does, for people."""
        return string(self.fields.get("title")) or ""

    @property
    def kind(self) -> str:
        """`read`, `edit`, `execute` …; `other` when the agent did not say."""
        return string(self.fields.get("kind")) or "other"

    @property
    def status(self) -> str:
        """`pending`, `in_progress`, `completed` or `failed`."""
        return string(self.fields.get("status")) or "pending"

    @property
    def input(self) -> Any:
        """The tool's input, a JSON value; None when there is none."""
        return _value(self.raw_input)

    @property
    def output(self) -> Any:
        """The tool's output, a JSON value; None when there is none."""
        return _value(self.raw_output)

    @property
    def locations(self) -> tuple[ToolCallLocation, ...]:
        """The files that it works on."""
        return self._typed("locations").locations or ()

    @property
    def produced(self) -> tuple[ToolCallContent, ...]:
        """What it produced: content, diffs, terminals; nothing where that cannot be read."""
        return self._typed("content").content or ()

    @property
    def blocks(self) -> tuple[ContentBlock, ...]:
        """The content blocks in what it produced."""
        return tuple(part.content for part in self.produced if isinstance(part, Content))

    @property
    def diffs(self) -> tuple[Diff, ...]:
        """The changes of files in what it produced."""
        return tuple(part for part in self.produced if isinstance(part, Diff))

    def _typed(self, name: str) -> ToolCallPatch:
        raw = encode_object({name: self.fields.get(name, b"null"), "toolCallId": b'""'})
        try:
            return decode(ToolCallPatch, raw).value
        except InvalidParamsError:
            return ToolCallPatch(tool_call_id="")

    @property
    def content(self) -> list[bytes]:
        """The same as `produced`, raw."""
        return items(self.fields.get("content", b"[]"))

    @property
    def raw_input(self) -> bytes | None:
        """The tool's input as JSON."""
        return self.fields.get("rawInput")

    @property
    def raw_output(self) -> bytes | None:
        """The tool's output as JSON."""
        return self.fields.get("rawOutput")


def _value(raw: bytes | None) -> Any:
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except UNREADABLE:
        return None


class ContextCompaction(Struct, frozen=True):
    """The agent has shortened what the model is told of the conversation, or is at it.

    `status` is `in_progress`, `completed`, `failed`, `cancelled` or a word of the agent's own;
    `summary` holds raw content blocks, what it goes on with as far as it tells; `error` says why it
    failed.
    """

    compaction_id: str
    status: str
    summary: tuple[bytes, ...] = ()
    error: str | None = None


TurnOutcome = Literal["completed", "limited", "refused", "cancelled", "failed", "interrupted"]
"""How a turn ended: `limited` by a number of tokens or requests, `interrupted` by a crash."""

_OUTCOMES: Final[dict[str, TurnOutcome]] = {
    "max_tokens": "limited",
    "max_turn_requests": "limited",
    "refusal": "refused",
    "cancelled": "cancelled",
}
"""The outcome for each stop reason; any other completes the turn."""


class TurnEnd(Struct, frozen=True):
    """The end of a turn; `at` is ms since the epoch.

    `stop_reason` is the agent's own word, None when it gave none; `message` says why a turn
    failed. Of a turn that was refused neither the prompt nor what follows it counts for the agent.
    """

    outcome: TurnOutcome
    at: int
    stop_reason: str | None = None
    message: str | None = None


def turn_end(raw: bytes, at: int) -> TurnEnd:
    """What a `turn_end` entry says."""
    parts = members(raw)
    if parts.get("interrupted") == b"true":
        return TurnEnd("interrupted", at)
    if "error" in parts:
        return TurnEnd("failed", at, message=string(members(parts["error"]).get("message")))
    stop_reason = string(parts.get("stopReason"))
    return TurnEnd(_OUTCOMES.get(stop_reason or "", "completed"), at, stop_reason)


class SubAgent(Struct, frozen=True):
    """An agent that the agent has do something, as a session of its own: a child of this one.

    `state` is `running`, `idle`, `requires_action` or a word of the agent's own, None when it does
    not say; `stop_reason` is why it went idle. `caller` is the tool call that made it, where that
    is told. `timeline` is what was said and done in it, sub-agents of its own included.
    Experimental: it follows a draft of the protocol, and two dialects of it.
    """

    session_id: str
    title: str | None = None
    description: str | None = None
    state: str | None = None
    stop_reason: str | None = None
    caller: str | None = None
    timeline: tuple[Item, ...] = ()

    @property
    def name(self) -> str:
        """What it is called, for people."""
        return self.title or self.description or self.session_id


Item = Message | ToolCall | ContextCompaction | TurnEnd | SubAgent
"""One thing on the timeline."""


def with_those_inside(timeline: Iterable[Item]) -> Iterator[Item]:
    """The things of a timeline, each with those in its sub-agents behind it."""
    for item in timeline:
        yield item
        if isinstance(item, SubAgent):
            yield from with_those_inside(item.timeline)


def replace_fields(fields: dict[str, bytes], kind: str, parts: Mapping[str, bytes]) -> None:
    """Put the members of a `tool_call` or `tool_call_update` into a call's fields.

    Each one named replaces the old value, collections included; null, and by the schema a value
    of the wrong type, means unchanged. A `tool_call` that names no status begins anew.
    """
    if kind == "tool_call":
        fields.pop("status", None)
    for name, value in parts.items():
        if name in ("sessionUpdate", "toolCallId") or (value == b"null" and name in _NULLABLE):
            continue
        if name in _STRINGS and not value.startswith(b'"'):
            continue
        if name in _ARRAYS and not value.startswith(b"["):
            continue
        if name == "_meta" and b'"acphold/' in value:
            # What we add ourselves stands beside what the agent has put there.
            value = encode_object({**members(fields.get("_meta", b"{}")), **members(value)})
        fields[name] = value


_NO_TEXTS: Final[Mapping[str, str]] = {}


def without_terminals(
    content: bytes,
    texts: Mapping[str, str] = _NO_TEXTS,
    stays: Callable[[str], bool] = lambda _: False,
) -> bytes:
    """A tool call's `content` with the text that each terminal showed in its place.

    `texts` has it by `terminalId`. A terminal without a text is left out, for nobody who was not
    there when it ran can show it, unless it `stays`.
    """
    if b'"terminalId"' not in content:
        return content
    kept = []
    for item in items(content):
        parts = members(item)
        named = string(parts.get("terminalId")) or ""
        if string(parts.get("type")) != "terminal" or stays(named):
            kept.append(item)
        elif (text := texts.get(named)) is not None:
            kept.append(b'{"type":"content","content":%b}' % text_block(text))
    return b"[%b]" % b",".join(kept)


def terminal_entry(tool_call_id: str, content: bytes, texts: Mapping[str, str]) -> bytes:
    """The raw of a `terminal` entry: this call's `content` with `texts` for its terminals."""
    return encode_object(
        {
            "sessionUpdate": b'"tool_call_update"',
            "toolCallId": encode_text(tool_call_id),
            "content": without_terminals(content, texts),
        }
    )


def opens_tool(kind: str, status: str | None) -> bool | None:
    """Whether an update of this kind and status leaves a call open; None if it does not say.

    A `tool_call` without a status is pending, by the schema's default.
    """
    if status is None:
        return True if kind == "tool_call" else None
    return status not in FINAL_STATUSES


class MessageDraft:
    """A message that may still grow. Its plain text is joined when it is looked at."""

    def __init__(self, role: Role, message_id: str | None) -> None:
        self.role = role
        self.message_id = message_id
        self._blocks: list[bytes] = []
        self._texts: list[str] = []

    @classmethod
    def of(cls, message: Message) -> MessageDraft:
        """A message that goes on where `message` ended."""
        draft = cls(message.role, message.message_id)
        for block in message.content:
            draft.add_block(block)
        return draft

    def add_text(self, text: str) -> None:
        """Go on with plain text."""
        self._texts.append(text)

    def add_block(self, block: bytes) -> None:
        """Go on with a content block."""
        text = content_text(block)
        if text is not None:
            self._texts.append(text)
            return
        self._blocks += [*self._text(), block]
        self._texts = []

    def message(self) -> Message:
        """The message so far."""
        return Message(self.role, self.message_id, (*self._blocks, *self._text()))

    def _text(self) -> list[bytes]:
        return [text_block("".join(self._texts))] if self._texts else []


class CompactionDraft:
    """A compaction of the agent's context that may still change."""

    def __init__(self, compaction_id: str, status: str = "in_progress") -> None:
        self.compaction_id = compaction_id
        self.status: str = status
        self.error: str | None = None
        self.summary: MessageDraft = MessageDraft("agent", None)

    @classmethod
    def of(cls, compaction: ContextCompaction) -> CompactionDraft:
        """One that goes on where `compaction` ended."""
        draft = cls(compaction.compaction_id, compaction.status)
        draft.error = compaction.error
        draft.summary = MessageDraft.of(Message("agent", None, compaction.summary))
        return draft

    def patch(self, parts: Mapping[str, bytes]) -> None:
        """Put the members of a `compaction_update` in: one that is left out changes nothing, null
        clears it, and one of a wrong type counts as left out."""
        self.status = string(parts.get("status")) or self.status
        error, summary = parts.get("error"), parts.get("summary", b"")
        if error == b"null" or string(error) is not None:
            self.error = string(error)
        if summary == b"null" or summary.startswith(b"["):
            self.summary = MessageDraft("agent", None)
            for block in items(summary) if summary != b"null" else ():
                self.summary.add_block(block)

    def compaction(self) -> ContextCompaction:
        """The compaction so far."""
        summary = self.summary.message().content
        return ContextCompaction(self.compaction_id, self.status, summary, self.error)


class ToolDraft:
    """A tool call that may still change."""

    def __init__(self, tool_call_id: str, fields: Mapping[str, bytes] | None = None) -> None:
        self.tool_call_id = tool_call_id
        self.fields: dict[str, bytes] = dict(fields or {})

    def tool_call(self) -> ToolCall:
        """The call so far."""
        return ToolCall(self.tool_call_id, {**self.fields})
