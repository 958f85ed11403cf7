"""Tool calls' edits of files, and the files before and after them.

A call shows an edit as an old and a new text of a file. Agents do not say which part of the file
that is: some show the whole of it, some the lines around a change, some only the replaced words. So
the text of a file is known

- after an edit that made or wrote the whole file, and from there on as long as each further edit
  fits in exactly one place;
- from the file on disk now: it is the state after the last edit, before the first one, or between
  two of them;
- otherwise not. For a single edit that shows whole lines, these lines are known.

Some agents show an edit only when they ask for permission, and then what the tool has said.

Source of the shapes: ACP v1 schema, `Diff`, `ToolCall`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Raw, Struct
from msgspec.json import Decoder

from acp_wire.schema.splice import UNREADABLE
from acphold.conversation.history.children import child_update
from acphold.conversation.history.decisions import AskedQuestion, asked_question, closed_question
from acphold.conversation.history.entries import (
    ANSWER,
    CHILD,
    PARAMS,
    QUESTION,
    TERMINAL,
    UPDATE,
    Segment,
    TurnSpan,
    span_at,
)
from acphold.conversation.history.raw_update import items, members, string, update_kind, values_in
from acphold.conversation.history.timeline import FINAL_STATUSES, ToolDraft


class Edit(Struct, frozen=True):
    """One edit of the file `path` in a turn; `old` None: the file is created, or written whole.

    `is_piece`: `old` is the text the tool was told to replace, and may begin and end within a line.
    `is_everywhere`: all occurrences were replaced. `deletes`: the file is gone afterwards.
    `is_over`: the call was reported as completed. `line` is where `old` begins, if reported.
    """

    turn: int
    path: str
    old: str | None
    new: str
    is_piece: bool = False
    is_everywhere: bool = False
    deletes: bool = False
    is_over: bool = True
    line: int | None = None


class Absent(Struct, frozen=True):
    """The file does not exist."""


ABSENT: Final = Absent()

TRIED_EDITS: Final = 50
"""Most edits of one file for which states between two edits are compared with the disk."""

TELLING_OF_CALLS: Final = (UPDATE, PARAMS, TERMINAL, CHILD)
"""The kinds of entries that report tool calls."""

FileText = str | Absent
"""The state of a file: its text, or that it does not exist."""


# -- edits of a session -----------------------------------------------------------------------


async def edits(segments: AsyncIterable[Segment], spans: Sequence[TurnSpan]) -> list[Edit]:
    """Return the edits of a whole session in the order of their calls; none of failed calls."""
    calls: list[_ReportedCall] = []
    latest: dict[tuple[str, str], _ReportedCall] = {}  # by sub-agent, "" for none, and id
    # The diffs that questions show count for their call once somebody has allowed it.
    asked: dict[str, tuple[AskedQuestion, _ReportedCall]] = {}
    async for segment in segments:
        for _, raw in segment.raws() if segment.kind == QUESTION else ():
            question = asked_question(raw)
            call = latest.get(("", string(question.tool_call.get("toolCallId")) or ""))
            if call is not None:
                asked[question.id] = question, call
        for _, raw in segment.raws() if segment.kind == ANSWER else ():
            closed = closed_question(raw)
            if closed.question in asked:
                question, call = asked.pop(closed.question)
                if closed.came(question).how.startswith("allow_"):
                    call.asked[:] = diffs_in(question.tool_call) or call.asked
        if segment.kind not in TELLING_OF_CALLS or b'"toolCallId"' not in segment.raw:
            continue
        for entry in segment.entries():
            update = entry.update
            kind, parts = update_kind(update), _members(update)
            content = parts.pop("content", None)
            fields = {name: bytes(value) for name, value in parts.items()}
            call_id = string(fields.get("toolCallId"))
            if kind not in ("tool_call", "tool_call_update") or not call_id:
                continue
            sub_agent = child_update(entry.raw).child if entry.kind == CHILD else ""
            span = span_at(spans, segment.first_seq)
            turn = 0 if span is None else span.number
            call = latest.get((sub_agent, call_id))
            # Some agents reuse ids: a call announced again in a later turn is another one.
            if call is None or (kind == "tool_call" and call.turn != turn):
                call = _ReportedCall(turn, ToolDraft(call_id))
                latest[sub_agent, call_id] = call
                calls.append(call)
            call.draft.patch(kind, fields)
            if content is not None and (shown := _diffs_in(content)) is not None:
                call.shown[:] = shown
    return [edit for call in calls for edit in call.edits()]


class _ReportedCall(Struct, frozen=True):
    """A tool call as far as it was reported. `shown` are its diffs, `asked` those that were allowed
    when it asked for permission. `draft` has no content: the texts of a diff may be long, and are
    in memory once."""

    turn: int
    draft: ToolDraft
    shown: list[ReportedDiff] = []
    asked: list[ReportedDiff] = []

    def edits(self) -> Iterator[Edit]:
        """Yield the edits that it shows as diffs; none if it failed."""
        fields = self.draft.fields
        status = string(fields.get("status"))
        if status == "failed":
            return
        texts: set[str] = set()
        is_everywhere = False  # True if the tool was to replace all occurrences
        for value in values_in(fields.get("rawInput")):
            if isinstance(value, str):
                texts.add(value)
            elif isinstance(value, dict):
                is_everywhere |= True in (value.get("replace_all"), value.get("replaceAll"))
        lines: list[int | None] = []
        for location in items(fields.get("locations", b"[]")):
            digits = members(location).get("line", b"")
            lines.append(int(digits) if digits.isdigit() and len(digits) < 10 else None)
        diffs = self.shown or (self.asked if status == "completed" else [])
        if len(lines) != len(diffs):  # it is unclear which line belongs to which diff
            lines = [None] * len(diffs)
        for diff, line in zip(diffs, lines, strict=True):
            path, old, new = diff.path, diff.old, diff.new
            if path is None or new is None:
                continue
            yield Edit(
                self.turn,
                path,
                old,
                new,
                is_piece=old is not None and old in texts,
                is_everywhere=is_everywhere,
                deletes=not new and string(fields.get("kind")) == "delete",
                is_over=status in FINAL_STATUSES,
                line=line,
            )


class ReportedDiff(Struct, frozen=True):
    """A diff in the content of a tool call; None for what is missing, or no text."""

    path: str | None
    old: str | None
    new: str | None


def diffs_in(fields: Mapping[str, bytes]) -> list[ReportedDiff]:
    """Return the diffs in the content of a tool call."""
    return _diffs_in(Raw(fields.get("content", b"[]"))) or []


def _diffs_in(content: Raw) -> list[ReportedDiff] | None:
    """Return the diffs in the content of a tool call; None if it is no array."""
    try:
        items = _decode_items(content)
    except UNREADABLE:
        return None
    diffs = [parts for parts in map(_members, items) if _text(parts.get("type")) == "diff"]
    return [
        ReportedDiff(*(_text(parts.get(name)) for name in ("path", "oldText", "newText")))
        for parts in diffs
    ]


_decode_items: Final = Decoder(list[Raw]).decode
_decode_members: Final = Decoder(dict[str, Raw]).decode
_decode_text: Final = Decoder(str).decode


def _members(raw: bytes | Raw) -> dict[str, Raw]:
    """Return the members of a JSON object, which are no copies; {} if it is no object."""
    try:
        return _decode_members(raw)
    except UNREADABLE:
        return {}


def _text(raw: Raw | None) -> str | None:
    try:
        return None if raw is None else _decode_text(raw)
    except UNREADABLE:
        return None


# -- states of a file -------------------------------------------------------------------------


def around(
    edits: Sequence[Edit], first: int, last: int, on_disk: Callable[[], FileText | None]
) -> tuple[FileText, FileText] | None:
    """Return a file before its edit `first` and after its edit `last`; None if that is unknown.

    `on_disk` returns the file's present state, None if that is of no use; it is only called if the
    edits themselves are not enough.
    """

    def possible_histories() -> Iterator[States]:
        """Yield possible histories of the file, the most certain first."""
        yield _forwards(edits, ABSENT if edits[0].old is None else None)
        if (now := on_disk()) is None:
            return
        # The replaced text is in one place before the edit: so at most one of these works out.
        places = [len(edits), 0, *range(1, len(edits) if len(edits) <= TRIED_EDITS else 1)]
        for place in places:
            states = [*_backwards(edits[:place], now)[:-1], *_forwards(edits[place:], now)]
            if None not in states:
                yield states
                return
        yield _backwards(edits, now)

    for states in possible_histories():
        before, after = states[first], states[last + 1]
        if before is not None and after is not None:
            return before, after
    return None


def state_after(edits: Sequence[Edit], before: FileText) -> FileText | None:
    """Return a file after these edits; None if one of them does not fit."""
    return _forwards(edits, before)[-1]


States = list[FileText | None]
"""A file before, between and after its edits; None if unknown.

The known states of one history are consistent; those of two need not be.
"""


KEPT_CHARACTERS: Final = 64 << 20
"""Most characters of the states that are kept of one history; those beyond are unknown."""


def _forwards(edits: Sequence[Edit], state: FileText | None) -> States:
    return _states(state, edits, _after_edit)


def _states(
    state: FileText | None,
    edits: Iterable[Edit],
    step: Callable[[Edit, FileText | None], FileText | None],
) -> States:
    """Return the states of a walk over edits. The last one is always kept."""
    found, room = [state], KEPT_CHARACTERS
    for edit in edits:
        if room < 0:
            found[-1] = None
        state = step(edit, state)
        room -= len(state) if isinstance(state, str) else 0
        found.append(state)
    return found


def _after_edit(edit: Edit, state: FileText | None) -> FileText | None:
    """Return the file after an edit."""
    if edit.deletes:
        return None if isinstance(state, Absent) else ABSENT
    if edit.old is None or (state == ABSENT and not edit.old):
        return edit.new
    if state is None or isinstance(state, Absent):
        return None
    return _replace(edit, state, edit.old, edit.new)


def _backwards(edits: Sequence[Edit], state: FileText | None) -> States:
    return _states(state, reversed(edits), _before_edit)[::-1]


def _before_edit(edit: Edit, state: FileText | None) -> FileText | None:
    """Return the file before an edit, if the edit leads from there to `state`."""
    before: FileText | None
    if state is None:
        before = None
    elif edit.deletes:
        before = edit.old or None
    elif isinstance(state, Absent):
        before = None
    elif edit.old is None:
        before = ABSENT
    elif edit.is_everywhere and state != edit.new:
        before = None  # text that was there before looks the same
    else:
        before = _replace(edit, state, edit.new, edit.old)
    # Otherwise the edit was in another place.
    return before if before is not None and _after_edit(edit, before) == state else None


def _replace(edit: Edit, state: str, text: str, by: str) -> str | None:
    """Return the file with `text` in it replaced; None unless it occurs in exactly one place."""
    if state == text:
        return by
    if not text:
        return None
    if edit.is_piece:
        place, last = state.find(text), state.rfind(text)
        if place >= 0 and edit.is_everywhere:
            return state.replace(text, by)
    else:  # whole lines: found with the line ends around them, each at its place in `state`
        end = "" if text.endswith("\n") else "\n"
        lines, sought = f"\n{state}{end}", f"\n{text}{end}"
        place, last = lines.find(sought), lines.rfind(sought)
    return state[:place] + by + state[place + len(text) :] if place == last >= 0 else None
