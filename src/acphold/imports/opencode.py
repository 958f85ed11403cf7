"""OpenCode: all sessions of a channel in one database, `~/.local/share/opencode/opencode.db`.

Other channels (a build from source, a preview) have databases beside it, `opencode-*.db`. Before
1.2 each session, message and part was a file below `storage`; they stay there after the migration.
A subagent is a session with a parent, told inside the call `task`. A part that is reverted is there
until the next prompt, and told until then.

Version 2 has tables of its own, `session_v2` and `session_message`, where a message has its parts
inside; its previews kept their sessions in `session`. The older tables `session`, `message` and
`part` stay beside them, or are missing. Messages of version 2 are brought into the older form.

The id of a message begins with the time of who made it, of a prompt the browser's: so messages of
version 1 are in the order of the server's time, an answer after its prompt. Those of version 2 have
numbers.

Kilo Code's command line keeps all sessions in this format, `~/.local/share/kilo/kilo.db`: it
started over as a copy of OpenCode, and its extension uses it, too. Before that, both kept tasks in
Cline's format, from which Kilo had begun.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from errno import EINVAL, ENOENT
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from acphold.imports import databases
from acphold.imports.cline import TASK_FILES, read_task, task_sources
from acphold.imports.content_blocks import (
    block_content,
    content,
    picture,
    resource,
    resource_link,
    text_block,
    unified_diffs,
)
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import AgentConverter, Reader, token_counts
from acphold.imports.record_tree import HELD_BYTES
from acphold.imports.records import document, readable
from acphold.imports.sources import Home, Source, file_sources, files_below, note, note_database
from acphold.imports.tools import edit_diffs, tool_of
from acphold.imports.values import (
    Missed,
    Object,
    as_bytes,
    first_text,
    from_json,
    look_up,
    milliseconds,
    number,
    obj,
    objects,
    text,
)

_PASSED_MESSAGES: Final = frozenset(
    {"agent-switched", "location-switched", "model-switched", "skill", "synthetic", "system"}
)
"""Messages of version 2 that the program wrote."""

_ABORTED: Final = re.compile("abort|interrupt", re.IGNORECASE)
_INTERRUPTED: Final = "Provider turn interrupted"
"""What the preview of version 2 writes when a person stops it, with an unknown error's type."""

_NAME: Final = re.compile(r"[\w-]+")

_URLS: Final = ("url", "uri")

_READ_FOR_IT: Final = re.compile(r"Called the Read tool with the following input: (\{.*\})")
_EMBEDDED: Final = re.compile(r"\[(/[^\]\n]+)\]\n(.*)", re.DOTALL)
_PASSED: Final = frozenset(
    {"agent", "compaction", "patch", "retry", "snapshot", "step-start", "subtask"}
)


# -- stored --------------------------------------------------------------------------------------

SESSIONS: Final = ("session", "session_v2")
MESSAGES: Final = ("message", "session_message")
"""The tables of sessions and of messages, each with that of version 2 behind."""

PARTS: Final = "parts"
"""The parts of a message of version 2, inside of it."""


class _Place(NamedTuple):
    """The place of a message: its time, its number in version 2, its id, that of its prompt, and
    the number of its row before version 2."""

    at: int
    number: int
    name: str
    parent: str = ""
    row: int = 0


def _was_in_files(session: Object) -> bool:
    """Return True if a session was begun before version 1.2, which moved it into the database."""
    version = [int(part) for part in re.findall(r"\d+", text(session, "version"))]
    return (version or [99])[:2] < [1, 2]


def _as_inserted(places: Iterable[_Place]) -> list[str]:
    """Return the ids in the order of their rows; empty if an answer stands before its prompt there,
    so that the rows were not inserted by turns."""
    rows = sorted(places, key=attrgetter("row"))
    number = {place.name: place.row for place in rows}
    by_turns = all(number.get(place.parent, 0) <= place.row for place in rows)
    return [place.name for place in rows] if by_turns else []


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


def _created(message: Object) -> int:
    return milliseconds(obj(message, "time").get("created")) or 0


def _existing(database: Path, names: Iterable[str]) -> list[str]:
    """Return those of these tables that a database has, of messages with their parts."""
    return [
        name
        for name in names
        if all(
            databases.columns_of(database, it, ["id"])
            for it in {name, _TABLES_OF_PARTS.get(name, name)}
        )
    ]


def _found_tables(database: Path) -> list[str]:
    """Return the tables of sessions; an unreadable database is noted, and one without any."""
    note_database(database)
    try:
        found = _existing(database, SESSIONS) if database.exists() else []
        if not found and database.exists() and databases.rows(database, _ANY_TABLE):
            note(OSError(EINVAL, "it has no table of sessions", str(database)))
        return found
    except OSError as error:
        note(error)
        return []


_ANY_TABLE: Final = "SELECT 1 FROM sqlite_master"


class OpencodeRows:
    """The rows of a database; messages and parts are as version 1 wrote them."""

    def __init__(self, path: Path, missed: Missed) -> None:
        self._path = path
        self._missed = missed
        self._sessions, self._messages = (_existing(path, it) for it in (SESSIONS, MESSAGES))

    def session(self, session_id: str) -> Object:
        """Return the session, empty if there is none."""
        wanted = ("directory", "title", "version", "time_created", "fork_session_id")
        found: Object = {}
        for table in self._sessions:
            found |= databases.row_by_id(self._path, table, wanted, session_id)
        return found | {"time": {"created": found.get("time_created")}}

    def messages(self, session_id: str) -> Iterator[Object]:
        """Yield its messages, oldest first, each with its `id`."""
        old: dict[str, _Place] = {}
        new: dict[str, _Place] = {}
        held: dict[str, Object] = {}
        size = 0
        if "message" in self._messages:
            columns = "id, data, rowid"
            for name, data, row in self._rows("message", columns, "session_id = ?", session_id):
                message = self._decode(data)
                old[name] = _Place(_created(message), 0, name, text(message, "parentID"), row)
                if size <= HELD_BYTES:
                    held[name], size = message, size + len(str(data))
        if "session_message" in self._messages:
            columns = "id, seq, time_created"
            for found in self._rows("session_message", columns, "session_id = ?", session_id):
                name, number, at = found
                number = number if isinstance(number, int) else 0
                new[name] = _Place(milliseconds(at) or 0, number, name)
        if old.keys() <= new.keys():  # of version 2, or migrated whole
            order = [it.name for it in sorted(new.values(), key=attrgetter("number"))]
        else:  # clocks are set back: if each row was inserted as it was said, that is the order
            is_told = not (new or _was_in_files(self.session(session_id)))
            order = _as_inserted(old.values()) if is_told else []
            order = order or [*_in_order((old | new).values())]
        for name in order:
            if databases.REPLACED in name:  # its parts are not found by it
                self._missed.add("messages whose id is not valid UTF-8", 0)
            if name in new:
                for kind, data in self._rows("session_message", "type, data", "id = ?", name):
                    yield _as_before(kind, self._decode(data)) | {"id": name}
            elif name in held:
                yield held.pop(name) | {"id": name}
            else:
                for (data,) in self._rows("message", "data", "id = ?", name):
                    yield self._decode(data) | {"id": name}

    def parts(self, message: Object) -> Iterator[Object]:
        """Yield the parts of a message in order, each with its `id`."""
        if PARTS in message:
            yield from objects(message, PARTS)
        elif "message" in self._messages:
            where = "message_id = ? ORDER BY id"
            for name, data in self._rows("part", "id, data", where, text(message, "id")):
                yield self._decode(data) | {"id": name}

    def children(self, session_id: str) -> Iterator[tuple[str, str]]:
        """Yield the ids and titles of the sessions of its subagents."""
        for table in self._sessions:
            where = "parent_id = ? ORDER BY id"
            for name, title in self._rows(table, "id, title", where, session_id):
                yield name, title if isinstance(title, str) else ""

    def _rows(self, table: str, columns: str, where: str, key: str) -> Iterator[tuple[Any, ...]]:
        for row in databases.AgentTables(self._path, self._missed).rows(table, columns, where, key):
            if isinstance(row[0], str):  # SQLite allows any type as a key
                yield row
            else:
                self._missed.add("rows without text", 0)

    def _decode(self, data: object) -> Object:
        return readable(as_bytes(data), self._missed) or {}


class OpencodeFiles:
    """The files of versions before 1.2, as `OpencodeRows`."""

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
            places.append(_Place(_created(message), 0, name, text(message, "parentID")))
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
        if _NAME.fullmatch(name):
            yield from files_below(self._folder / kind / name, "*.json", self._folder)


# -- messages of version 2 ------------------------------------------------------------------


def _as_before(kind: object, message: Object) -> Object:
    """Return a message of version 2 in the form of version 1."""
    told = message | {"role": kind, PARTS: []}
    if kind == "user":
        files = [file | {"type": "file"} for file in objects(message, "files")]
        told[PARTS] = [text_block(text(message, "text")), *files]
    elif kind == "assistant":
        told["modelID"] = first_text(message.get("model"), ("id", "modelID"))
        told[PARTS] = objects(message, "content")
    return told


# -- found ---------------------------------------------------------------------------------


def session_sources(
    home: Home, program: str = "opencode", variable: str = "OPENCODE_DB"
) -> Iterator[Source]:
    """Yield the sessions of OpenCode, or of a fork of it: those of the database, then those of
    which files have more; none of subagents."""
    folder = home.data(program)
    moved = home.variable(variable)
    own = folder / (moved or f"{program}.db")
    if moved:  # a link that a person named is followed
        own = Path(os.path.realpath(own))
    channels = [] if moved else files_below(folder, f"{program}-*.db")
    stored: dict[str, Path] = {}
    for database in (own, *channels):
        found: dict[str, Source] = {}
        for table in _found_tables(database):
            changed, size = "time_updated", "0"
            of_session = f"WHERE session_id = {table}.id)"
            for its in _existing(database, MESSAGES):
                size += f" + (SELECT count(*) FROM {_TABLES_OF_PARTS[its]} {of_session}"
            # Version 2 writes an answer on in its row, without its session.
            if databases.columns_of(database, MESSAGES[1], ["time_updated"]):
                newest = f"(SELECT max(time_updated) FROM {MESSAGES[1]} {of_session}"
                changed = f"max(time_updated, coalesce({newest}, 0))"
            columns = f"id, {changed}, {size}"
            for it in databases.sources(database, table, columns, "parent_id IS NULL"):
                if before := found.get(it.session_id):
                    it = replace(it, changed_at=max(it.changed_at, before.changed_at))
                found[it.session_id] = it
        stored |= dict.fromkeys(found, database)
        yield from found.values()
    messages_of = cache(_messages_of)
    paths = [*files_below(folder / "storage/session", "*/ses_*.json")]
    known = stored.keys() | {path.stem for path in paths}
    messages, names = folder / "storage/message", set[str]()
    with suppress(OSError):
        names.update(filter(_NAME.fullmatch, os.listdir(messages)))
    for name in sorted(names - known):
        if [*files_below(messages / name, "*.json", messages)]:
            note(OSError(ENOENT, "the file of its session is missing", str(messages / name)))
    for path in paths:
        migrated = stored.get(path.stem)
        is_wanted = migrated is None or _has_more(path, messages_of(migrated))
        if is_wanted and not text(document(path, Missed()), "parentID"):
            yield from file_sources([path])


_TABLES_OF_PARTS: Final = {"message": "part", "session_message": "session_message"}
"""The tables of the parts of messages."""

_WITH_PARTS: Final = {
    "message": "SELECT id, session_id, id IN (SELECT message_id FROM part) FROM message",
    "session_message": "SELECT id, session_id, 1 FROM session_message",
}
"""Queries of the messages, and whether they have parts."""


def _messages_of(database: Path) -> dict[str, tuple[str, bool]]:
    """Return the messages of a database by id: their sessions, and True if they have parts."""
    found: dict[str, tuple[str, bool]] = {}
    with suppress(OSError):
        for table in _existing(database, MESSAGES):
            rows = databases.rows(database, _WITH_PARTS[table])
            found.update((name, (its, has)) for name, its, has in rows if isinstance(name, str))
    return found


def _has_more(path: Path, known: dict[str, tuple[str, bool]]) -> bool:
    """Return True if the files of a session have what an interrupted migration left out of the
    database with these messages.

    Its last step are the parts. Once one was migrated, what the database lacks behind a newer
    message was removed, as by a revert.
    """
    storage, files = path.parent.parent.parent, set[str]()
    for message in files_below(storage / "message" / path.stem, "*.json", storage):
        files.add(message.stem)
        has_parts = known.get(message.stem, ("", True))[1]
        parts = storage / "part" / message.stem
        if not has_parts and [*files_below(parts, "*.json", storage)]:
            return True
    if files <= known.keys():
        return False
    has_newer = any(its == path.stem and name not in files for name, (its, _) in known.items())
    return not has_newer or not any(
        has_parts and _NAME.fullmatch(name) and os.path.exists(storage / "part" / name)
        for name, (_, has_parts) in known.items()
    )


# -- read ----------------------------------------------------------------------------------


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session."""
    path, session_id = source.path, source.session_id
    stored = OpencodeFiles if path.suffix == ".json" else OpencodeRows
    store = stored(path, writer.missed)
    session = store.session(session_id)
    facts = writer.facts
    facts.cwd, facts.begun_as = text(session, "directory"), text(session, "fork_session_id")
    writer.clock(obj(session, "time").get("created"))
    is_old = _was_in_files(session)
    converter = _OpencodeConverter(store, writer, session_id, is_old=is_old)
    yield from converter.take_all(store.messages(session_id))
    writer.title(text(session, "title"))


class _OpencodeConverter(AgentConverter):
    """Converts one session, or that of a subagent."""

    def __init__(
        self,
        store: OpencodeRows | OpencodeFiles,
        writer: EntryWriter,
        session_id: str,
        *,
        is_old: bool,
    ) -> None:
        super().__init__(writer)
        self._store = store
        self._session_id = session_id
        self._is_old = is_old
        self._replies: Counter[int] = Counter()
        self._asked = 0

    def take(self, message: Object) -> None:
        message_id, role = text(message, "id"), text(message, "role")
        self._writer.clock(obj(message, "time").get("created"))
        if role == "user":
            self._asked = number(message, "time", "created") or 0
            if not self._writer.caller:
                self._prompt(message_id, self._store.parts(message))
            return
        if role != "assistant":
            if not self._writer.caller:
                self._other(role, message)
            return
        self._cwd = text(message, "path", "cwd") or self._writer.facts.cwd
        self._answer(self._store.parts(message), message_id)
        if self._writer.caller:
            return
        tokens, cache = obj(message, "tokens"), obj(message, "tokens", "cache")
        self._writer.model(text(message, "modelID"))
        # A fork has copies of messages, with ids of its own and the times of the originals.
        if at := number(message, "time", "created"):
            self._replies[at] += 1
        reply = f"{self._asked} {at} {self._replies[at]}" if at else ""
        tokens |= {"cacheRead": cache.get("read"), "cacheWrite": cache.get("write")}
        self._writer.tokens(reply, **token_counts(tokens, "reasoning"))
        error = first_text(message.get("error"), ("name", "type"))
        why = text(message, "error", "data", "message") or text(message, "error", "message")
        if _ABORTED.search(error) or why == _INTERRUPTED:
            self._writer.end_turn("cancelled")
        elif error:
            self._writer.fail_turn(why or error)
        elif text(message, "finish") == "stop":
            self._writer.finish_answer()

    def _other(self, role: str, message: Object) -> None:
        """Write what neither the person nor the model said, in version 2."""
        message_id, outcome = text(message, "id"), text(message, "outcome")
        if role == "shell":
            self._writer.prompt([text_block(f"! {text(message, 'command')}")], turn=message_id)
            output = text(message, "output") or text(message, "output", "output")
            self._writer.say(output, message_id)
            self._writer.finish_answer()
        elif role == "compaction":
            if text(message, "reason") == "manual":
                self._writer.prompt([text_block("/compact")], turn=message_id)
            if summary := text(message, "summary"):
                self._writer.compaction(message_id, summary)
            elif text(message, "status") == "failed":
                self._writer.fail_turn(text(message, "error", "message"))
        elif role == "idle" and outcome == "interrupted":
            self._writer.end_turn("cancelled")
        elif role == "idle" and outcome == "succeeded":
            self._writer.finish_answer()
        elif role != "idle" and role not in _PASSED_MESSAGES:
            self._missed.kind("messages", role, message)

    def _prompt(self, message_id: str, parts: Iterator[Object]) -> None:
        """Write a person's prompt: without file contents the program read, links as links."""
        blocks: list[Object] = []
        read_for_it = ""
        for part in parts:
            kind, words = text(part, "type"), text(part, "text")
            if kind == "compaction" and part.get("auto") is not True:
                blocks.append(text_block("/compact"))
            elif kind == "text" and part.get("synthetic") is True:
                if found := _READ_FOR_IT.match(words):
                    read_for_it = text(readable(found[1].encode(), Missed()), "filePath")
            elif kind == "text" and (embedded := _EMBEDDED.fullmatch(words)):
                blocks.append(resource(f"file://{embedded[1]}", embedded[2]))
            elif kind == "text":
                blocks.append(text_block(words))
            elif kind == "file":
                url, name = first_text(part, _URLS), first_text(part, ("filename", "name"))
                is_image = text(part, "mime").startswith("image/")
                uri = name if url.startswith("data:") else url
                uri = f"file://{read_for_it}" if read_for_it else uri
                block = picture(url) if is_image else None
                blocks.append(block or resource_link(name, uri))
                read_for_it = ""
            elif kind not in _PASSED:
                self._missed.kind("parts of prompts", kind, part)
        blocks = [block for block in blocks if block.get("text") != ""]
        self._writer.prompt(blocks, turn=message_id)

    def _other_part(self, kind: str, part: Object, message_id: str) -> None:
        if kind == "file":
            if found := picture(first_text(part, _URLS)):
                self._writer.show(found, message_id)
        elif kind not in _PASSED and kind != "step-finish":
            super()._other_part(kind, part, message_id)

    def _call(self, part: Object) -> None:
        """Write a call, its subagent's calls, and its result."""
        cwd = self._cwd
        call_id, name = first_text(part, ("callID", "id")), first_text(part, ("tool", "name"))
        state, arguments = obj(part, "state"), obj(from_json(look_up(part, "state", "input")))
        has_folder = name in ("bash", "shell") and not self._is_old and bool(cwd)
        path = text(arguments, "filePath") or text(arguments, "path")
        place = path or (cwd if has_folder else "")
        is_other = name == "todowrite" or (self._is_old and name == "task")
        kind = "other" if is_other else tool_of(name).kind
        fields: Object = {
            "status": "in_progress",
            "title": (text(arguments, "command") if has_folder else "") or name,
            "kind": kind,
            "rawInput": arguments | {"cwd": cwd} if has_folder else arguments,
            "locations": [{"path": place}] if place else [],
        }
        self._writer.call(call_id, fields)
        if name == "todowrite" and text(state, "status") == "completed":
            self._writer.plan(objects(arguments, "todos"))
        if name in ("task", "subagent"):
            self._tell_subagent(call_id, self._subagent(state, arguments))
        # How it ended; of one without an end, its output so far.
        status, about = text(state, "status"), obj(state, "metadata")
        if status == "completed":
            parts = objects(state, "content")  # in version 2
            output = text(state, "output") or "\n".join(
                words for one in parts if (words := text(one, "text"))
            )
            shown = text(about, "display", "text") if name == "read" else ""
            produced = [content(shown or output)]
            for file in (one for one in parts if text(one, "type") == "file"):
                found = picture(text(file, "uri"))
                link = resource_link(text(file, "name"), text(file, "uri"))
                produced.append(block_content(found or link))
            if name != "patch" and kind == "edit":
                produced += edit_diffs(path, arguments)
            elif name == "patch":
                for file in objects(about, "files"):
                    produced += unified_diffs(text(file, "file"), text(file, "patch"))
            more: Object = {"rawOutput": {"output": output, "metadata": about}}
            if "title" in state:
                more["title"] = text(state, "title") or name
            self._end_call(call_id, failed=False, produced=produced, **more)
        elif status == "error":
            error = text(state, "error") or text(state, "error", "message")
            raw: Object = {"error": error} | ({"metadata": about} if about else {})
            self._end_call(call_id, failed=True, produced=[content(error)], rawOutput=raw)
        elif printed := text(about, "output"):
            self._writer.update(call_id, {"content": [content(printed)]})

    def _subagent(self, state: Object, arguments: Object) -> str:
        """Return the session of a call's subagent; a later call may go on with it.

        One that was stopped at once is not named in its call yet.
        """
        child = first_text(obj(state, "metadata"), ("sessionId", "sessionID"))
        if child or text(state, "status") in ("completed", "error") or self._writer.caller:
            return child
        asked = text(arguments, "description")
        children = self._store.children(self._session_id)
        named = (it for it, title in children if asked and title.startswith(asked))
        return next((it for it in named if it not in self.told), "")

    def _inside(self, child: str) -> tuple[AgentConverter, Iterator[Object]]:
        converter = _OpencodeConverter(self._store, self._writer, child, is_old=self._is_old)
        return converter, self._store.messages(child)


READER: Final = Reader("opencode", "OpenCode", session_sources, read)


# -- Kilo Code -------------------------------------------------------------------------------

EXTENSION: Final = "kilocode.kilo-code"


def _find_kilo(home: Home) -> Iterator[Source]:
    """Yield the sessions of the database, then the tasks of the old command line and editors."""
    yield from session_sources(home, "kilo", "KILO_DB")
    yield from task_sources(home, EXTENSION, own=home.path / ".kilocode/cli/global")


def _read_kilo(source: Source, writer: EntryWriter) -> Iterator[None]:
    is_task = source.path.name in TASK_FILES
    yield from read_task(source, writer) if is_task else read(source, writer)


KILO: Final = Reader("kilo", "Kilo", _find_kilo, _read_kilo)
