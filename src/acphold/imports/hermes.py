"""Hermes: all sessions in one database, `~/.hermes/state.db`, and in one of each profile.

When a conversation is compacted, the model's new context is written again: a summary, and copies of
the last messages. The earlier rows stay, as `compacted`; or the session ends so, and a session with
it as its parent continues. Rows that are neither active nor compacted were taken back by the
person. A fork is a session of its own, with copies of the beginning; any other session with a
parent is a subagent's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from acphold.imports import databases
from acphold.imports.content_blocks import contents, text_blocks
from acphold.imports.entry_writer import BY_WORDS, EntryWriter
from acphold.imports.readers import AgentConverter, Reader, token_counts
from acphold.imports.record_tree import LAST, RecordTree
from acphold.imports.records import list_in
from acphold.imports.sources import Home, Source, files_below, note
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

_STRUCTURED: Final = "\x00json:"
"""Prefix of content that has several parts."""

_SUMMARY: Final = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
_OF_THE_PROGRAM: Final = (
    "Review the conversation above and update the skill library",
    "Review the conversation above and consider saving to memory",
)
"""Beginnings of prompts that Hermes gives itself."""

COPYING_MS: Final = 2_000
"""Time within which the beginning of a continuation is written, in ms."""

_BEFORE_A_SUMMARY: Final = 20
"""A session with a summary of what was before has it among so many messages of words."""

_LONGEST: Final = 1_000
"""Most compactions of one conversation; what follows is told as another one."""


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions of each profile; none of subagents, and no continuations."""
    folder = home.folder(".hermes", "HERMES_HOME")
    databases_found = [folder / "state.db", *files_below(folder, "profiles/*/state.db")]
    for database in databases_found:
        newest = "(SELECT max(timestamp) FROM messages WHERE session_id = sessions.id)"
        columns = f"id, {newest}, message_count, end_reason, parent_session_id, model_config"
        rows = databases.sessions_of(database, "sessions", f"{columns}, started_at", "TRUE")
        found = sorted(rows, key=lambda row: milliseconds(row[6]) or 0)
        ends = {row[0]: row[3] for row in found}
        kinds = {row[0]: _relation(row[5], row[4], ends) for row in found}
        rows_by_id = {row[0]: row for row in found}
        parents = {row[0]: row[4] for row in found if kinds[row[0]] == _CONTINUATION}
        _leave_out_subagents(parents, kinds)
        # What none of the others reaches has no beginning, or is too far behind it.
        first = [row[0] for row in found if kinds[row[0]] in (_OWN, _FORK)]
        reached = set[str]()
        for name in (*first, *parents):
            if name in reached:
                continue
            session_id = _beginning(name, parents, reached)
            _, changed, messages, ended, *_ = rows_by_id[session_id]
            reached.add(session_id)
            if ended == "compression":
                # The last message time and the number of messages over all continuations.
                try:
                    chain = _chain(database, session_id)
                    reached.update(chain)
                    query = "SELECT max(timestamp), count(*) FROM messages WHERE session_id IN"
                    query += f" ({', '.join('?' * len(chain))})"
                    ((changed, messages),) = databases.rows(database, query, *chain)
                except OSError as error:
                    note(error)
            if messages:
                yield databases.row_source(database, session_id, changed, messages)


def _leave_out_subagents(parents: dict[str, str], kinds: dict[str, int]) -> None:
    """Leave the continuations of subagents' sessions out of those with these parents."""
    children: dict[str, list[str]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    due = [name for name, kind in kinds.items() if kind == _SUBAGENT]
    while due:
        for child in children.pop(due.pop(), []):
            del parents[child]
            due.append(child)


def _beginning(session_id: str, parents: dict[str, str], reached: set[str]) -> str:
    """Return the first continuation before a session that none has reached yet; of a ring, any."""
    way = set[str]()
    above = parents.get(session_id, "")
    while above in parents and above not in way and above not in reached:
        way.add(session_id := above)
        above = parents[session_id]
    return session_id


_OWN, _FORK, _CONTINUATION, _SUBAGENT = range(4)


def _relation(config: object, parent: str | None, ends: dict[str, object]) -> int:
    """Return what a session with these settings is to its parent, by how that ended.

    The parent may be deleted, or the person began anew behind it. In early versions, only the end
    of the parent tells that it was forked.
    """
    marks = obj(from_json(config))
    if parent is None:
        return _OWN
    if marks.get("_delegate_from") is not None:
        return _SUBAGENT
    if text(marks, "_branched_from") or ends.get(parent) == "branched":
        return _FORK
    if parent not in ends or marks.get("_reset_from") is not None:
        return _OWN
    return _CONTINUATION if ends[parent] == "compression" else _SUBAGENT


def _chain(database: Path, session_id: str) -> list[str]:
    """Return a session and its continuations, in order; several where two went on with one."""
    chain: dict[str, None] = {}
    due = [session_id]
    which = (
        "parent_session_id IN (SELECT p.id FROM sessions AS p WHERE p.id = ?"
        " AND p.end_reason = 'compression') ORDER BY started_at DESC, id DESC"
    )
    while due and len(chain) < _LONGEST:
        chain[name := due.pop()] = None
        tables = databases.AgentTables(database, Missed())
        for child, config in tables.rows("sessions", "id, model_config", which, name):
            relation = _relation(config, name, {name: "compression"})
            if isinstance(child, str) and child not in chain and relation == _CONTINUATION:
                due.append(child)
    return [*chain]


def _tree(source: Source) -> RecordTree:
    """Return the tree of the messages of a session; empty if none was taken back."""
    tree, database, chain = RecordTree(), source.path, _chain(source.path, source.item)
    newer = databases.columns_of(database, "messages", ("active", "compacted", "observed"))
    columns = f"id, role, content, {', '.join(newer)}"
    its, back = "session_id = ?", "session_id = ? AND active = 0 AND compacted = 0"

    def rows(where: str) -> Iterator[tuple[Any, ...]]:
        for session_id in chain if len(newer) == 3 else ():
            found = databases.AgentTables(database, Missed())
            yield from found.rows("messages", columns, f"{where} ORDER BY id", session_id)

    for name, role, said, active, compacted, observed in rows(its) if any(rows(back)) else ():
        by_program = observed or str(said).lstrip().startswith((*_SUMMARY, *_OF_THE_PROGRAM))
        is_typed, is_back = role == "user" and not by_program, not (active or compacted)
        tree.add(str(name), LAST, typed=is_typed, taken_back=is_back)
    return tree


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session and its continuations."""
    database = source.path
    tree = _tree(source)
    tree.choose("", writer.missed)
    converter = _HermesConverter(databases.AgentTables(database, writer.missed), writer, tree)
    title = ""
    forked = ("parent_session_id", "model_config")
    own: Object = databases.row_by_id(database, "sessions", forked, source.item)
    if parent := text(own, "parent_session_id"):
        above = databases.row_by_id(database, "sessions", ("end_reason",), parent)
        if _relation(own.get("model_config"), parent, {parent: above.get("end_reason")}) == _FORK:
            writer.facts.begun_as = parent
    chain = _chain(database, source.item)
    writer.facts.goes_on_as = chain[1:]
    for session_id in chain:
        about: Object = databases.row_by_id(database, "sessions", _ABOUT, session_id)
        settings = from_json(about.get("model_config"))
        cwd = text(about, "cwd") or text(settings, "cwd")
        writer.facts.cwd = writer.facts.cwd or cwd
        writer.clock(about.get("started_at"))
        converter.model = text(about, "model")
        yield from converter.session(session_id)
        cost = about.get("actual_cost_usd") or about.get("estimated_cost_usd")
        writer.spend(cost, **token_counts(about, "reasoning_tokens"))
        title = text(about, "title") or title
    writer.title(title)


_ABOUT: Final = (
    "actual_cost_usd", "cache_read_tokens", "cache_write_tokens", "cwd", "estimated_cost_usd",
    "input_tokens", "model", "model_config", "output_tokens", "reasoning_tokens", "started_at",
    "title",
)  # fmt: skip
_COLUMNS: Final = (
    "id", "role", "content", "tool_call_id", "tool_calls", "timestamp",
    "finish_reason", "reasoning", "reasoning_content", "observed", "active", "compacted",
)  # fmt: skip
"""Columns of a message; only newer versions have the last six."""

_PRINTED: Final = ("output", "content", "error")


class _HermesConverter(AgentConverter):
    """Converts one conversation."""

    def __init__(
        self, tables: databases.AgentTables, writer: EntryWriter, tree: RecordTree
    ) -> None:
        super().__init__(writer)
        self._tables, self._tree = tables, tree
        self._told: dict[tuple[object, ...], object] = {}
        self._is_again = False
        self._is_own = True
        self.model = ""

    def session(self, session_id: str) -> Iterator[None]:
        """Write the messages of a session, without copies after a summary.

        One that continues a session that was deleted begins with copies, too, and they have the
        time of copying: such prompts are known by their words.
        """
        where = "session_id = ? ORDER BY id"
        until = 0 if self._is_again else self._copied_until(session_id)
        for message in self._tables.objects("messages", _COLUMNS, where, session_id):
            if self._tree.tells(str(message["id"])) and not self._is_told(message):
                is_copied = (milliseconds(message["timestamp"]) or 0) < until
                self._message(message, turn=BY_WORDS if is_copied else "")
            yield
        self._is_again = True

    def _copied_until(self, session_id: str) -> int:
        """Return the time (ms) up to which a session has copies; 0 if it has no summary of what
        was before."""
        where = "session_id = ? AND role IN ('user', 'assistant') ORDER BY id"
        rows = self._tables.rows("messages", "content, timestamp", where, session_id)
        for said, at in islice(rows, _BEFORE_A_SUMMARY):
            if str(said).startswith(_SUMMARY):
                return (milliseconds(at) or 0) + COPYING_MS
        return 0

    def _is_told(self, message: Object) -> bool:
        """Return True for a copy of a told message: a person may repeat a text.

        Behind a summary are copies of archived messages, with their times. The copies at the start
        of a continuation have the time of copying.
        """
        same = tuple(message[name] for name in ("role", "content", "tool_call_id", "tool_calls"))
        archived_at = message["timestamp"] if message.get("compacted") else None
        before = self._told.get(same)
        is_behind = before is not None and before == message["timestamp"]
        is_copy = same in self._told and (self._is_again or is_behind)
        is_summary = str(message["content"]).startswith(_SUMMARY)
        self._told[same] = archived_at
        self._is_again = self._is_again and (is_copy or is_summary)
        return is_copy

    def _message(self, message: Object, *, turn: str) -> None:
        self._writer.clock(message.get("timestamp"))
        role, parts = text(message, "role"), self._parts(message.get("content"))
        words = "".join(text(part, "text") for part in parts)
        if words.startswith(_SUMMARY):
            self._writer.compaction(f"compacted-{message['id']}", words)
        elif role == "user":
            self._is_own = not words.lstrip().startswith(_OF_THE_PROGRAM)
            if message.get("observed"):
                self._missed.add("other people's messages in a group", words)
            elif self._is_own:
                self._writer.prompt(parts, turn=turn)
                self._writer.model(self.model)
        elif role in ("assistant", "tool") and not self._is_own:
            return
        elif role == "assistant":
            message_id = f"message-{message['id']}"
            self._writer.think(first_text(message, ("reasoning", "reasoning_content")), message_id)
            self._writer.say(words, message_id)
            calls = from_json(message.get("tool_calls"))
            for call in objects(calls):
                self._call(call | obj(call, "function"))
            if message.get("finish_reason") == "stop" and not calls:
                self._writer.finish_answer()
        elif role == "tool":
            self._take_result(text(message, "tool_call_id"), words)
        elif role not in ("system", "session_meta"):
            self._missed.kind("messages", role, words)

    def _parts(self, said: object) -> list[Object]:
        """Return the content blocks of a message."""
        words = as_bytes(said or "").decode(errors="replace")
        if words.startswith(_STRUCTURED):
            return self._blocks(list_in(words.removeprefix(_STRUCTURED), self._missed))
        return text_blocks(words)

    def _result(self, words: str, call_id: str, name: str, arguments: Object) -> None:
        output = from_json(words)
        failed = bool(text(output, "error") or number(output, "exit_code"))
        failed = failed or look_up(output, "success") is False
        path = self._place(name, arguments)
        produced: list[Object] = []
        if path and not failed:
            produced = contents(text(arguments, "patch"))
            produced = produced or self._changes_by(name, path, arguments)
        produced = produced or contents(first_text(output, _PRINTED) or words)
        raw = output if isinstance(output, dict) else None
        self._end_call(call_id, failed=failed, produced=produced, rawOutput=raw)

    def _place(self, name: str, arguments: Object) -> str:
        is_file = name in ("patch", "read_file", "write_file")
        return self._absolute(text(arguments, "path")) if is_file else ""


READER: Final = Reader("hermes", "hermes-agent", find, read)
