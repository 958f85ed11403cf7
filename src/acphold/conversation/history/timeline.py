"""The timeline of a session: its messages, tool calls and ends of turns, in order.

Updates add up to it: chunks join the message that they belong to, and each field that an update of
a tool call names replaces the old value (ACP v1, `ToolCallUpdate`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from acp_wire import schema
from acp_wire.errors import AcpError, InvalidParamsError, RemoteError
from acp_wire.schema import splice
from acp_wire.schema.splice import UNREADABLE, json_value
from acphold.conversation.errors import InterruptedTurnError
from acphold.conversation.history.display_terminals import (
    DisplayTerminal,
    DisplayTerminals,
    may_tell,
    texts,
)
from acphold.conversation.history.entries import LATEST_MS, in_utc
from acphold.conversation.history.raw_update import (
    Role,
    array,
    content_text,
    encode_object,
    encode_text,
    items,
    members,
    string,
    text_block,
    with_meta,
)

FINAL_STATUSES: Final = frozenset({"completed", "failed"})
"""Statuses after which nothing more is expected of a tool call."""

_STRINGS: Final = frozenset({"title", "name", "kind", "status"})
_ARRAYS: Final = frozenset({"content", "locations"})
_NULLABLE: Final = frozenset({*_STRINGS, *_ARRAYS, "rawInput", "rawOutput", "_meta"})


class Message(Struct, frozen=True):
    """A message of one side; `content` holds its content blocks raw, consecutive plain text as
    one."""

    role: Role
    message_id: str | None
    content: tuple[bytes, ...]
    user: str = ""  # a named one, in a transcript

    def __repr__(self) -> str:
        return f"<Message of {self.role}: {shorten(self.text)!r}>"

    @property
    def blocks(self) -> tuple[schema.ContentBlock, ...]:
        """Its content blocks; one that breaks the schema is UnknownContent."""
        blocks: list[schema.ContentBlock] = []
        for raw in self.content:
            try:
                blocks += schema.decode_blocks(b"[%b]" % raw).value
            except InvalidParamsError:
                kind = string(members(raw).get("type")) or ""
                blocks.append(schema.UnknownContent(kind, raw))
        return tuple(blocks)

    @property
    def text(self) -> str:
        """All of its plain text."""
        return "".join(filter(None, map(content_text, self.content)))


def shorten(text: str) -> str:
    """Return the beginning of a text, short enough for a `repr`."""
    return text if len(text) < 60 else f"{text[:59]}…"


class ToolCall(Struct, frozen=True):
    """A tool call as it stands; `fields` has the newest value of each, raw and by its name on the
    wire.

    `terminals` are those that the agent only shows, by id. In `content` and `produced` their text
    stands in their place.
    """

    tool_call_id: str
    fields: Mapping[str, bytes]
    terminals: Mapping[str, DisplayTerminal] = {}

    def __repr__(self) -> str:
        about = shorten(self.title or self.name or "")
        return f"<ToolCall {self.tool_call_id!r} {self.status}: {about!r}>"

    @property
    def name(self) -> str | None:
        """Its name for programs, if reported."""
        return string(self.fields.get("name"))

    @property
    def title(self) -> str:
        """Its description for people."""
        return string(self.fields.get("title")) or ""

    @property
    def kind(self) -> str:
        """`read`, `edit`, `execute` …; `other` if the agent did not say."""
        return string(self.fields.get("kind")) or "other"

    @property
    def status(self) -> str:
        """`pending`, `in_progress`, `completed` or `failed`."""
        return string(self.fields.get("status")) or "pending"

    @property
    def input(self) -> Any:
        """Its input, as JSON."""
        return json_value(self.raw_input, object)

    @property
    def output(self) -> Any:
        """Its output, as JSON."""
        return json_value(self.raw_output, object)

    @property
    def locations(self) -> tuple[schema.ToolCallLocation, ...]:
        """The files that it works on."""
        return self._decode("locations", self.fields.get("locations", b"null")).locations or ()

    @property
    def produced(self) -> tuple[schema.ToolCallContent, ...]:
        """Its products; () if they cannot be read."""
        return self._decode("content", self._raw_content).content or ()

    @property
    def blocks(self) -> tuple[schema.ContentBlock, ...]:
        """The content blocks that it produced."""
        return tuple(part.content for part in self.produced if isinstance(part, schema.Content))

    @property
    def diffs(self) -> tuple[schema.Diff, ...]:
        """Its changes of files."""
        return tuple(part for part in self.produced if isinstance(part, schema.Diff))

    def _decode(self, name: str, value: bytes) -> schema.ToolCallPatch:
        raw = b'{"toolCallId":"","%b":%b}' % (name.encode(), value)
        try:
            return schema.decode(schema.ToolCallPatch, raw).value
        except InvalidParamsError:
            return schema.ToolCallPatch(tool_call_id="")

    @property
    def content(self) -> list[bytes]:
        """The same as `produced`, raw."""
        return items(self._raw_content)

    @property
    def _raw_content(self) -> bytes:
        content = self.fields.get("content", b"[]")
        if not self.terminals:
            return content
        known = texts(self.terminals)
        # Unknown ones stay: they may be the client's own.
        return without_terminals(content, known, lambda id_: id_ not in known)

    @property
    def raw_input(self) -> bytes | None:
        """The tool's input as JSON."""
        return self.fields.get("rawInput")

    @property
    def raw_output(self) -> bytes | None:
        """The tool's output as JSON."""
        return self.fields.get("rawOutput")


class ContextCompaction(Struct, frozen=True):
    """A compaction by the agent of the context that its model gets, finished or not.

    `status` is `in_progress`, `completed`, `failed`, `cancelled` or the agent's own word; `summary`
    holds raw content blocks, as far as the agent shows it.
    """

    compaction_id: str
    status: str
    summary: tuple[bytes, ...] = ()
    error: str | None = None


TurnOutcome = Literal[
    "completed", "limited", "refused", "cancelled", "failed", "interrupted", "unanswered"
]
"""`limited` by tokens or requests, or by the vendor's usage limit; `interrupted` by a crash;
`unanswered` in an imported session, where nobody knows why."""

LIMIT_MARK: Final = "acphold/limit"
"""The key in the `_meta` of a `turn_end` entry that says that the vendor's limit ended the turn:
`{"words": "…", "resetsAt": MS}`, without `resetsAt` if the agent did not tell when it resets."""

OUTCOMES: Final[dict[str, TurnOutcome]] = {
    "max_tokens": "limited",
    "max_turn_requests": "limited",
    "refusal": "refused",
    "cancelled": "cancelled",
}
"""The outcome for each stop reason; any other completes the turn."""


class TurnEnd(Struct, frozen=True):
    """The end of a turn.

    `stop_reason` is the agent's own word; `message` is the reason of a failure. After a refusal the
    agent forgets the prompt and what came after it.
    """

    outcome: TurnOutcome
    at_ms: int
    stop_reason: str | None = None
    message: str | None = None
    resets_ms: int | None = None

    @property
    def at(self) -> datetime:
        """The time, in UTC."""
        return in_utc(self.at_ms)

    @property
    def resets_at(self) -> datetime | None:
        """The reset of the vendor's limit, in UTC."""
        return None if self.resets_ms is None else in_utc(self.resets_ms)


def turn_end(raw: bytes, at: int) -> TurnEnd:
    """Return the content of a `turn_end` entry."""
    try:
        end = _decode_end(raw)
    except UNREADABLE:
        return TurnEnd("completed", at)
    if end.interrupted and (cut_off := bytes(end.interrupted)) in (b"true", b"null"):
        return TurnEnd("interrupted" if cut_off == b"true" else "unanswered", at)
    stop_reason = string(bytes(end.stop_reason))
    if b"limit" in raw:  # as in hardly any
        limit = members(members(bytes(end.meta)).get(LIMIT_MARK, b""))
        if (words := string(limit.get("words"))) is not None:
            return TurnEnd("limited", at, stop_reason, words, moment(limit.get("resetsAt", b"")))
    if end.error:
        return TurnEnd("failed", at, message=string(members(bytes(end.error)).get("message")))
    return TurnEnd(OUTCOMES.get(stop_reason or "", "completed"), at, stop_reason)


class _End(Struct):
    interrupted: msgspec.Raw = msgspec.Raw()
    stop_reason: msgspec.Raw = msgspec.field(name="stopReason", default=msgspec.Raw())
    error: msgspec.Raw = msgspec.Raw()
    meta: msgspec.Raw = msgspec.field(name="_meta", default=msgspec.Raw())


_decode_end: Final = msgspec.json.Decoder(_End).decode


class _TurnFailure(Struct):
    code: int
    message: str


class _AnswerInEnd(Struct):
    error: _TurnFailure | None = None
    stop_reason: msgspec.Raw = msgspec.field(name="stopReason", default=msgspec.Raw())


def end_entry(answer: bytes | AcpError) -> bytes:
    """Return the `turn_end` entry of a turn with this answer."""
    if isinstance(answer, bytes):  # it tells neither a failure of ours nor a crash
        may_tell = b"error" in answer or b"interrupted" in answer or b"\\" in answer
        if not may_tell or members(answer).keys().isdisjoint(("error", "interrupted")):
            return answer
        return splice(answer, {"error": None, "interrupted": None})
    return msgspec.json.encode({"error": {"code": answer.code, "message": str(answer)}})


def answer_in(entry: bytes) -> bytes | AcpError:
    """Return the answer to a prompt by the `turn_end` entry of its turn, or whichever entry is the
    last of a turn without an end."""
    try:
        end = msgspec.json.decode(entry, type=_AnswerInEnd)
    except msgspec.ValidationError:  # an agent's own answer, with an `error` of another form
        return entry
    if end.error is not None:
        return RemoteError(end.error.code, end.error.message)
    return entry if end.stop_reason else InterruptedTurnError()


def moment(raw: bytes) -> int | None:
    """Return a time in ms since the epoch; None if a clock cannot show it."""
    at = int(raw) if raw.isdigit() and len(raw) < 16 else 0
    return at if 0 < at < LATEST_MS else None


class _Left(Struct):
    left: list[tuple[int, int]] = []


def left_by(back: bytes) -> list[tuple[int, int]]:
    """Return the numbers of the entries that a `back` entry says were left."""
    found = json_value(back, _Left)
    return found.left if found else []


def with_limit(end: bytes, words: str, resets_at: int | None) -> bytes:
    """Return a `turn_end` entry with the mark that the vendor's limit ended the turn."""
    mark = {"words": encode_text(words)}
    if resets_at is not None:
        mark["resetsAt"] = b"%d" % resets_at
    return with_meta(end, LIMIT_MARK, encode_object(mark))


class SubAgent(Struct, frozen=True):
    """An agent that works for the agent, in a session of its own: a child of this one.

    `status` is `running`, `idle`, `requires_action` or the agent's own word; `stop_reason` is why
    it went idle. `caller` is the tool call that made it. Experimental: it follows a draft of the
    protocol, and two dialects of it.
    """

    session_id: str
    title: str | None = None
    description: str | None = None
    status: str | None = None
    stop_reason: str | None = None
    caller: str | None = None
    timeline: tuple[Item, ...] = ()

    @property
    def name(self) -> str:
        """Its name, for people."""
        return self.title or self.description or self.session_id


Item = Message | ToolCall | ContextCompaction | TurnEnd | SubAgent
"""One item of the timeline."""


def with_those_inside(timeline: Iterable[Item]) -> Iterator[Item]:
    """Yield the items of a timeline, each followed by those in its sub-agents."""
    for item in timeline:
        yield item
        if isinstance(item, SubAgent):
            yield from with_those_inside(item.timeline)


_NO_TEXTS: Final[Mapping[str, str]] = {}


def without_terminals(
    content: bytes,
    known: Mapping[str, str] = _NO_TEXTS,
    stays: Callable[[str], bool] = lambda _: False,
) -> bytes:
    """Return a tool call's `content` with each terminal replaced by its text.

    `known` has the texts by `terminalId`. A terminal without a text is left out, for a later client
    cannot show it, unless it `stays`.
    """
    if b'"terminalId"' not in content:
        return content
    kept = []
    for item in items(content):
        parts = members(item)
        named = string(parts.get("terminalId")) or ""
        if string(parts.get("type")) != "terminal" or stays(named):
            kept.append(item)
        elif (text := known.get(named)) is not None:
            kept.append(b'{"type":"content","content":%b}' % text_block(text))
    return array(kept)


def terminal_entry(tool_call_id: str, content: bytes, known: Mapping[str, str]) -> bytes:
    """Return the raw of a `terminal` entry: this call's `content` with the texts for its
    terminals."""
    return encode_object(
        {
            "sessionUpdate": b'"tool_call_update"',
            "toolCallId": encode_text(tool_call_id),
            "content": without_terminals(content, known),
        }
    )


def opens_tool(kind: str, status: str | None) -> bool | None:
    """Return True if an update of this kind and status leaves a call open; None if it does not say.

    A `tool_call` without a status is pending, by the schema's default.
    """
    if status is None:
        return True if kind == "tool_call" else None
    return status not in FINAL_STATUSES


class MessageDraft:
    """A message that may still grow. Its plain text is joined when it is read."""

    def __init__(self, role: Role, message_id: str | None) -> None:
        self.role = role
        self.message_id = message_id
        self._blocks: list[bytes] = []
        self._texts: list[str] = []

    @classmethod
    def of(cls, message: Message) -> MessageDraft:
        """Return a draft that goes on where `message` ended."""
        draft = cls(message.role, message.message_id)
        for block in message.content:
            draft.add_block(block)
        return draft

    def add_text(self, text: str) -> None:
        """Append plain text."""
        self._texts.append(text)

    def add_block(self, block: bytes) -> None:
        """Append a content block."""
        text = content_text(block)
        if text is not None:
            self._texts.append(text)
            return
        self._blocks += [*self._text(), block]
        self._texts = []

    def message(self) -> Message:
        """Return the message so far."""
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
        """Return a draft that goes on where `compaction` ended."""
        draft = cls(compaction.compaction_id, compaction.status)
        draft.error = compaction.error
        draft.summary = MessageDraft.of(Message("agent", None, compaction.summary))
        return draft

    def patch(self, parts: Mapping[str, bytes]) -> None:
        """Apply the members of a `compaction_update`: an absent one changes nothing, null clears
        it, and one of a wrong type counts as absent."""
        self.status = string(parts.get("status")) or self.status
        error, summary = parts.get("error"), parts.get("summary", b"")
        if error == b"null" or string(error) is not None:
            self.error = string(error)
        if summary == b"null" or summary.startswith(b"["):
            self.summary = MessageDraft("agent", None)
            for block in items(summary) if summary != b"null" else ():
                self.summary.add_block(block)

    def compaction(self) -> ContextCompaction:
        """Return the compaction so far."""
        summary = self.summary.message().content
        return ContextCompaction(self.compaction_id, self.status, summary, self.error)


class ToolDraft:
    """A tool call that may still change."""

    def __init__(self, tool_call_id: str) -> None:
        self.tool_call_id = tool_call_id
        self.fields: dict[str, bytes] = {}
        self.terminals = _NO_TERMINALS

    @classmethod
    def of(cls, call: ToolCall) -> ToolDraft:
        """Return a draft that goes on where `call` stands."""
        draft = cls(call.tool_call_id)
        draft.fields = {**call.fields}
        if call.terminals:
            draft.terminals = DisplayTerminals(call.terminals)
        return draft

    def patch(self, kind: str, parts: Mapping[str, bytes]) -> None:
        """Apply the members of a `tool_call` or `tool_call_update`.

        Each one named replaces the old value, collections included; null, and by the schema a value
        of the wrong type, means unchanged. A `tool_call` without a status starts anew.
        """
        fields = self.fields
        if kind == "tool_call":
            fields.pop("status", None)
        for name, value in parts.items():
            if name in ("sessionUpdate", "toolCallId") or (value == b"null" and name in _NULLABLE):
                continue
            if name in _STRINGS and not value.startswith(b'"'):
                continue
            if name in _ARRAYS and not value.startswith(b"["):
                continue
            if name == "_meta":
                if may_tell(value):
                    if self.terminals is _NO_TERMINALS:
                        self.terminals = DisplayTerminals()
                    value = self.terminals.take(value)
                if value in (b"", b"{}"):
                    continue
                if b'"acphold/' in value:
                    # Our own additions stay beside the agent's.
                    value = encode_object({**members(fields.get(name, b"{}")), **members(value)})
            fields[name] = value

    def tool_call(self) -> ToolCall:
        """Return the call so far."""
        return ToolCall(self.tool_call_id, {**self.fields}, self.terminals.terminals())


_NO_TERMINALS: Final = DisplayTerminals()
"""Shared by most calls, which have none: never changed."""
