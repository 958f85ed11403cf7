"""Gemini CLI: `~/.gemini/tmp/<project>/chats/session-<minute>-<id>.jsonl`, a log of states.

A line is a header, a message (which replaces an earlier one with its id), or `$set`; `$set` with
messages replaces them all, after a cancelled turn, a compaction, or a load. The log is told, not
the last state: each message where it first appears, each call at the line that first has it (all
calls of a process may pile up on one early message). Before 2026 a session was one JSON document,
with its messages in order. A load writes a new file with the same session id; all files of an id
are one conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from errno import EINVAL
from hashlib import sha256
from itertools import islice, zip_longest
from pathlib import Path
from typing import Final, NamedTuple

from acp_wire.workspace.regular_files import open_fd
from acphold.imports.content_blocks import (
    contents,
    diff,
    image,
    parts_of,
    prompt_blocks,
    resource,
    text_blocks,
)
from acphold.imports.entry_writer import EntryWriter, NotStraightError
from acphold.imports.readers import AgentConverter, Reader, token_counts
from acphold.imports.record_tree import LAST, RecordTree, branches_of, rewound
from acphold.imports.records import (
    SMALL_BYTES,
    document,
    placed_records,
    records,
    small_text,
)
from acphold.imports.salvage import RowForm
from acphold.imports.sources import Home, Source, beside, files_below, note, source_of
from acphold.imports.tools import PATHS, tool_of
from acphold.imports.values import (
    Missed,
    Object,
    first_text,
    from_json,
    milliseconds,
    number,
    obj,
    objects,
    text,
)

ROWS: Final = RowForm(frozenset({"content", "id", "timestamp", "type"}))

HEAD_BYTES: Final = 4096
"""Bytes of a file searched for its session id, which is in the first hundred."""

DESCRIPTION_CHARACTERS: Final = 200
"""A longer description is a tool's, not a call's."""

_SESSION_ID: Final = re.compile(rb'"sessionId"\s*:\s*("(?:[^"\\]|\\.){1,200}")')
_NOT_TYPED: Final = ("<session_context>", "This is the Gemini CLI. We are setting up")
_SUMMARY: Final = ("<state_snapshot>", "<summary>")
_REWOUND: Final = b'"$rewindTo"'


# -- found ---------------------------------------------------------------------------------


def find(home: Home) -> Iterator[Source]:
    """Yield the sessions below `~/.gemini/tmp`."""
    return session_sources(home.folder(".gemini", "GEMINI_CLI_HOME", ".gemini"))


def session_sources(folder: Path) -> Iterator[Source]:
    """Yield the sessions below the folder `tmp`; files of one id are one session."""
    by_id: dict[tuple[Path, str], list[Path]] = {}
    for path in files_below(folder / "tmp", "*/chats/session-*.json*"):
        if path.suffix not in (".json", ".jsonl"):
            continue
        try:
            with open(open_fd(path), "rb") as file:
                head = file.read(HEAD_BYTES).replace(b"\0", b"")
        except OSError as error:
            note(error)
            continue
        if named := _SESSION_ID.search(head):
            session_id = str(from_json(named[1].decode(errors="replace")))
            by_id.setdefault((path.parent, session_id), []).append(path)
        elif head:
            note(OSError(EINVAL, "it names no session", str(path)))
    for (chats, session_id), paths in by_id.items():
        is_name = re.fullmatch(r"[\w-]+", session_id)
        subagents = files_below(chats / session_id, "*.jsonl", chats) if is_name else ()
        yield from source_of(session_id, [*paths, *subagents])


def working_folder(chats: Path, folder: Path, missed: Missed) -> str:
    """Return the folder of the sessions in `chats`; empty if it is unknown.

    A file beside them names it, or the list of projects; in older versions the name of their own
    folder is its hash, which is compared with the known folders.
    """
    if root := small_text(beside(chats, ".project_root", missed)).strip():
        return root
    name = chats.parent.name
    projects = obj(document(folder / "projects.json", Missed(), SMALL_BYTES), "projects")
    known = [*projects, *document(folder / "trustedFolders.json", Missed(), SMALL_BYTES)]
    for path in known:
        if projects.get(path) == name or sha256(path.encode()).hexdigest() == name:
            return path
    return ""


# -- read ----------------------------------------------------------------------------------


def _own_files(source: Source) -> list[Path]:
    """Return the files of a session without those of its subagents."""
    return [path for path in map(Path, source.paths) if path.parent == source.path.parent]


def read(source: Source, writer: EntryWriter, speaker: str = "gemini") -> Iterator[None]:
    """Tell all files of a session; `speaker` is the type of the agent's messages."""
    own = _own_files(source)
    chats = source.path.parent
    writer.facts.cwd = working_folder(chats, chats.parent.parent.parent, writer.missed)
    subagents = [path for path in map(Path, source.paths) if path not in own]
    if source.begin and len(source.paths) > 1:
        raise NotStraightError
    tree = _tree(own, speaker, source.begin)
    tree.choose(source.item, writer.missed)
    converter = _GeminiConverter(writer, speaker, subagents, tree)
    for path in own:
        yield from converter.file(path, source.begin)
    converter.tell_stopped()
    writer.facts.cwd = writer.facts.cwd or converter.folder_by_hash(chats.parent.name)


def _tree(paths: Iterable[Path], speaker: str, begin: int = 0) -> RecordTree:
    """Return the tree of a session's messages; empty if nobody went back."""
    tree = RecordTree()
    logs = [path for path in paths if path.suffix == ".jsonl"]
    for record in rewound(logs, _REWOUND, ROWS, begin):
        tree.go_back(text(record, "$rewindTo"))
        for message in objects(record, "$set", "messages") or [record]:
            if "type" in message:
                tree.add(
                    text(message, "id"),
                    LAST,
                    typed=_is_prompt(message),
                    answers=text(message, "type") == speaker,
                    words=_words(message),
                )
    return tree


# -- prompts, tools and results, which are Qwen's, too ----------------------------------------

_KINDS: Final = {"agent": "other", "list_directory": "search", "web_search": "search"}
_KINDS["google_web_search"] = "search"

_REFERENCED: Final = re.compile(r"(?:^|\n)--- Content from referenced \w+ ---(?=\n|$)")
_REFERENCED_FILE: Final = re.compile(r"\n\s*Content from @?([^\n]+):\n")
_REFERENCED_END: Final = "\n--- End of content ---"

_OUTPUTS: Final = ("output", "error")
_FILE_TOOLS: Final = frozenset({"edit", "read_file", "replace", "write_file"})


def kind_of(name: str) -> str:
    """Return the kind of a tool, as these programs name it."""
    return _KINDS.get(name) or tool_of(name).kind


def parts_text(parts: object) -> str:
    """Return the text of a message: a string, or parts that hold some."""
    if isinstance(parts, str):
        return parts
    return "".join(text(part, "text") for part in objects(parts) if part.get("thought") is not True)


class GeminiForm(AgentConverter):
    """Converts what these programs write alike."""

    def _prompt(self, parts: object, turn: str) -> None:
        """Write a person's prompt: a string, or parts.

        The contents of files it names follow the text, in one string or in parts of their own; they
        are told as the contents of these files.
        """
        blocks: list[Object] = []
        referenced = ""
        for part in parts_of(parts):
            if data := obj(part, "inlineData"):
                blocks.append(image(text(data, "data"), text(data, "mimeType")))
            elif "text" not in part:
                self._missed.kind("parts of prompts", next(iter(part), ""), part)
            elif referenced:
                referenced += text(part, "text")
            else:
                words = text(part, "text")
                begun = _REFERENCED.search(words)
                referenced = words[begun.start() :] if begun else ""
                blocks += text_blocks(words.removesuffix(referenced))
        inner, _, own = referenced.partition(_REFERENCED_END)
        names = [*_REFERENCED_FILE.finditer(inner)]
        for name, following in zip_longest(names, names[1:]):
            words = inner[name.end() : following.start() if following else len(inner)]
            uri = name[1] if "://" in name[1] else f"file://{self._absolute(name[1])}"
            blocks.append(resource(uri, words.removesuffix("\n")))
        if not names and (words := _REFERENCED.sub("", inner).strip()):
            blocks.append(resource("context:referenced", words))
        self._writer.prompt(prompt_blocks([*blocks, *text_blocks(own.strip())]), turn=turn)

    def _places(self, name: str, arguments: Object) -> list[Object]:
        """Return the file that a tool works on, as locations."""
        path, line = first_text(arguments, PATHS), number(arguments, "offset")
        place: Object = {"path": self._absolute(path)} | ({} if line is None else {"line": line})
        return [place] if name in _FILE_TOOLS and path else []

    def _result_contents(self, display: object, response: object) -> list[Object]:
        """Return the diff in a tool's display of an edit, or else the result as the model got
        it."""
        path = text(display, "filePath") or text(display, "fileName")
        if path and text(display, "fileDiff"):
            old = text(display, "originalContent")
            return [diff(self._absolute(path), old or None, text(display, "newContent"))]
        return contents(first_text(response, _OUTPUTS))


class _GeminiConverter(GeminiForm):
    """Converts one session, or that of a subagent."""

    def __init__(
        self, writer: EntryWriter, speaker: str, subagents: list[Path], tree: RecordTree
    ) -> None:
        super().__init__(writer)
        self._speaker = speaker
        self._tree = tree
        self._subagents = sorted(map(_subagent, subagents))
        self._written: dict[str, tuple[int, int, int]] = {}
        """By message: the characters, thoughts and tokens that are written already."""
        self._written_calls: set[str] = set()
        self._prompt_id = ""
        self._files: set[str] = set()

    def file(self, path: Path, begin: int = 0) -> Iterator[None]:
        """Write a file, of lines from a byte on, or a document."""
        if path.suffix == ".json":
            whole = document(path, self._missed)
            told = [whole, *objects(whole, "messages")]
            states: Iterable[tuple[int, Object]] = ((0, one) for one in told)
        else:
            states = placed_records(path, self._missed, ROWS, begin)
        for self._writer.offset, line in states:
            if begin and "messages" in obj(line, "$set"):
                raise NotStraightError  # all of them
            if "$set" in line:
                messages = objects(line, "$set", "messages")
                ids = {text(message, "id") for message in messages}
                summary = next((s for m in messages if (s := _words(m)).startswith(_SUMMARY)), "")
                if summary:
                    self._writer.compaction("", summary)
                elif not self._prompt_id:
                    for message in messages:
                        self._message(message)
                elif messages and self._prompt_id not in ids:
                    # The program drops a cancelled turn from the log.
                    self._writer.end_turn("cancelled")
            elif "type" in line and "id" in line:
                self._message(line)
            elif "sessionId" in line:
                self._writer.clock(line.get("startTime"))
            elif "$rewindTo" not in line:
                self._missed.kind("records", "", line)
            yield

    def _message(self, message: Object) -> None:
        kind, message_id = text(message, "type"), text(message, "id")
        if not self._tree.tells(message_id):
            return
        if kind == "user":
            # A person's prompt; or the results of calls, which are messages of the user, too.
            self._writer.clock(message.get("timestamp"))
            if message_id in self._written or _words(message).startswith((*_NOT_TYPED, *_SUMMARY)):
                return
            self._written[message_id] = (0, 0, 0)
            parts = message.get("content")
            results = [part for part in objects(parts) if "functionResponse" in part]
            for part in results:
                result = obj(part, "functionResponse")
                if text(result, "id"):  # its call may be in no message: it was refused
                    status = "error" if text(result, "response", "error") else ""
                    self._call(result | {"status": status, "result": [part]})
            if not results and not self._writer.caller:
                self.tell_stopped(milliseconds(message.get("timestamp")))
                self._prompt_id = message_id
                self._prompt(parts, message_id)
        elif kind == self._speaker:
            # Only the part that is new: the log repeats a message as it grows.
            words = _words(message)
            thoughts = objects(message, "thoughts")
            if message_id not in self._written:
                self._writer.clock(message.get("timestamp"))
                self._writer.model(text(message, "model"))
            spent = token_counts(message.get("tokens"), "thoughts", together=True)
            length, count, known = self._written.get(message_id, (0, 0, 0))
            if (sum_ := sum(filter(None, spent.values()))) > known:
                self._writer.tokens(message_id, **spent)
            for one in thoughts[count:]:
                subject, description = text(one, "subject"), text(one, "description")
                about = f"**{subject}**\n{description}" if subject else f"{description} "
                self._writer.think(about, message_id)
            self._writer.say(words[length:], message_id)
            largest = max(length, len(words)), max(count, len(thoughts)), max(known, sum_)
            self._written[message_id] = largest
            for call in objects(message, "toolCalls"):
                self._call(call)
        elif kind not in ("info", "warning", "error"):
            self._missed.kind("messages", kind, message)

    def _call(self, call: Object) -> None:
        call_id, name = text(call, "id"), text(call, "name")
        arguments = obj(call, "args")
        if call_id in self._written_calls:
            return
        self._written_calls.add(call_id)
        self._writer.clock(call.get("timestamp"))
        cwd, display = self._writer.facts.cwd, call.get("resultDisplay")
        if todos := objects(display, "todos") or objects(arguments, "todos"):
            self._writer.plan(todos)
        where = self._places(name, arguments)
        self._files.update(text(place, "path") for place in where)
        title, status = text(call, "description"), text(call, "status")
        is_tools = len(title) > DESCRIPTION_CHARACTERS or (where and "\n" in title)
        if status == "error" and is_tools:
            # A call that never ran has its tool's description instead.
            title = text(where[0], "path") if where else ""
            title = title.removeprefix(f"{cwd}/") if cwd else title
        results = objects(call, "result")
        response = obj(results[0], "functionResponse", "response") if results else {}
        told = text(display) or first_text(response if display is None else {}, _OUTPUTS)
        fields: Object = {
            "title": title or text(call, "displayName") or name,
            "kind": kind_of(name),
            "status": "completed" if status in ("success", "") else "failed",
            "rawInput": arguments,
            "content": self._result_contents(display, {"output": told}),
            "locations": where,
        }
        self._writer.call(call_id, fields | ({"rawOutput": response} if results else {}))
        is_subagents = name == "invoke_agent" or obj(display).get("isSubagentProgress")
        if is_subagents:
            untold = [it for it in self._subagents if it not in self.told]
            prompt = first_text(arguments, ("prompt", "objective", "query"))
            asked = [it for it in untold if prompt and prompt in it.prompt]
            self._tell_subagent(call_id, next(iter(asked or untold), None))

    def _tell(self, child: _Subagent) -> None:
        converter = _GeminiConverter(self._writer, self._speaker, [], RecordTree())
        for _ in converter.file(child.path):
            pass

    def tell_stopped(self, until: int | None = None) -> None:
        """Tell the subagents of this turn, begun before `until`, that were stopped: only a call
        that ended is in the log."""
        for one in self._subagents if self._writer.in_turn else ():
            if one not in self.told and (not until or one.began < until):
                call_id = f"stopped-{one.path.stem}"
                self._writer.call(call_id, {"title": "Subagent", "kind": "think"})
                self._tell_subagent(call_id, one)

    def folder_by_hash(self, name: str) -> str:
        """Return the parent folder of a used file whose hash is `name`, or ""."""
        above = {str(parent) for path in self._files for parent in Path(path).parents}
        return next((p for p in above if sha256(p.encode()).hexdigest() == name), "")


class _Subagent(NamedTuple):
    """A subagent's file, with its time and the text it began with."""

    began: int
    path: Path
    prompt: str


def _subagent(path: Path) -> _Subagent:
    began, prompt = 0, ""
    for record in islice(records(path, Missed()), 4):
        began = began or milliseconds(record.get("startTime")) or 0
        prompt = prompt or (_words(record) if text(record, "type") == "user" else "")
    return _Subagent(began, path, prompt)


def _words(message: Object) -> str:
    return parts_text(message.get("content"))


def _is_prompt(message: Object) -> bool:
    """Return True for a person's prompt; the results of calls are messages of theirs, too."""
    has_results = any("functionResponse" in part for part in objects(message, "content"))
    by_program = has_results or _words(message).startswith((*_NOT_TYPED, *_SUMMARY))
    return text(message, "type") == "user" and not by_program


READER: Final = Reader(
    "gemini",
    "gemini-cli",
    find,
    read,
    branches_of(lambda source: _tree(_own_files(source), "gemini")),
)
