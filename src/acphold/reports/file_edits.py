"""What tool calls did to files, and what the files were before and after it.

A call shows an edit as an old and a new text of a file. Which part of the file that is, agents do
not say: some show the whole of it, some the lines around a change, some only the words that were
replaced. So the text of a file is known

- behind an edit that made or wrote the whole file, and from there on as long as each further edit
  fits in just one place;
- from what is on disk now: it is what the last edit left, what the first one found, or something
  between the two;
- else not. Of a single edit that shows whole lines, these lines are known.

Source of the shapes: ACP v1 schema, `Diff`, `ToolCall`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from acphold.history.children import said
from acphold.history.entries import CHILD, PARAMS, TERMINAL, UPDATE, Segment
from acphold.history.raw_update import UNREADABLE, items, members, string, update_kind
from acphold.history.timeline import FINAL_STATUSES, ToolDraft, replace_fields
from acphold.history.turn_spans import TurnSpan, span_at


class Edit(Struct, frozen=True):
    """One edit of the file `path` in a turn; `old` None: the file is made, or written whole.

    `is_piece`: `old` is what the tool was told to replace, and may begin and end within a line.
    `is_everywhere`: it was replaced wherever it stood. `deletes`: the file is gone behind it.
    `is_over`: the call said that it was completed. `line` is where `old` begins, if that is told.
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
    """There is no such file."""


ABSENT: Final = Absent()

TRIED_EDITS: Final = 50
"""Of more edits of one file it is not tried whether the disk has it as it was between two."""

TELLING_OF_CALLS: Final = (UPDATE, PARAMS, TERMINAL, CHILD)
"""The kinds of entries that tell of tool calls."""

FileText = str | Absent
"""A file: its text, or that it is not there."""


# -- found in a session ---------------------------------------------------------------------------


async def edits(segments: AsyncIterable[Segment], spans: Sequence[TurnSpan]) -> list[Edit]:
    """The edits of a whole session in the order of their calls; none of calls that failed."""
    calls: list[tuple[int, ToolDraft]] = []
    places: dict[tuple[str, str], int] = {}
    async for segment in segments:
        if segment.kind not in TELLING_OF_CALLS or b'"toolCallId"' not in segment.raw:
            continue
        for entry in segment.entries():
            kind, parts = update_kind(entry.update), members(entry.update)
            named = string(parts.get("toolCallId"))
            if kind not in ("tool_call", "tool_call_update") or not named:
                continue
            # A sub-agent counts its calls by itself.
            call_id = (said(entry.raw).child if entry.kind == CHILD else "", named)
            span = span_at(spans, segment.first_seq)
            turn = 0 if span is None else span.number
            place = places.get(call_id)
            # Ids begin again in some agents: a call that is told anew in a later turn is another.
            if place is None or (kind == "tool_call" and calls[place][0] != turn):
                place = places[call_id] = len(calls)
                calls.append((turn, ToolDraft(named)))
            replace_fields(calls[place][1].fields, kind, parts)

    found: list[Edit] = []
    for turn, call in calls:
        fields, status = call.fields, string(call.fields.get("status"))
        if status == "failed":
            continue
        texts, is_everywhere = _given(fields.get("rawInput"))
        lines: list[int | None] = []
        for location in items(fields.get("locations", b"[]")):
            lines.append(None)
            with suppress(*UNREADABLE):
                lines[-1] = msgspec.json.decode(location, type=_Place).line
        content = map(members, items(fields.get("content", b"[]")))
        diffs = [parts for parts in content if parts.get("type") == b'"diff"']
        for place, parts in enumerate(diffs):
            path, new = string(parts.get("path")), string(parts.get("newText"))
            if path is None or new is None:
                continue
            old = string(parts.get("oldText"))
            edit = Edit(
                turn,
                path,
                old,
                new,
                is_piece=old is not None and old in texts,
                is_everywhere=is_everywhere,
                deletes=not new and string(fields.get("kind")) == "delete",
                is_over=status in FINAL_STATUSES,
                line=lines[place] if len(lines) == len(diffs) else None,
            )
            found.append(edit)
    return found


class _Place(Struct):
    line: int | None = None


def _given(raw: bytes | None) -> tuple[set[str], bool]:
    """The texts that a tool was given, and whether it was to replace all that it finds."""
    texts: set[str] = set()
    is_everywhere = False
    try:
        waiting: list[object] = [msgspec.json.decode(raw or b"null")]
    except UNREADABLE:
        return texts, is_everywhere
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            texts.add(value)
        elif isinstance(value, dict):
            is_everywhere |= True in (value.get("replace_all"), value.get("replaceAll"))
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return texts, is_everywhere


# -- what a file was ------------------------------------------------------------------------------


def around(
    edits: Sequence[Edit], first: int, last: int, on_disk: Callable[[], FileText | None]
) -> tuple[FileText, FileText] | None:
    """A file before its edit `first` and behind its edit `last`; None where that is not known.

    `on_disk` tells what the file is now, None when that is of no use; it is asked where the edits
    themselves do not say enough.
    """

    def accounts() -> Iterator[States]:
        """What the file may have been, the surest first."""
        yield _onwards(edits, ABSENT if edits[0].old is None else None)
        if (now := on_disk()) is None:
            return
        # What is replaced stands in one place before: so at most one of these goes through.
        places = [len(edits), 0, *range(1, len(edits) if len(edits) <= TRIED_EDITS else 1)]
        for place in places:
            tried = [*_backwards(edits[:place], now)[:-1], *_onwards(edits[place:], now)]
            if None not in tried:
                yield tried
                return
        yield _backwards(edits, now)

    for states in accounts():
        before, after = states[first], states[last + 1]
        if before is not None and after is not None:
            return before, after
    return None


def behind(edits: Sequence[Edit], before: FileText) -> FileText | None:
    """A file behind these edits; None when one of them does not fit."""
    return _onwards(edits, before)[-1]


States = list[FileText | None]
"""A file before, between and behind its edits; None where not known. What is known of one account
fits together; what is known of two need not."""


def _onwards(edits: Sequence[Edit], state: FileText | None) -> States:
    found = [state]
    for edit in edits:
        state = _done(edit, state)
        found.append(state)
    return found


def _done(edit: Edit, state: FileText | None) -> FileText | None:
    """The file behind an edit."""
    if edit.deletes:
        return None if isinstance(state, Absent) else ABSENT
    if edit.old is None or (state == ABSENT and not edit.old):
        return edit.new
    if state is None or isinstance(state, Absent):
        return None
    return _replaced(edit, state, edit.old, edit.new)


def _backwards(edits: Sequence[Edit], state: FileText | None) -> States:
    found = [state]
    for edit in reversed(edits):
        before = None if state is None else _undone(edit, state)
        # Going on from there must lead back here, or it was another place.
        state = before if before is not None and _done(edit, before) == state else None
        found.append(state)
    return found[::-1]


def _undone(edit: Edit, state: FileText) -> FileText | None:
    """The file before an edit."""
    if edit.deletes:
        return edit.old or None
    if isinstance(state, Absent):
        return None
    if edit.old is None:
        return ABSENT
    if edit.is_everywhere and state != edit.new:
        return None  # what stood there before by itself looks the same
    return _replaced(edit, state, edit.new, edit.old)


def _replaced(edit: Edit, state: str, text: str, by: str) -> str | None:
    """The file with `text` in it replaced; None unless it is there in one place."""
    if state == text:
        return by
    places: list[int] = []
    place = state.find(text) if text else -1
    while place >= 0:
        end = place + len(text)
        begins = place == 0 or state[place - 1] == "\n"
        ends = end == len(state) or state[end] == "\n" or text.endswith("\n")
        if edit.is_piece or (begins and ends):
            places.append(place)
        place = state.find(text, place + 1)
    if edit.is_everywhere and places and edit.is_piece:
        return state.replace(text, by)
    if len(places) != 1:
        return None
    return state[: places[0]] + by + state[places[0] + len(text) :]
