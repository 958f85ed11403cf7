"""pi: `~/.pi/agent/sessions/--<folder>--/<time>_<session>.jsonl`, a tree of records.

A message is complete in its record, with Anthropic's roles and pi's own names for its blocks. Until
the end of 2025 records had no ids, and no branches: they are told in order. A failed reply is often
retried; only the last failure ends a turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PureWindowsPath
from typing import Final

from acphold.imports.content_blocks import (
    block_content,
    content,
    parts_of,
    prompt_blocks,
    text_block,
)
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.readers import AgentConverter, Reader, token_counts
from acphold.imports.record_tree import RecordTree, branches_of
from acphold.imports.records import OBJECTS
from acphold.imports.salvage import RowForm
from acphold.imports.sources import Home, Source, files_below, source_of
from acphold.imports.tools import edit_diffs, tool_of
from acphold.imports.values import Object, first_text, look_up, number, obj, objects, text

ROWS: Final = RowForm(frozenset({"id", "parentId", "timestamp", "type"}))

_PASSED: Final = frozenset(
    {
        "context_edit", "custom", "label", "model_change", "session", "thinking_level_change",
    }
)  # fmt: skip
"""Records of the program or an extension, not of the conversation."""

_ENDS: Final = {"aborted": "cancelled", "length": "max_tokens"}


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions, in project folders or, in a custom folder, without these."""
    folder = home.folder(".pi/agent", "PI_CODING_AGENT_DIR") / "sessions"
    folder = home.folder(folder, "PI_CODING_AGENT_SESSION_DIR")
    for pattern in ("*/*.jsonl", "*.jsonl"):
        for path in files_below(folder, pattern):
            yield from source_of(path.stem.partition("_")[2] or path.stem, [path])


def _tree(source: Source) -> RecordTree:
    tree = RecordTree(ROWS, begin=source.begin)
    for _, found in tree.heads(source.path, OBJECTS):
        record = found or {}
        kind, message = text(record, "type"), obj(record, "message")
        role, said = text(message, "role"), message.get("content")
        record_id = "" if kind == "session" else text(record, "id")
        # A person who goes back may have the branch that is left summarised before the new one.
        command = role == "bashExecution" or kind == "branch_summary"
        tree.add(
            record_id,
            text(record, "parentId"),
            typed=command or role == "user",
            command=command,
            answers=role == "assistant" and bool(objects(said)),
            words=said,
        )
    return tree


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the session."""
    converter = _PiConverter(writer)
    yield from _tree(source).read(source, writer, converter.take)
    converter.end_failed()


def _parent(head: Object) -> str:
    """Return the id of the session that one was forked from, which is named by its file."""
    named = first_text(head, ("parentSession", "branchedFrom"))
    stem = PureWindowsPath(named).name.removesuffix(".jsonl")
    return stem.partition("_")[2] or stem


class _PiConverter(AgentConverter):
    """Converts one session, record by record."""

    def __init__(self, writer: EntryWriter) -> None:
        super().__init__(writer)
        self._failure = ""
        self._head: Object = {}

    def take(self, record: Object) -> None:
        """Take the next record."""
        kind, writer = text(record, "type"), self._writer
        self._begin(record)
        if kind == "session":
            self._head = record
            return
        if kind == "message" and (head := self._head):
            # An extension may begin one without its turns, for another agent, say.
            if text(record, "timestamp") <= text(head, "timestamp"):
                writer.facts.begun_as = _parent(head)
            self._head = {}
        if kind == "message":
            self._message(record)
        elif kind == "session_info":
            writer.title(text(record, "name"))
        elif kind == "usage":
            self._count(record, obj(record, "usage"))
        elif kind == "compaction":
            about: Object = {"tokensBefore": number(record, "tokensBefore")}
            call_id = f"compacted-{text(record, 'id') or text(record, 'timestamp')}"
            writer.compaction(call_id, text(record, "summary"), {"rawOutput": about})
            self._count(record, obj(record, "usage"))
        elif kind == "branch_summary":
            shown: Object = {"title": "Summary of another branch", "kind": "think"}
            shown["content"] = [content(text(record, "summary"))]
            call_id = f"branch-{text(record, 'id')}"
            writer.call(call_id, shown | {"status": "completed"})
            self._count(record, obj(record, "usage"))
        elif kind == "custom_message":
            self._by_extension(record)
        elif kind not in _PASSED:
            self._missed.kind("records", kind, record)

    def end_failed(self) -> None:
        """End the turn as failed: the last reply failed and was not retried."""
        if self._failure:
            self._writer.fail_turn(self._failure)
        self._failure = ""

    def _message(self, record: Object) -> None:
        message, writer = obj(record, "message"), self._writer
        role = text(message, "role")
        if role == "user":
            self.end_failed()
            blocks = prompt_blocks(self._blocks(parts_of(message.get("content")), "messages"))
            writer.prompt(blocks, turn=text(record, "id"))
        elif role == "assistant":
            self._agent_said(record, message)
        elif role == "toolResult":
            shown = [*map(block_content, self._blocks(objects(message, "content"), "messages"))]
            failed = message.get("isError") is True
            # The call of an edit has its change already.
            is_shown = failed or tool_of(text(message, "toolName")).kind != "edit"
            raw = {name: message[name] for name in ("content", "details") if name in message}
            self._end_call(
                text(message, "toolCallId"),
                failed=failed,
                produced=shown if is_shown else (),
                rawOutput=raw,
            )
            self._count(record, obj(message, "usage"))
        elif role == "bashExecution":
            # A command that the person ran, after a `!`.
            self.end_failed()
            command = text_block(f"! {text(message, 'command')}")
            writer.prompt([command], turn=text(record, "id"))
            writer.say(text(message, "output"))
            writer.finish_answer()
            if message.get("cancelled") is True:
                writer.end_turn("cancelled")
        elif role in ("custom", "hookMessage"):
            self._by_extension(message)
        elif role not in ("system", "branchSummary", "compactionSummary"):
            self._missed.kind("messages", role, record)

    def _shown(self, name: str, arguments: Object, part: Object) -> Object:
        fields = super()._shown(name, arguments, part)
        if tool_of(name).kind == "edit":
            fields["content"] = edit_diffs(self._place(name, arguments), arguments)
        return fields

    def _agent_said(self, record: Object, message: Object) -> None:
        writer, message_id = self._writer, text(record, "id") or text(record, "timestamp")
        self._failure = ""
        self._answer(objects(message, "content"), message_id)
        writer.model(text(message, "responseModel") or text(message, "model"))
        self._count(record, obj(message, "usage"))
        reason = text(message, "stopReason")
        if reason == "stop":
            writer.finish_answer()
        elif reason == "error":
            self._failure = text(message, "errorMessage") or reason
        elif reason in _ENDS:
            writer.end_turn(_ENDS[reason])

    def _by_extension(self, said: Object) -> None:
        """Write an extension's message, if the person was shown it."""
        if said.get("display") is True:
            for block in self._blocks(parts_of(said.get("content")), "messages"):
                self._writer.show(block)

    def _count(self, record: Object, usage: Object) -> None:
        self._writer.tokens(text(record, "id"), **token_counts(usage))
        self._writer.spend(look_up(usage, "cost", "total"))


READER: Final = Reader("pi", "pi-acp", find, read, branches_of(_tree))
