"""The readers of conversations, one for each agent; and the agents that delete what they keep.

A reader converts the records of one conversation and passes them to an entry writer: see
`AgentConverter`. A subagent's conversation is told inside the call that started it.

Claude Code deletes conversations untouched for `cleanupPeriodDays`, 30 by default; with 0 it writes
none at all. Gemini CLI does so after `general.sessionRetention.maxAge`, `30d` by default, and
beyond `maxCount`. The others delete nothing by themselves.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from errno import EILSEQ
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr

from acphold.errors import TranscriptError
from acphold.imports.content_blocks import picture_of, text_blocks
from acphold.imports.entry_writer import EntryWriter, NotStraightError
from acphold.imports.records import SMALL_BYTES, document
from acphold.imports.sources import Home, Source, note, path_in, searching
from acphold.imports.tools import PATHS, PLANNING, edit_diffs, named_call_fields, tool_of
from acphold.imports.values import (
    Missed,
    Object,
    first_text,
    from_json,
    look_up,
    number,
    obj,
    objects,
    text,
)

NAMES: Final = (
    "acpx",
    "claude",
    "codex",
    "gemini",
    "qwen",
    "opencode",
    "kilo",
    "cline",
    "roo",
    "copilot",
    "goose",
    "pi",
    "cursor",
    "vscode",
    "zed",
    "aider",
    "crush",
    "hermes",
    "auggie",
    "acphold",
)
"""One module each, imported on demand, but for those in _BESIDE."""

_BESIDE: Final = {"kilo": "opencode", "roo": "cline"}
"""Readers in the module of another one, whose form their program took over."""

WAVES: Final = (frozenset({"acpx"}), frozenset(NAMES) - {"acpx", "acphold"}, frozenset({"acphold"}))
"""The order of reading: no two readers of one wave know the same conversation.

acpx recorded live what Claude only wrote down.
"""


class Reader(NamedTuple):
    """Finds and reads the conversations of one agent; its key is as in `Facts`.

    A `Source` is a conversation on disk: its file, id, size and time. `read` passes it to an
    `EntryWriter`, prompt by prompt and call by call, as a person saw it. At each `yield` the
    entries written so far can be taken away, so that no conversation has to fit into memory.
    `branches` finds parts that a person went back from, if transcripts keep them.
    """

    name: str
    key: str
    search: Callable[[Home], Iterator[Source]]
    read: Callable[[Source, EntryWriter], Iterator[None]]
    branches: Callable[[Source], Iterator[Source]] | None = None

    def find(self, home: Home) -> Iterator[Source]:
        """Yield the conversations below a home folder; notes it if the search for them fails."""
        try:
            for source in self.search(home):
                force_setattr(source, "reader", self.name)  # it is new; a copy of each costs 2 μs
                if "\0" in source.session_id:  # PostgreSQL keeps none
                    note(OSError(EILSEQ, "a session's id has a NUL character", source.paths[0]))
                    continue
                yield source
        except Exception as error:
            why = fault(error)
            note(why if isinstance(why, OSError) else OSError(str(why)))

    def tell(self, source: Source, writer: EntryWriter) -> Iterator[None]:
        """Read a conversation; raises OSError or TranscriptError, whatever its reader fails on."""
        try:
            yield from self.read(source, writer)
        except NotStraightError:
            raise
        except Exception as error:
            raise fault(error) from error


def fault(error: Exception) -> OSError | TranscriptError:
    """Return the error for a source that cannot be read, or on which its reader fails."""
    if isinstance(error, OSError):
        return error
    *_, place = traceback.extract_tb(error.__traceback__)
    return TranscriptError(
        f"acphold's reader failed on it, please report this: {type(error).__name__}: {error}"
        f" ({Path(place.filename).name}:{place.lineno})"
    )


def reader(name: str) -> Reader:
    """Return the reader of this name; raises ModuleNotFoundError if it is not in NAMES."""
    module = import_module(f"acphold.imports.{_BESIDE.get(name, name)}")
    made = getattr(module, name.upper() if name in _BESIDE else "READER")
    assert isinstance(made, Reader)
    return made


DEEPEST_SUBAGENT: Final = 16
"""Subagents that are told inside each other."""


class AgentConverter:
    """Passes one conversation to an entry writer; each reader derives its own class from this."""

    subagent_tools: frozenset[str] = frozenset()
    """The tools whose calls start a subagent, if one that was stopped can be found."""
    plan_tools: frozenset[str] = frozenset()
    """The tools whose calls are shown as the plan, not as calls."""
    subagents_speak = False
    """True if the program shows the messages of subagents."""

    def __init__(self, writer: EntryWriter) -> None:
        self._writer = writer
        self._depth = 0
        """Of the subagent whose records it takes; 0 for the conversation itself."""
        self._missed = writer.missed
        self._calls: dict[str, tuple[str, Object]] = {}
        """The tool and the arguments of each call that has no result yet."""
        self.told: dict[Hashable, None] = {}
        """The subagents that are told."""

    def take(self, record: Any) -> None:
        """Take the next record."""
        raise NotImplementedError

    def take_all(self, records: Iterable[Any]) -> Iterator[None]:
        """Take the records, one by one."""
        for record in records:
            self.take(record)
            yield

    def _begin(self, record: Object) -> None:
        """Note the time of a record, and the folder and the original of a fork that it names."""
        self._writer.clock(record.get("timestamp"))
        if not self._writer.caller:
            facts = self._writer.facts
            facts.enter(text(record, "cwd"))
            if "forkedFrom" in record:
                facts.begun_as = facts.begun_as or text(record, "forkedFrom", "sessionId")

    # -- calls -------------------------------------------------------------------------------

    def _call(self, part: Object) -> None:
        """Write a part of an answer that is a call, and the plan that it makes."""
        call_id, name = _call_id(part), first_text(part, _TOOL_NAMES)
        arguments = obj(from_json(next((part[it] for it in _ARGUMENTS if it in part), None)))
        if call_id:
            self._calls[call_id] = name, arguments
        if name not in self.plan_tools:
            self._writer.call(call_id, self._shown(name, arguments, part))
        if (steps := self._steps(name, arguments)) is not None:
            self._writer.plan(steps)

    def _shown(self, name: str, arguments: Object, _part: Object) -> Object:
        """Return the fields of a call of a tool."""
        return named_call_fields(name, arguments, self._place(name, arguments))

    def _place(self, _name: str, arguments: Object) -> str:
        """Return the path that a call is about; empty for none."""
        return self._absolute(first_text(arguments, PATHS))

    def _steps(self, name: str, arguments: Object) -> list[Object] | None:
        """Return the steps of the plan that a call makes; None if it makes none."""
        named = next((it for it in _STEPS if it in arguments), "")
        return objects(arguments, named) if named and tool_of(name).verb == PLANNING else None

    def _take_results(self, parts: Iterable[Object], **about: object) -> list[Object]:
        """Take the parts of a message that are results, with what is known `about` them, and return
        them."""
        results = [part for part in parts if text(part, "type") in _RESULTS]
        for part in results:
            self._take_result(_call_id(part), part | about)
        return results

    def _take_result(self, call_id: str, result: Any) -> None:
        """Tell the subagent of a call, and the result; it is counted if there is no such call."""
        name, arguments = self._calls.pop(call_id, ("", {}))
        if name in self.subagent_tools:
            self._tell_subagent(call_id, self._find_subagent(call_id, arguments, result))
        if name:
            self._result(result, call_id, name, arguments)
        else:
            self._missed.add("results of unknown calls", result)

    def _result(self, result: Any, call_id: str, name: str, arguments: Object) -> None:
        """Write the result of a call."""
        raise NotImplementedError

    def _end_call(
        self, call_id: str, *, failed: bool, produced: Sequence[Object] = (), **more: object
    ) -> None:
        """Write how a call ended, with what it produced, and other fields that are not None."""
        fields: Object = {"status": "failed" if failed else "completed"}
        if produced:
            fields["content"] = produced
        fields |= {name: value for name, value in more.items() if value is not None}
        self._writer.update(call_id, fields)

    def _changes_by(self, name: str, path: str, *sources: object) -> list[Object]:
        """Return the changes that a tool made to a file, if it edits: by the first that has any."""
        found = (edit_diffs(path, source) for source in sources if tool_of(name).kind == "edit")
        return next(filter(None, found), []) if path else []

    def _tell_subagent(self, call_id: str, child: Hashable) -> None:
        """Tell a subagent's conversation inside the call that started it, once."""
        if child and self._depth < DEEPEST_SUBAGENT and child not in self.told:
            self.told[child] = None
            self._depth += 1
            with self._writer.within(call_id, speaks=self.subagents_speak):
                self._tell(child)
            self._depth -= 1

    def tell_stopped(self) -> None:
        """Tell the subagents that were stopped: their calls have no result."""
        done: set[str] = set()
        while waiting := [it for it in self._calls.items() if it[0] not in done]:
            for call_id, (name, arguments) in waiting:
                done.add(call_id)
                if name in self.subagent_tools:
                    self._tell_subagent(call_id, self._find_subagent(call_id, arguments, None))

    def _find_subagent(self, call_id: str, arguments: Object, result: Any) -> Hashable:
        """Return what the conversation of a subagent is known by, or None; a stopped one has no
        result."""
        raise NotImplementedError

    def _tell(self, child: Any) -> None:
        """Tell the conversation of a subagent, within its call."""
        converter, records = self._inside(child)
        self._lead(converter)
        for record in records:
            converter.take(record)
        converter.tell_stopped()

    def _lead(self, converter: AgentConverter) -> None:
        """Let a converter go on telling subagents in this one's place."""
        converter.told, converter._depth = self.told, self._depth

    def _inside(self, child: Any) -> tuple[AgentConverter, Iterable[Any]]:
        """Return a converter for the conversation of a subagent, and its records."""
        raise NotImplementedError

    # -- messages ------------------------------------------------------------------------------

    def _answer(self, parts: Iterable[Object], message_id: str) -> None:
        """Write the parts of an answer: texts, thoughts, calls."""
        for part in parts:
            kind = text(part, "type")
            if kind == "text":
                self._writer.say(text(part, "text"), message_id)
            elif kind in ("thinking", "reasoning"):
                self._writer.think(first_text(part, ("thinking", "text")), message_id)
            elif kind in _CALLS:
                self._call(part)
            elif kind in _RESULTS:
                self._take_results([part])
            elif kind not in _REDACTED:
                self._other_part(kind, part, message_id)

    def _other_part(self, kind: str, part: Object, _message_id: str) -> None:
        """Write another part of an answer: here, count it."""
        if not self._writer.caller:
            self._missed.kind("parts", kind, part)

    def _blocks(self, parts: Iterable[Object], of: str = "prompts") -> list[Object]:
        """Return the parts of a message as content blocks: texts and pictures."""
        blocks: list[Object] = []
        for part in parts:
            if (kind := text(part, "type")) in ("text", "input_text"):
                blocks += text_blocks(text(part, "text"))
            elif found := picture_of(part):
                blocks.append(found)
            else:
                blocks += self._other_block(kind, part, of)
        return blocks

    def _other_block(self, kind: str, part: Object, of: str) -> list[Object]:
        """Return another part of a message as content blocks: here, none, and count it."""
        self._missed.kind(f"parts of {of}", kind, part)
        return []

    def _absolute(self, path: str) -> str:
        """Return a path in the conversation's folder as an absolute one; empty for none."""
        return path_in(self._writer.facts.cwd, path)


_CALLS: Final = frozenset(
    {"mcp_tool_use", "server_tool_use", "tool", "tool-call", "tool_call", "tool_use", "toolCall",
     "toolRequest"}
)  # fmt: skip
"""Names of a call among the parts of an answer."""

_RESULTS: Final = frozenset({"tool-result", "tool_result", "toolResponse"})
"""Names of a result among the parts of a message."""

_STEPS: Final = ("todos", "plan", "entries")
"""Names of the steps in the arguments of a call that makes a plan."""

_CALL_IDS: Final = ("tool_use_id", "toolCallId", "tool_call_id", "id")
_TOOL_NAMES: Final = ("name", "toolName", "tool_name")
_ARGUMENTS: Final = ("input", "arguments", "args", "input_json")


def _call_id(part: Object) -> str:
    """Return the id of a call in a part that is one, or its result."""
    return first_text(part, _CALL_IDS).partition("\n")[0]


_REDACTED: Final = frozenset({"redacted-reasoning", "redacted_thinking", "redactedThinking"})

_COUNTS: Final = {
    "inputTokens": ("input_tokens", "inputTokens", "input", "promptTokenCount", "tokensIn"),
    "outputTokens": ("output_tokens", "outputTokens", "output", "candidatesTokenCount",
                     "tokensOut"),
    "cachedReadTokens": ("cache_read_input_tokens", "cached_input_tokens", "cache_read_tokens",
                         "cacheReadTokens", "cacheRead", "cacheReads", "cached",
                         "cachedContentTokenCount"),
    "cachedWriteTokens": ("cache_creation_input_tokens", "cache_write_tokens", "cacheWriteTokens",
                          "cacheWrite", "cacheWrites"),
}  # fmt: skip
"""The protocol's names for counts of tokens, and those of the programs."""

_COUNTED: Final = {name: field for field, names in _COUNTS.items() for name in names}


def token_counts(
    usage: object, thought: str = "", *, together: bool = False
) -> dict[str, int | None]:
    """Return counts of tokens, as any program writes them, for `EntryWriter.tokens`.

    `thought` is the name of those of thoughts, if they are not among those received. With
    `together` the tokens sent include those read from a cache.
    """
    usage, counts = obj(usage), dict[str, int | None].fromkeys(_COUNTS)
    for name in filter(usage.__contains__, _COUNTED):
        if counts[_COUNTED[name]] is None:
            counts[_COUNTED[name]] = number(usage[name])
    if thought:
        counts["thoughtTokens"] = number(usage, thought)
    if together:
        counts["inputTokens"] = (counts["inputTokens"] or 0) - (counts["cachedReadTokens"] or 0)
    return counts


def main_document(path: Path, missed: Missed) -> Object:
    """Return the JSON object in a conversation's own file; raises OSError if there is none."""
    if not (found := document(path, missed)):
        raise unreadable_document(path)
    return found


def unreadable_document(path: Path) -> OSError:
    """Return the error of a conversation's own file, of which nothing can be read."""
    why = "is still being written, too large, or not JSON; it is read again later"
    return OSError(f"{path} {why}")


# -- agents that delete their conversations ---------------------------------------------------

FOR_GOOD_DAYS: Final = 3650
"""A longer retention counts as forever."""

_UNITS: Final = {"h": "hour", "d": "day", "w": "week", "m": "month"}
"""Units of an age in Gemini CLI's settings; source: the documentation of its `maxAge`."""


class Deletion(Struct, frozen=True):
    """An agent that deletes its transcripts: `when`, and the `setting` in `file` against it.

    `reader` is the name of its reader.
    """

    reader: str
    agent: str
    when: str
    setting: str
    file: Path


def deletions(home: Home) -> Iterator[Deletion]:
    """Yield the agents with conversations in this home folder that they will delete."""
    for name, label, folder, look in (
        ("claude", "Claude Code", home.folder(".claude", "CLAUDE_CONFIG_DIR"), _claude),
        ("gemini", "Gemini CLI", home.folder(".gemini", "GEMINI_CLI_HOME", ".gemini"), _gemini),
    ):
        file = folder / "settings.json"
        missed = Missed()
        settings = document(file, missed, SMALL_BYTES) if file.exists() else {}
        with searching() as search:
            has_any = any(True for _ in reader(name).find(home))
        if missed.counts or not (has_any or search.unreadable):
            continue
        if found := look(settings):
            yield Deletion(name, label, *found, file)


def _claude(settings: Object) -> tuple[str, str] | None:
    days = number(settings, "cleanupPeriodDays")
    setting = '"cleanupPeriodDays": 99999'
    if days == 0:
        return "keeps no conversations", setting
    if (days := 30 if days is None else days) >= FOR_GOOD_DAYS:
        return None
    return f"deletes conversations after {_in_words(days, 'day')}", setting


def _gemini(settings: Object) -> tuple[str, str] | None:
    retention = look_up(settings, "general", "sessionRetention")
    if look_up(retention, "enabled") is False:
        return None
    age = text(retention, "maxAge") or "30d"
    if written := re.fullmatch(r"(\d{1,9})([hdwm])", age):
        age = _in_words(int(written[1]), _UNITS[written[2]])
    most = number(retention, "maxCount")
    many = f", and beyond {most:,} of them" if most is not None else ""
    setting = '"general": {"sessionRetention": {"enabled": false}}'
    return f"deletes conversations after {age}{many}", setting


def _in_words(count: float, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
