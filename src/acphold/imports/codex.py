"""Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, `.zst` after a week unused.

A rollout has two sides: `response_item` is the model's input and output, `event_msg` the screen's
content. Texts are taken from the screen, calls from the model; without a screen side (CLI of summer
2025), everything from the model. Since autumn 2026 the screen's content is `item_completed` events,
with calls among them: the model may only write scripts (`exec`), whose commands are such items. A
subagent is a rollout of its own, told inside the call that spawned it. A thread may have several
files, and begin in those of another one: see `codex_threads`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, count, takewhile
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from acphold.imports.codex_threads import (
    FOLDERS,
    PROMPTS,
    ROWS,
    TURN_STARTED,
    Thread,
    event_of,
    folder_of,
    name_of,
    numbered,
    rollout_of,
    words_of,
)
from acphold.imports.codex_tools import (
    command_fields,
    edit_fields,
    event_diffs,
    fenced,
    is_patch,
    item_fields,
    language,
    output_of,
    patch_diffs,
    purposes,
    script_of,
)
from acphold.imports.content_blocks import (
    contents,
    image,
    link,
    picture,
    prompt_blocks,
    resource_link,
    text_block,
)
from acphold.imports.entry_writer import BY_WORDS, EntryWriter, NotStraightError, on_title
from acphold.imports.readers import AgentConverter, Reader, token_counts
from acphold.imports.record_tree import branches_of
from acphold.imports.records import SMALL_BYTES, lines, records
from acphold.imports.sources import Home, Source, files_below, source_of
from acphold.imports.values import (
    Missed,
    Object,
    first_text,
    from_json,
    milliseconds,
    number,
    obj,
    objects,
    squeeze,
    strings,
    text,
)

_INDEX: Final = "session_index.jsonl"
_CWD: Final = re.compile(r"<cwd>([^<]*)</cwd>|Current working directory: (.+)")
_BY_PROGRAM: Final = re.compile(
    r"# AGENTS\.md instructions for |"
    r"<(?:[a-z]+_(?:context|instructions|notification|shell_command|action|aborted|mode|switch)"
    r"|permissions instructions|collaboration_mode|skills?|personality_spec|INSTRUCTIONS|hook)\b"
)
"""Matches the start of texts that a program inserted as the person's."""

ALIKE: Final = 40
"""Characters of a prompt that are in another one because both are the same."""

_ANSWERS: Final = re.compile(
    r"\s*<send_user_message_question_reply>(.*)</send_user_message_question_reply>\s*", re.DOTALL
)
"""Matches the person's answers to questions that were asked amid the work: they are JSON."""

_NOT_MODEL: Final = ("developer", "system", "user")

_AROUND_PICTURE: Final = re.compile(r"\s*</?image\b[^>]*>\s*")
_REFUSED: Final = ("aborted by user", "unsupported ", "exec command rejected")

_PASSED: Final = frozenset(
    {
        "CollabAgentToolCall", "ContextCompaction", "EnteredReviewMode", "FunctionCallOutput",
        "HookPrompt", "Sleep", "additional_tools", "agent_message", "agent_message_delta",
        "agent_reasoning_raw_content", "agent_reasoning_section_break", "background_event",
        "collab_agent_interaction_begin", "collab_agent_interaction_end",
        "collab_agent_spawn_begin", "collab_agent_spawn_end", "collab_close_begin",
        "collab_close_end", "collab_waiting_begin", "collab_waiting_end", "compaction",
        "compaction_trigger", "configuration_update", "context_compacted", "context_compaction",
        "dynamic_tool_call_request", "dynamic_tool_call_response", "dynamic_tools_updated",
        "entered_review_mode", "exec_command_begin", "exec_command_end",
        "exec_command_output_delta", "ghost_snapshot", "guardian_assessment", "id_allocation",
        "image_generation_begin", "image_generation_end", "inter_agent_communication_metadata",
        "item_started", "mcp_tool_call_begin", "mcp_tool_call_end", "other", "patch_apply_begin",
        "retained_context", "security_risk_score", "session_configured", "sub_agent_activity",
        "task_started", "thread_goal_updated", "thread_name_updated", "thread_rolled_back",
        "thread_settings_applied", "token_usage_record", "tool_search_call", "tool_search_output",
        "turn_diff", "turn_started", "undo_completed", "view_image_tool_call", "warning",
        "web_search_begin", "web_search_end", "world_state",
    }
)  # fmt: skip
"""Records, events and items that repeat another one, or were only for the moment."""


def find(home: Home) -> Iterator[Source]:
    """Yield the threads, each with its files.

    A copy of a file, as in a backup, or a compressed one, is in a thread of its own, with the other
    files.
    """
    folder = home.folder(".codex", "CODEX_HOME")
    names = _thread_names(folder / _INDEX)
    threads: dict[str, dict[str, list[Path]]] = {}
    for pattern in ("*.jsonl", "*.jsonl.zst"):
        for below in FOLDERS:
            for path in files_below(folder / below, f"**/rollout-{pattern}"):
                if name := name_of(path):
                    threads.setdefault(name.thread, {}).setdefault(name.segment, []).append(path)
    for thread, files in threads.items():
        # The oldest one names it: its own, if it is there.
        segments = sorted(files, key=lambda it: (it != thread, files[it][0].name))
        first = [files[segment][0] for segment in segments]
        for place, segment in enumerate(segments):
            for path in files[segment][place > 0 :]:
                paths = first if path == first[0] else [path, *first[:place], *first[place + 1 :]]
                for source in source_of(thread, paths):
                    yield replace(source, title=names.get(thread, ""))


_SHOWN: Final = re.compile(
    rb'"type":\s*"(user_message|agent_message|agent_reasoning|UserMessage|AgentMessage|Reasoning)"'
)
_SHOWN_AS: Final = {
    "UserMessage": "user_message",
    "AgentMessage": "agent_message",
    "Reasoning": "agent_reasoning",
}


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the thread; nothing for a subagent's."""
    thread = Thread(source)
    converter = _CodexConverter(writer, source.path, thread.head, is_begun=source.begin > 0)
    if converter.is_subagent:
        return
    writer.facts.begun_as = text(thread.head, "forked_from_id")
    thread.tree(writer.missed).choose(source.item, writer.missed)
    for file in thread.files:
        converter.shown = _shown_in(file.path, source.begin)
        is_placed = False  # the turn that begins
        for offset, record in thread.records(file, writer.missed):
            kind, payload = event_of(record)
            begins = kind in TURN_STARTED
            if begins or (not is_placed and text(payload, "role") == "user"):
                writer.offset, is_placed = offset, True
            elif kind in PROMPTS:
                is_placed = False
            converter.take(record)
            yield
    converter.tell_unfinished()
    title = source.title
    if title is None and (folder := folder_of(source.path)):  # it was not looked up: see `Source`
        title = _thread_names(folder.with_name(_INDEX)).get(source.session_id)
    if title:
        writer.title(title)


def _shown_in(path: Path, begin: int = 0) -> frozenset[str]:
    """Return which texts are on the screen side of a file.

    What that lacks is told from the model's side, which has inserted texts among the person's,
    often before any event: so it has to be known in advance. Of a file that is read on from the
    byte `begin`, the first lines and those suffice.
    """
    shown: set[str] = set()
    first = takewhile(lambda line: not begin or line.offset < SMALL_BYTES, lines(path, Missed()))
    rest = lines(path, Missed(), begin=begin) if begin else ()
    for line in chain(first, rest):
        if b'"event_msg"' in line.raw:
            for event in _SHOWN.finditer(line.raw):  # there may be several on a line
                kind = event[1].decode()
                shown.add(_SHOWN_AS.get(kind, kind))
            if len(shown) == 3:
                break
    return frozenset(shown)


def _thread_names(index: Path) -> dict[str, str]:
    """Return the names people gave their threads; a later line renames."""
    lines = records(index, Missed()) if index.is_file() else ()
    return {text(line, "id"): on_title(text(line, "thread_name")) for line in lines}


class _CodexConverter(AgentConverter):
    """Converts one thread, record by record; `shown` are the texts on its screen side.

    Within a call, the rollout of the subagent that it spawned.
    """

    subagent_tools = frozenset({"spawn_agent"})

    def __init__(
        self, writer: EntryWriter, path: Path, head: Object, *, is_begun: bool = False
    ) -> None:
        """With `is_begun`, it begins in the middle of the thread."""
        super().__init__(writer)
        self._is_begun = is_begun
        self._waits_for_model = is_begun
        self.shown: frozenset[str] = frozenset()
        self._path = path
        self._waiting: list[Object] = []
        self._thinking = False
        self._turn = ""
        self._policy = ""
        self._prompted_in_task = True
        self._compacted: tuple[str, str] | None = None
        self._spent: Object = {}
        self._cwd = ""
        self._thread = text(head, "id")
        self.told[self._thread] = None
        self._spawned: dict[Path, dict[str, list[tuple[int, str]]]] = {}
        self._now = 0
        self._items: set[str] = set()
        self._searches = count(1)
        self.is_subagent = not writer.caller and "subagent" in obj(head, "source")
        if not writer.caller:
            writer.facts.by_program = text(head, "source") == "exec"
        self._at(text(head, "cwd"))

    def take(self, record: Object) -> None:
        """Take the next record; before autumn 2025 items and the head had no wrapper."""
        self._now = milliseconds(record.get("timestamp")) or self._now
        self._writer.clock(self._now)
        kind, payload = text(record, "type"), obj(record, "payload")
        if kind == "session_meta":
            self._writer.clock(payload.get("timestamp"))
        elif kind == "turn_context":
            self._turn = text(payload, "turn_id") or self._turn
            self._policy = text(payload, "approval_policy")
            self._at(text(payload, "cwd"))
            if not self._writer.caller:
                self._writer.model(text(payload, "model"))
        elif kind == "event_msg":
            if text(payload, "type") == "item_completed":
                payload = obj(payload, "item")
            self._event(text(payload, "type"), payload)
        elif kind == "response_item":
            self._item(text(payload, "type"), payload)
        elif kind == "compacted":
            call_id = f"compacted-{self._turn or self._writer.facts.updated_at}"
            self._compacted = (call_id, text(payload, "message"))
            if self._prompted_in_task:
                self._tell_compaction()
        elif "payload" in record:
            if kind not in _PASSED:
                self._missed.kind("records", kind, record)
        elif kind:
            self._item(kind, record)
        elif not record.keys() & {"id", "record_type"}:  # the head, and states, of before autumn
            self._missed.kind("records", "", record)

    def _at(self, cwd: str) -> None:
        self._cwd = cwd or self._cwd
        if not self._writer.caller:
            self._writer.facts.enter(cwd)

    # -- the screen ------------------------------------------------------------------------

    def _event(self, kind: str, event: Object) -> None:
        if kind == "patch_apply_end":
            call_id, changes = text(event, "call_id"), obj(event, "changes")
            if self._calls.pop(call_id, None) is not None:
                about: Object = {"call_id": call_id, "turn_id": text(event, "turn_id")}
                if self._policy == "untrusted":
                    about["auto_approved"] = False  # under that policy a person is always asked
                fields = edit_fields(event_diffs(changes)) if changes else {}
                fields["status"] = "completed" if event.get("success") is not False else "failed"
                fields["rawInput"] = about | {"changes": changes}
                fields["rawOutput"] = {name: event[name] for name in event if name != "type"}
                self._writer.update(call_id, fields)
            return
        if fields := item_fields(event):
            self._thinking = False
            call_id = text(event, "id")
            is_told = self._calls.pop(call_id, None) is not None
            self._calls = {at: it for at, it in self._calls.items() if it[0] != "script"}
            if is_told:
                self._writer.update(call_id, fields)
            elif self._is_new(call_id):
                self._writer.call(call_id, fields)
            if text(event, "kind") == "started":
                self._tell_subagent(call_id, text(event, "agent_thread_id"))
            return
        if self._writer.caller:
            return
        said = words_of(event)
        match kind:
            case "user_message" | "UserMessage":
                parts = objects(event, "content")
                images = [first_text(part, ("image_url", "url")) for part in parts]
                files = [path for part in parts if (path := text(part, "path"))]
                self._prompt(
                    said, images + strings(event, "images"), files + strings(event, "local_images")
                )
            case "agent_message" | "AgentMessage" | "Plan":
                self._say(said)
            case "agent_reasoning" | "Reasoning":
                for words in strings(event, "summary_text") or [said]:
                    self._think(words)
            case "ImageGeneration":
                self._show(event)
            case "task_started" | "turn_started":
                self.tell_unfinished()
                self._turn = text(event, "turn_id") or self._turn
                self._prompted_in_task = False
            case "task_complete" | "turn_complete":
                self._tell_compaction()
                self._writer.finish_answer()
                self._end_turn("end_turn")
            case "turn_aborted":
                self._end_turn("cancelled")
            case "error":
                self._writer.fail_turn(text(event, "message"))
            case "exited_review_mode" | "ExitedReviewMode":
                self._say(text(event, "review_output", "overall_explanation"))
            case "token_count":
                info = obj(event, "info")
                last, total = obj(info, "last_token_usage"), obj(info, "total_token_usage")
                if not last or total == self._spent or self._waits_for_model:
                    return  # the same count again
                self._spent = total
                reply = f"{self._turn} {total}" if self._turn and total else ""
                self._writer.tokens(reply, **token_counts(last, together=True))
                if size := number(info, "model_context_window"):
                    self._writer.usage(number(last, "total_tokens") or 0, size)
            case _ if kind not in _PASSED:
                self._missed.kind("events", kind, event)

    def _end_turn(self, reason: str) -> None:
        self._writer.end_turn(reason)
        self._turn = self._turn and BY_WORDS  # the lines with the next one's id may be lost

    def _is_new(self, item_id: str) -> bool:
        """Return False for an item that the other side had before; one without an id is new."""
        is_new = not item_id or item_id not in self._items
        self._items.add(item_id)
        return is_new

    def _show(self, item: Object) -> None:
        if (made := text(item, "result")) and self._is_new(text(item, "id")):
            self._writer.show(image(made, "image/png"))

    def _prompt(self, words: str, images: list[str], files: list[str]) -> None:
        """Write the model's side of a prompt; what the screen had if that has no text, or that of
        another writer."""
        self._prompted_in_task = True
        waiting = squeeze("".join(text(block, "text") for block in self._waiting))
        is_plain = all(text(block, "type") == "text" for block in self._waiting)
        on_screen = squeeze(words)
        is_its = waiting.endswith(on_screen)  # behind what the program put in front
        # "y" is in nearly every prompt.
        is_its |= len(on_screen) >= ALIKE and on_screen in waiting
        is_its |= len(waiting) >= ALIKE and waiting in on_screen
        if words and not (waiting and (is_its or not is_plain)):
            shown = [*filter(None, map(picture, images)), *map(link, files)]
            self._waiting = [text_block(words), *shown]
        self._ask()
        self._tell_compaction()

    def _ask(self) -> None:
        """Write the waiting texts as a prompt; answers to questions, which are JSON, as text."""
        for block in self._waiting:
            if found := _ANSWERS.fullmatch(text(block, "text")):
                answers = objects(from_json(found[1]))
                if all(text(it, "question") and text(it, "answer") for it in answers):
                    told = (f"> {text(it, 'question')}\n\n{text(it, 'answer')}" for it in answers)
                    block["text"] = "\n\n".join(told) or block["text"]
        self._writer.prompt(prompt_blocks(self._waiting), turn=self._turn)
        self._waiting = []

    def _require_beginning(self) -> None:
        """Raise NotStraightError if what was before this part matters, and is not known."""
        if self._is_begun:
            raise NotStraightError

    def tell_unfinished(self) -> None:
        """Tell the scripts and subagents that never ended, such as at a kill."""
        self._tell_compaction()
        self.tell_stopped()
        for call_id, (purpose, fields) in list(self._calls.items()):
            if purpose == "script":
                self._writer.call(call_id, fields)
            if purpose == "script" or purpose in self.subagent_tools:
                del self._calls[call_id]

    def _tell_compaction(self) -> None:
        """Tell a compaction. At the start of a task, it was `/compact` if no prompt follows."""
        if self._compacted is None:
            return
        if not self._prompted_in_task:
            self._prompted_in_task = True
            self._writer.prompt([text_block("/compact")], turn=self._turn)
        self._writer.compaction(*self._compacted)
        self._compacted = None

    def _say(self, words: str) -> None:
        self._tell_compaction()
        self._thinking = self._waits_for_model = False
        self._writer.say(words)

    def _think(self, words: str) -> None:
        if words:
            self._writer.think(f"\n\n{words}" if self._thinking else words)
            self._thinking, self._waits_for_model = True, False

    # -- the model -------------------------------------------------------------------------

    def _item(self, kind: str, item: Object) -> None:
        self._waits_for_model &= kind.endswith("_output") or text(item, "role") in _NOT_MODEL
        if kind == "message":
            role, parts = text(item, "role"), objects(item, "content")
            if role == "user":
                self._in_persons_place(parts)
            elif role == "assistant" and "agent_message" not in self.shown:
                self._unseen_prompt()
                self._say("".join(text(part, "text") for part in parts))
        elif kind == "reasoning":
            self._unseen_prompt()
            for part in [] if "agent_reasoning" in self.shown else objects(item, "summary"):
                self._think(text(part, "text"))
        elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
            self._unseen_prompt()
            self._thinking = False
            self._item_call(kind, item)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._output(text(item, "call_id"), item.get("output"))
        elif kind == "web_search_call":
            query = text(item, "action", "query")
            call_id = first_text(item, ("id", "call_id"))
            fields: Object = {"title": f"Search {query}" if query else "Web search"}
            fields |= {"kind": "fetch", "status": "completed", "rawInput": obj(item, "action")}
            if not call_id:
                self._require_beginning()  # they are numbered
            if self._is_new(call_id):
                self._writer.call(call_id or f"search-{next(self._searches)}", fields)
        elif kind == "image_generation_call":
            self._show(item)
        elif kind not in _PASSED:
            self._missed.kind("items", kind, item)

    def _in_persons_place(self, parts: list[Object]) -> None:
        """Take texts of the person or the program; an event says if a person typed them."""
        first = text(parts[0], "text") if parts else ""
        if found := _CWD.search(first) if first.startswith("<environment_context>") else None:
            self._at(found[1] or found[2])
        if _BY_PROGRAM.match(first):
            return
        self._unseen_prompt()
        self._waiting = [
            block
            for block in self._blocks(parts)
            if text(block, "type") != "text" or not _AROUND_PICTURE.fullmatch(text(block, "text"))
        ]

    def _other_block(self, kind: str, part: Object, of: str) -> list[Object]:
        url = text(part, "image_url")
        if kind == "input_image" and url.startswith(("https://", "http://", "file://")):
            return [resource_link(url, url)]
        return super()._other_block(kind, part, of)

    def _unseen_prompt(self) -> None:
        """Write the waiting texts as a prompt, if there is no screen side to confirm them."""
        if self._waiting and "user_message" not in self.shown:
            self._ask()
        self._waiting = []

    def _item_call(self, kind: str, item: Object) -> None:
        """Write a call, and note the kind of its result: "patch", "command" or "other"."""
        call_id, name = first_text(item, ("call_id", "id")), text(item, "name")
        arguments = from_json(item.get("arguments") or item.get("input"))
        if kind == "local_shell_call":
            name, arguments = "shell", obj(item, "action")
        if name == "update_plan":
            self._writer.plan(objects(arguments, "plan"))
            return
        if (name == "exec" and isinstance(arguments, str)) or text(arguments, "cell_id"):
            # What a script does is on the screen: it is told itself if it does nothing.
            told: Object = {"title": "Run a script", "kind": "execute", "rawInput": arguments}
            self._calls[call_id] = "script", told
            return
        command = strings(arguments, "command")
        script = text(arguments, "cmd") or text(arguments, "command")
        script = script or (script_of(command) if command else "")
        patch = arguments if isinstance(arguments, str) else text(arguments, "input") or script
        if is_patch(patch) and (name == "apply_patch" or "apply_patch" in script):
            purpose, fields = "patch", edit_fields(patch_diffs(patch, self._cwd))
            fields["rawInput"] = {"call_id": call_id, "input": patch}
        elif not script:
            server, _, tool = name.rpartition("__")
            title = f"Tool: {server.removeprefix('mcp__')}/{tool}" if server else name
            purpose = tool if tool in self.subagent_tools else "other"
            fields = {"title": title or "tool", "kind": "other"}
            fields["rawInput"] = arguments
        else:
            purpose, old = "command", name == "shell"
            cwd, found = text(arguments, "workdir") or self._cwd, purposes(script)
            if not old and any(text(part, "type") == "unknown" for part in found):
                found = [{"type": "unknown", "cmd": script}]
            raw: Object = {"call_id": call_id, "cwd": cwd, "parsed_cmd": found}
            raw["command"] = command or ["/bin/bash", "-lc", script]
            if old:
                raw["is_user_shell_command"] = False
            elif self._turn:
                raw["turn_id"] = self._turn
            fields = command_fields(found, cwd, old=old) | {"rawInput": raw}
        self._calls[call_id] = purpose, fields
        self._writer.call(call_id, fields | {"status": "in_progress"})

    def _output(self, call_id: str, output: object) -> None:
        purpose, fields = self._calls.pop(call_id, ("", {}))
        if not purpose:
            self._require_beginning()
            return
        words, code = output_of(output)
        refused = words.lstrip().startswith(_REFUSED) or "\naborted by user" in words
        if purpose == "script":
            head = output if isinstance(output, str) else words
            if not head.startswith(("Script failed", *_REFUSED)):
                return
            refused = True
            self._writer.call(call_id, fields)
        failed = refused or code not in (None, 0)
        ended: Object = {"status": "failed" if failed else "completed"}
        if purpose == "command" and not refused:
            ended["rawOutput"] = {
                "call_id": call_id,
                "aggregated_output": words,
                "exit_code": code,
                "formatted_output": words,
            }
            if words:
                ended["content"] = [fenced(words, language(fields))]
        elif purpose != "patch" or refused:
            ended["rawOutput"] = from_json(output)
            ended["content"] = contents(words)
        self._writer.update(call_id, ended)
        self._tell_subagent(call_id, text(from_json(output), "agent_id"))

    def _tell(self, child: str) -> None:
        self._require_beginning()
        if path := rollout_of(self._path, child):
            converter: _CodexConverter | None = None
            begin = 0
            for place, _, record in numbered(path, self._missed):
                if converter is None:
                    head = obj(record, "payload")
                    begin = number(head, "subagent_history_start_ordinal") or 0
                    converter = _CodexConverter(self._writer, path, head)
                    self._lead(converter)
                if place >= begin:  # before that it repeats its caller's
                    converter.take(record)
            if converter:
                converter.tell_unfinished()

    def _find_subagent(self, call_id: str, arguments: Object, result: object) -> str | None:
        """Return the id of one that was stopped: the next of this thread's that is not told."""
        self._require_beginning()
        if (folder := self._path.parent) not in self._spawned:
            self._spawned[folder] = _spawned_in(folder)
        for at, agent in self._spawned[folder].get(self._thread, []):
            if at <= self._now and agent not in self.told:
                return agent
        return None

    def _lead(self, converter: AgentConverter) -> None:
        super()._lead(converter)
        if isinstance(converter, _CodexConverter):
            converter._spawned = self._spawned


def _spawned_in(folder: Path) -> dict[str, list[tuple[int, str]]]:
    """Return the beginnings (ms) and ids of the subagents in a folder, by the thread that spawned
    them."""
    found: dict[str, list[tuple[int, str]]] = {}
    for path in files_below(folder, "rollout-*.jsonl*"):
        head = obj(next(records(path, Missed(), ROWS), {}), "payload")
        parent = text(head, "source", "subagent", "thread_spawn", "parent_thread_id")
        at = milliseconds(head.get("timestamp")) or 0
        found.setdefault(parent, []).append((at, text(head, "id")))
    return found


READER: Final = Reader(
    "codex", "codex-acp", find, read, branches_of(lambda source: Thread(source).tree(Missed()))
)
