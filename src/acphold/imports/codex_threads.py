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
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from acphold.imports.entry_writer import NotStraightError
from acphold.imports.records import mentions, placed_records, records
from acphold.imports.salvage import RowForm
from acphold.imports.sources import Source, files_below
from acphold.imports.values import Missed, Object, milliseconds, number, obj, text

ROWS: Final = RowForm(frozenset({"payload", "timestamp", "type"}))

FOLDERS: Final = ("sessions", "archived_sessions")

_ID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME: Final = re.compile(rf"rollout-.*?-({_ID})(?:_({_ID}))?\.jsonl")
_ROLLED_BACK: Final = b'"thread_rolled_back"'
TURN_STARTED: Final = ("task_started", "turn_started")
PROMPTS: Final = ("user_message", "UserMessage")


class RolloutName(NamedTuple):
    """The ids in the name of a file: of its thread, and of the file among those of the thread."""

    thread: str
    segment: str


def name_of(path: Path) -> RolloutName | None:
    """Return the ids in a file's name; None if it is no rollout."""
    found = _NAME.match(path.name)
    return RolloutName(found[1], found[2] or found[1]) if found else None


def numbered(path: Path, missed: Missed) -> Iterator[tuple[int, Object]]:
    """Yield the records of a file with their ordinals; one without is the next one."""
    place = -1
    for record in records(path, missed, ROWS):
        given = number(record, "ordinal")
        place = place + 1 if given is None else given
        yield place, record


def event_of(record: Object) -> tuple[str, Object]:
    """Return the kind of an event on the screen, and the event; of other records "" and theirs."""
    payload = obj(record, "payload")
    if text(record, "type") != "event_msg":
        return "", payload
    if text(payload, "type") == "item_completed":
        payload = obj(payload, "item")
    return text(payload, "type"), payload


class Stretch(NamedTuple):
    """A part of a thread: the records of a file before the ordinal `end`, without those between
    the ordinals in `gone`."""

    path: Path
    end: int | None = None
    gone: tuple[tuple[int, int], ...] = ()
    begin: int = 0

    def records(self, missed: Missed) -> Iterator[tuple[int, Object]]:
        """Yield its records from the byte `begin` on, with their offsets, if these are known."""
        if self.end is None and not self.gone:
            is_packed = self.path.suffix == ".zst"
            for offset, record in placed_records(self.path, missed, ROWS, self.begin):
                yield 0 if is_packed else offset, record
            return
        for place, record in numbered(self.path, missed):
            if self.end is not None and place >= self.end:
                return
            if not any(begin <= place <= end for begin, end in self.gone):
                yield 0, record


class _Prompt(NamedTuple):
    """A prompt: the ordinals at which its turn and it begin, and the id of the turn."""

    begin: int
    place: int
    turn: str


class _TakenBack(NamedTuple):
    """Prompts taken back in a file, and the ordinals from the first one's turn to
    the record that took it back."""

    prompts: list[_Prompt]
    begin: int
    end: int


class _File:
    """A file of a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        first = next(records(path, Missed(), ROWS), {})
        self.head = obj(first, "payload") or first
        name = name_of(path)
        self.segment = name.segment if name else ""
        self.at = milliseconds(self.head.get("timestamp")) or 0
        self.prompts: list[_Prompt] = []
        self.taken_back: list[_TakenBack] = []

    def look(self) -> None:
        """Find the prompts, and what was taken back."""
        begin: int | None = None
        turn = ""
        waiting: list[_TakenBack] = []
        for place, record in numbered(self.path, Missed()):
            kind, event = event_of(record)
            if kind in TURN_STARTED:
                begin, turn = place, text(event, "turn_id")
            elif kind in PROMPTS:
                self.taken_back += waiting
                waiting = []
                self.prompts.append(_Prompt(begin or place, place, turn or str(place)))
                begin = None
            elif kind == "thread_rolled_back":
                count = number(event, "num_turns") or 0
                if count > 0 and (prompts := self.prompts[-count:]):
                    del self.prompts[-count:]
                    waiting.append(_TakenBack(prompts, prompts[0].begin, place))
            elif not kind and text(obj(record, "payload"), "role") == "user" and begin is None:
                begin = place  # older versions have no record of the beginning of a turn
        for one in waiting:
            self.prompts += one.prompts

    def stretch(self, end: int | None, gone_until: int | None = None) -> Stretch:
        """Return its records before `end` without what was taken back before `gone_until`."""
        gone = (it for it in self.taken_back if gone_until is None or it.end < gone_until)
        return Stretch(self.path, end, tuple((it.begin, it.end) for it in gone))


class Thread:
    """The files of a thread, and those that they begin in."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._files = sorted(
            map(_File, map(Path, source.paths)), key=lambda file: (file.at, file.path.name)
        )
        if source.begin:  # read on from the middle
            head = self._files[0].head
            if len(self._files) > 1 or "history_base" in head:
                raise NotStraightError
            if mentions(source.path, _ROLLED_BACK, source.begin):
                raise NotStraightError
            self._live = self._files[0]
            return
        is_paginated = any(text(file.head, "history_mode") == "paginated" for file in self._files)
        if len(self._files) > 1 or (not is_paginated and mentions(source.path, _ROLLED_BACK)):
            for file in self._files:
                file.look()
        # The newest file with a prompt in it.
        self._live = next((it for it in reversed(self._files) if it.prompts), self._files[-1])

    @property
    def head(self) -> Object:
        """The metadata of the thread."""
        return self._files[-1].head

    def stretches(self, missed: Missed) -> list[Stretch]:
        """Return what is told: the live part, or the part that is the item of the source."""
        if begin := self._source.begin:
            return [Stretch(self._live.path, begin=begin)]
        segment, _, until = self._source.item.partition(" ")
        file = next((it for it in self._files if it.segment == segment), self._live)
        end = int(until) if until else None
        return [*self._beginnings(file, missed), file.stretch(end, end)]

    def _beginnings(self, file: _File, missed: Missed) -> list[Stretch]:
        """Return the parts of other files that a file begins with."""
        own = {it.segment: it for it in self._files}
        found: list[Stretch] = []
        seen = {file.segment}
        while base := obj(file.head, "history_base"):
            segment, end = text(base, "thread_id"), number(base, "end_ordinal_exclusive")
            known = own.get(segment)
            path = known.path if known else rollout_of(file.path, segment)
            if path is None or end is None or segment in seen:
                missed.add("beginnings that are in no file", 0)
                break
            seen.add(segment)
            file = known or _File(path)
            found.insert(0, file.stretch(end))
        return found

    def left_behind(self) -> Iterator[tuple[list[str], str]]:
        """Yield the turns of each part that the person went back from, and its item."""
        if self._source.begin:
            return
        told = (*self._beginnings(self._live, Missed()), Stretch(self._live.path))
        live = {it.path: it.end for it in told}
        for file in self._files:
            end = live.get(file.path, -1)
            if turns := [it.turn for it in file.prompts if end is not None and it.place >= end]:
                yield turns, file.segment
            for one in file.taken_back:
                yield [it.turn for it in one.prompts], f"{file.segment} {one.end}"


def rollout_of(beside: Path, segment: str) -> Path | None:
    """Return the file with this id, of the same agent as another one; None if there is none.

    The time in an id names the folder that it was most likely written in.
    """
    top = next((it for it in beside.parents if it.name in FOLDERS), None)
    if top is None or not re.fullmatch(_ID, segment):
        return None
    folders = [beside.parent]
    at = datetime.fromtimestamp(int(segment[:8] + segment[9:13], 16) / 1000)
    folders += [top / (at + timedelta(days=days)).strftime("%Y/%m/%d") for days in (-1, 0, 1)]
    for folder in folders:
        for path in files_below(folder, f"rollout-*{segment}.jsonl*"):
            if (name := name_of(path)) and name.segment == segment:
                return path
    for folder in (top.with_name(name) for name in FOLDERS):
        for path in files_below(folder, "**/rollout-*.jsonl*"):
            if (name := name_of(path)) and name.segment == segment:
                return path
    return None
