"""The news that readers yield, folded for the tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acphold.conversation.history.entries import Entry
from acphold.conversation.history.fold import SessionState, fold
from acphold.conversation.history.timeline import Message, ToolCall
from acphold.imports import Home, Reader, Source
from acphold.imports.pieces import pieces
from acphold.imports.turns import NOTHING

Json = Any


def sources(reader: Reader, home: Path) -> list[Source]:
    """The conversations that the reader finds."""
    return list(reader.find(Home(home)))


class Story:
    """A conversation as its reader told it."""

    def __init__(self, reader: Reader, source: Source) -> None:
        told = list(pieces(source, reader, NOTHING))
        self.facts = told[-1].facts
        self.entries = [entry for piece in told for entry in piece.entries] + told[-1].closing
        self.raw = [(entry.kind, json.loads(entry.raw)) for entry in self.entries]

    @classmethod
    def of(cls, reader: Reader, home: Path) -> Story:
        """Of the only conversation in a home folder."""
        (source,) = sources(reader, home)
        return cls(reader, source)

    @property
    def state(self) -> SessionState:
        return fold(Entry(n, h.kind, h.at, h.raw) for n, h in enumerate(self.entries, 1))

    def said(self) -> list[tuple[str, str]]:
        """Messages with their roles, and tool calls: ("user", "Hello."), ("call", "Read x") …"""
        return [
            (item.role, item.text) if isinstance(item, Message) else ("call", item.title)
            for item in self.state.timeline
            if isinstance(item, Message | ToolCall)
        ]

    def calls(self) -> list[ToolCall]:
        return [item for item in self.state.timeline if isinstance(item, ToolCall)]

    def call(self) -> dict[str, Json]:
        """The fields of the only call."""
        (call,) = self.calls()
        return {name: json.loads(raw) for name, raw in call.fields.items()}

    def prompts(self) -> list[list[Json]]:
        return [value for kind, value in self.raw if kind == "prompt"]

    def ends(self) -> list[Json]:
        """The ends of the turns."""
        return [value for kind, value in self.raw if kind == "turn_end"]

    def updates(self, kind: str) -> Iterator[Json]:
        """The updates of one kind."""
        return (u for k, u in self.raw if k == "update" and u["sessionUpdate"] == kind)

    def plan(self) -> list[tuple[str, str]]:
        *_, last = self.updates("plan")
        return [(entry["content"], entry["status"]) for entry in last["entries"]]


def write_lines(path: Path, *records: Json) -> Path:
    """A file of one JSON value a line; bytes stand as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for record in records:
            file.write(record if isinstance(record, bytes) else _line(record))
    return path


def _line(record: Json) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
