"""Codex's threads: one file each, or several if the person went back.

A file is `rollout-<time>-<thread>.jsonl`. In a paginated thread, whose records have ordinals, going
back ends that file, and the thread goes on in `rollout-<time>-<thread>_<segment>.jsonl`. A fork is
a thread of its own. Both begin, by their `history_base`, with the records of another file before an
ordinal. In older threads going back is a record, `thread_rolled_back`, in the same file.

Left behind is what a newer prompt of the person was put in the place of; going back alone takes
nothing away.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from acphold.imports.entry_writer import NotStraightError
from acphold.imports.record_tree import LAST, RecordTree
from acphold.imports.records import mentions, placed_records, records
from acphold.imports.salvage import RowForm
from acphold.imports.sources import Source, files_below
from acphold.imports.values import (
    Missed,
    Object,
    first_text,
    milliseconds,
    number,
    obj,
    objects,
    text,
)

ROWS: Final = RowForm(
    frozenset({"payload", "timestamp", "type"}), has_moment=True, begins=b'_started"'
)

FOLDERS: Final = ("sessions", "archived_sessions")

_ID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME: Final = re.compile(rf"rollout-.*?-({_ID})(?:_({_ID}))?\.jsonl")
_BASE_END: Final = "end_ordinal_exclusive"
_ROLLED_BACK: Final = b'"thread_rolled_back"'
TURN_STARTED: Final = ("task_started", "turn_started")
PROMPTS: Final = ("user_message", "UserMessage")
_ANSWERS: Final = ("agent_message", "AgentMessage", "function_call", "custom_tool_call")


class RolloutName(NamedTuple):
    """The ids in the name of a file: of its thread, and of the file among those of the thread."""

    thread: str
    segment: str


def name_of(path: Path) -> RolloutName | None:
    """Return the ids in a file's name; None if it is no rollout."""
    found = _NAME.match(path.name)
    return RolloutName(found[1], found[2] or found[1]) if found else None


def numbered(path: Path, missed: Missed, begin: int = 0) -> Iterator[tuple[int, int, Object]]:
    """Yield the records of a file from a byte on: the ordinal of each, which is the next one if it
    has none, its offset, which is 0 in a compressed file, and the record."""
    place, is_packed = -1, path.suffix == ".zst"
    for offset, record in placed_records(path, missed, ROWS, begin):
        given = number(record, "ordinal")
        place = place + 1 if given is None else given
        yield place, 0 if is_packed else offset, record


def event_of(record: Object) -> tuple[str, Object]:
    """Return the kind of an event on the screen, and the event; of other records "" and theirs."""
    payload = obj(record, "payload")
    if text(record, "type") != "event_msg":
        return "", payload
    if text(payload, "type") == "item_completed":
        payload = obj(payload, "item")
    return text(payload, "type"), payload


def words_of(event: Object) -> str:
    """Return the words of a message on the screen: they are a text, or in parts of an item."""
    words = first_text(event, ("message", "text"))
    return words or "".join(text(part, "text") for part in objects(event, "content"))


class _File:
    """A file of a thread; of another thread, its records before the ordinal `end`."""

    def __init__(self, path: Path, end: int | None = None) -> None:
        self.path, self._end = path, end
        first = next(records(path, Missed(), ROWS), {})
        self.head = obj(first, "payload") or first
        name = name_of(path)
        self.segment = name.segment if name else ""
        self.at = milliseconds(self.head.get("timestamp")) or 0
        self._base = obj(self.head, "history_base")
        self._places = array("q")

    def find_base(self, known: dict[str, _File], missed: Missed) -> _File | None:
        """Return the file that this one begins in, known or found beside it; None if none is."""
        segment, end = text(self._base, "thread_id"), number(self._base, _BASE_END)
        if segment not in known and end is not None and (path := rollout_of(self.path, segment)):
            known[segment] = _File(path, end)
        if (found := known.get(segment)) is None:
            if self._base:
                missed.add("beginnings that are in no file", 0)
        elif found._end is not None:
            found._end = max(found._end, end or 0)
        return found

    def has(self, place: int) -> bool:
        """Return True if the record with this ordinal is part of the thread."""
        return self._end is None or place < self._end

    def name(self, place: int) -> str:
        """Return the id of a record, by its ordinal."""
        return f"{self.segment} {place}"

    def grow(self, tree: RecordTree, known: dict[str, _File]) -> None:
        """Add the records to a tree, with its prompt as the first of each turn."""
        base, end = known.get(text(self._base, "thread_id")), number(self._base, _BASE_END) or 0
        before = (it for it in base._places if it < end) if base else ()
        tree.go_on_from(base.name(max(before, default=end - 1)) if base else "")
        prompts: list[str] = []
        waiting: list[tuple[int, bool]] = []  # of the turn that begins
        turn, begins = "", False

        def tell(prompt: Object | None = None) -> None:
            for place, is_answer in waiting:
                name, words = self.name(place), words_of(prompt) if prompt else ""
                is_typed = prompt is not None
                tree.add(name, LAST, typed=is_typed, answers=is_answer, words=words, name=turn)
                prompts.extend([name] * is_typed)
                prompt = None
            waiting.clear()

        for place, _, record in numbered(self.path, Missed()):
            if not self.has(place):
                break
            self._places.append(place)
            kind, event = event_of(record)
            is_persons = kind in PROMPTS or (not kind and text(event, "role") == "user")
            # Older versions have no record of the beginning of a turn.
            if kind in TURN_STARTED or (is_persons and not begins):
                tell()
                turn, begins = text(event, "turn_id") or turn, True
            waiting.append((place, kind in _ANSWERS or text(event, "type") in _ANSWERS))
            if kind in PROMPTS:
                tell(event)
                begins = False
            elif kind == "thread_rolled_back" and (count := number(event, "num_turns") or 0) > 0:
                tell()
                for name in prompts[-count:][:1]:
                    tree.go_back(name)
                del prompts[-count:]
        tell()


class Thread:
    """The files of a thread, and those that they begin in."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.files = sorted(
            map(_File, map(Path, source.paths)), key=lambda file: (file.at, file.path.name)
        )
        self.head = self.files[-1].head
        """The metadata of the thread."""
        self._tree = RecordTree()
        self._is_plain = True

    def tree(self, missed: Missed) -> RecordTree:
        """Return the tree of its records; empty if nobody went back."""
        source, begin = self._source, self._source.begin
        is_paginated = text(self.head, "history_mode") == "paginated"
        self._is_plain = not (
            len(self.files) > 1
            or "history_base" in self.head
            or (not is_paginated and mentions(source.path, _ROLLED_BACK, begin))
        )
        if not self._is_plain:
            if begin:  # read on from the middle
                raise NotStraightError
            self._grow(missed)
        return self._tree

    def _grow(self, missed: Missed) -> None:
        """Grow the tree: each file behind the one that it begins in."""
        known = {file.segment: file for file in self.files}
        order: dict[str, _File] = {}
        for own in self.files:
            above: _File | None = own
            way: dict[str, _File] = {}
            while above is not None and above.segment not in order.keys() | way.keys():
                way[above.segment] = above
                above = above.find_base(known, missed)
            order |= reversed(way.items())
        for file in order.values():
            file.grow(self._tree, known)
        self.files = [*order.values()]

    def records(self, file: _File, missed: Missed) -> Iterator[tuple[int, Object]]:
        """Yield the records of a file that are told, with their offsets, if these are known."""
        for place, offset, record in numbered(file.path, missed, self._source.begin):
            if self._is_plain:
                yield offset, record
            elif not file.has(place):
                break
            elif self._tree.tells(file.name(place)):
                yield 0, record


def folder_of(path: Path) -> Path | None:
    """Return the one of FOLDERS that a file is in."""
    return next((it for it in path.parents if it.name in FOLDERS), None)


def rollout_of(beside: Path, segment: str) -> Path | None:
    """Return the file with this id, of the same agent as another one; None if there is none.

    The time in an id names the folder that it was most likely written in.
    """
    top = folder_of(beside)
    if top is None or not re.fullmatch(_ID, segment):
        return None
    folders = [beside.parent]
    at = datetime.fromtimestamp(int(segment[:8] + segment[9:13], 16) / 1000)
    folders += [top / (at + timedelta(days=days)).strftime("%Y/%m/%d") for days in (-1, 0, 1)]
    near = (files_below(folder, f"rollout-*{segment}.jsonl*") for folder in folders)
    every = (files_below(top.with_name(name), "**/rollout-*.jsonl*") for name in FOLDERS)
    for path in chain.from_iterable(chain(near, every)):
        if (name := name_of(path)) and name.segment == segment:
            return path
    return None
