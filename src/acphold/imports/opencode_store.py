"""OpenCode's storage of sessions: rows of a database of either version, or files.

Version 2 has tables of its own, `session_v2` and `session_message`, where a message has its parts
inside. The older tables `session`, `message` and `part` stay beside them, or are missing. Messages
of version 2 are brought into the older form.

The id of a message begins with the time of who made it, of a prompt the browser's: so messages of
version 1 are in the order of the server's time, an answer after its prompt. Those of version 2 have
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from acphold.imports import databases
from acphold.imports.record_tree import HELD_BYTES
from acphold.imports.records import document, readable
from acphold.imports.sources import files_below, note, note_database
from acphold.imports.values import Missed, Object, from_json, milliseconds, obj, objects, text

MESSAGES_OF: Final = {"session": "message", "session_v2": "session_message"}
"""The tables of sessions, and those of their messages."""

PARTS: Final = "parts"
"""The parts of a message of version 2, inside of it."""


class OpencodeStore(Protocol):
    """The storage of sessions; messages and parts are as version 1 wrote them."""

    def session(self, session_id: str) -> Object:
        """Return the session, empty if there is none."""

    def messages(self, session_id: str) -> Iterator[Object]:
        """Yield its messages, oldest first, each with its `id`."""

    def parts(self, message: Object) -> Iterator[Object]:
        """Yield the parts of a message in order, each with its `id`."""

    def children(self, session_id: str) -> Iterator[tuple[str, str]]:
        """Yield the ids and titles of the sessions of its subagents."""


class _Place(NamedTuple):
    """The place of a message: its time, its number in version 2, its id and that of its prompt."""

    at: int
    number: int
    name: str
    parent: str = ""


def _in_order(places: Iterable[_Place]) -> Iterator[str]:
    """Yield the ids by time, each answer after its prompt; a message without a time stays behind
    the one with the id before its own."""
    dated: list[_Place] = []
    for place in sorted(places, key=attrgetter("number", "name")):
        dated.append(place if place.at or not dated else place._replace(at=dated[-1].at))
    dated.sort(key=attrgetter("at"))
    untold = dict.fromkeys(place.name for place in dated)
    waiting: dict[str, list[str]] = {}
    for place in dated:
        if place.parent in untold and place.parent != place.name:
            waiting.setdefault(place.parent, []).append(place.name)
            continue
        due = [place.name]
        while due:
            name = due.pop()
            del untold[name]
            yield name
            due += reversed(waiting.pop(name, []))
    yield from untold  # each is the answer to another one of them


def existing_tables(database: Path) -> list[str]:
    """Return the tables of sessions that a database has; an unreadable one is noted."""
    note_database(database)
    try:
        if database.exists():
            return [name for name in MESSAGES_OF if databases.columns_of(database, name, ["id"])]
    except OSError as error:
        note(error)
    return []


class OpencodeRows:
    """The rows of a database."""

    def __init__(self, path: Path, missed: Missed) -> None:
        self._path = path
        self._missed = missed
        self._tables = existing_tables(path)

    def session(self, session_id: str) -> Object:
        wanted = ("directory", "title", "version", "time_created", "fork_session_id")
        found: Object = {}
        for table in self._tables:
            found |= databases.row_by_id(self._path, table, wanted, session_id)
        if not found:
            return {}
        found["time"] = {"created": found.get("time_created")}
        return found

    def messages(self, session_id: str) -> Iterator[Object]:
        old: dict[str, _Place] = {}
        new: dict[str, _Place] = {}
        held: dict[str, Object] = {}
        size = 0
        if "session" in self._tables:
            for name, data in self._rows("message", "id, data", "session_id = ?", session_id):
                message = self._decode(data)
                at = milliseconds(obj(message, "time").get("created")) or 0
                old[name] = _Place(at, 0, name, text(message, "parentID"))
                if size <= HELD_BYTES:
                    held[name], size = message, size + len(str(data))
        if "session_v2" in self._tables:
            columns = "id, seq, time_created"
            for row in self._rows("session_message", columns, "session_id = ?", session_id):
                name, number, at = row
                number = number if isinstance(number, int) else 0
                new[name] = _Place(milliseconds(at) or 0, number, name)
        if old.keys() <= new.keys():  # of version 2, or migrated whole
            order = [it.name for it in sorted(new.values(), key=attrgetter("number"))]
        else:
            order = [*_in_order((old | new).values())]
        for name in order:
            if name in new:
                for kind, data in self._rows("session_message", "type, data", "id = ?", name):
                    yield _as_before(kind, self._decode(data)) | {"id": name}
            elif name in held:
                yield held.pop(name) | {"id": name}
            else:
                for (data,) in self._rows("message", "data", "id = ?", name):
                    yield self._decode(data) | {"id": name}

    def parts(self, message: Object) -> Iterator[Object]:
        if PARTS in message:
            yield from objects(message, PARTS)
        elif "session" in self._tables:
            where = "message_id = ? ORDER BY id"
            for name, data in self._rows("part", "id, data", where, text(message, "id")):
                yield self._decode(data) | {"id": name}

    def children(self, session_id: str) -> Iterator[tuple[str, str]]:
        for table in self._tables:
            where = "parent_id = ? ORDER BY id"
            for name, title in self._rows(table, "id, title", where, session_id):
                yield name, title if isinstance(title, str) else ""

    def _rows(self, table: str, columns: str, where: str, key: str) -> Iterator[tuple[Any, ...]]:
        for row in databases.rows_of(self._path, table, columns, where, self._missed, key):
            if isinstance(row[0], str):  # SQLite allows any type as a key
                yield row
            else:
                self._missed.add("rows without text", 0)

    def _decode(self, data: object) -> Object:
        if not isinstance(data, str):
            if data is not None:
                self._missed.add("rows without text", data)
            return {}
        return readable(data.encode(errors="replace"), self._missed) or {}


class OpencodeFiles:
    """The files of versions before 1.2."""

    def __init__(self, path: Path, missed: Missed) -> None:
        self._session = path
        self._folder = path.parent.parent.parent
        self._missed = missed

    def session(self, session_id: str) -> Object:
        return document(self._session.with_name(f"{session_id}.json"), self._missed)

    def messages(self, session_id: str) -> Iterator[Object]:
        paths = {path.stem: path for path in self._paths("message", session_id)}
        places: list[_Place] = []
        for name, path in paths.items():
            message = document(path, Missed())
            at = milliseconds(obj(message, "time").get("created")) or 0
            places.append(_Place(at, 0, name, text(message, "parentID")))
        for name in _in_order(places):
            yield document(paths[name], self._missed) | {"id": name}

    def parts(self, message: Object) -> Iterator[Object]:
        for path in self._paths("part", text(message, "id")):
            yield document(path, self._missed) | {"id": path.stem}

    def children(self, session_id: str) -> Iterator[tuple[str, str]]:
        for path in files_below(self._session.parent, "ses_*.json"):
            session = document(path, Missed())
            if text(session, "parentID") == session_id:
                yield path.stem, text(session, "title")

    def _paths(self, kind: str, name: str) -> Iterator[Path]:
        if re.fullmatch(r"[\w-]+", name):
            yield from files_below(self._folder / kind / name, "*.json")


# -- messages of version 2 ------------------------------------------------------------------


def _as_before(kind: object, message: Object) -> Object:
    """Return a message of version 2 in the form of version 1."""
    told = message | {"role": kind, PARTS: []}
    if kind == "user":
        parts: list[Object] = [{"type": "text", "text": text(message, "text")}]
        parts += [
            {
                "type": "file",
                "url": text(file, "uri"),
                "mime": text(file, "mime"),
                "filename": text(file, "name"),
            }
            for file in objects(message, "files")
        ]
        told[PARTS] = parts
    elif kind == "assistant":
        model, error = obj(message, "model"), obj(message, "error")
        told["modelID"] = text(model, "id") or text(model, "modelID")
        told[PARTS] = [_part_as_before(part) for part in objects(message, "content")]
        if error:
            told["error"] = {
                "name": text(error, "type"),
                "data": {"message": text(error, "message")},
            }
    return told


def _part_as_before(part: Object) -> Object:
    if text(part, "type") != "tool":
        return part
    state = obj(part, "state")
    shown = objects(state, "content")
    told: Object = {
        "status": text(state, "status"),
        "input": from_json(state.get("input")),
        "output": "\n".join(words for one in shown if (words := text(one, "text"))),
        "files": [one for one in shown if text(one, "type") == "file"],
        "error": text(state, "error", "message"),
        "metadata": obj(state, "metadata"),
    }
    return {"type": "tool", "callID": text(part, "id"), "tool": text(part, "name"), "state": told}
