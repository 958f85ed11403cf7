"""Where Claude Code's subagents left what they did: in files of their own, or amid the rest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from acphold.imports.claude_tools import SUBAGENT_TOOLS
from acphold.imports.records import document, records
from acphold.imports.sources import Source
from acphold.imports.values import Object, text


class Subagents:
    """Where the records of subagents are, by the call that started them."""

    def __init__(self, source: Source) -> None:
        self._main = Path(source.paths[0])
        self._by_call: dict[str, Path] = {}
        self._callers: dict[str, str] = {}
        for name in source.paths[1:]:
            path = Path(name)
            about = path.with_suffix(".meta.json")
            if path.suffix == ".jsonl" and about.is_file():
                call_id = text(document(about, Counter()), "toolUseId")
                self._by_call.setdefault(call_id, path)

    def records(self, call_id: str, agent: str, missed: Counter[str]) -> Iterator[Object]:
        """What the subagent of this call left in a file of its own."""
        path = self._by_call.pop(call_id, None)
        if path is None and re.fullmatch(r"[\w-]{1,80}", agent):
            folders = (self._main.with_suffix("") / "subagents", self._main.parent)
            places = [folder / f"agent-{agent}.jsonl" for folder in folders]
            path = next((place for place in places if place.is_file()), None)
        if path is not None and path.resolve().is_relative_to(self._main.parent.resolve()):
            yield from records(path, missed)

    def caller(self, record: Object, calls: Mapping[str, tuple[str, Object]]) -> str:
        """The call behind a record in the same file: that with the same prompt, else the last."""
        above = text(record, "parentUuid")
        caller = self._callers.get(above, "")
        if not caller:
            asked = text(record, "message", "content")
            waiting = [call for call, (name, _) in calls.items() if name in SUBAGENT_TOOLS]
            same = [call for call in waiting if text(calls[call][1], "prompt") == asked]
            caller = (same or waiting[-1:] or [""])[0]
        self._callers[text(record, "uuid")] = caller
        return caller


def agent_id(details: object) -> str:
    """The subagent that a call started, as the record of its result names it."""
    return text(details, "agentId")
