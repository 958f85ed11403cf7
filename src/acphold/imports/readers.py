"""The readers of conversations, one for each agent; and the agents that delete what they keep.

A reader converts the records of one conversation and passes them to an entry writer: see
`AgentConverter`. A SubagentWriter writes a subagent's conversation, inside the call that started
it.

Claude Code deletes conversations untouched for `cleanupPeriodDays`, 30 by default; with 0 it writes
none at all. Gemini CLI does so after `general.sessionRetention.maxAge`, `30d` by default, and
beyond `maxCount`. The others delete nothing by themselves.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from acphold.imports.content_blocks import plan_entry
from acphold.imports.entry_writer import EntryWriter
from acphold.imports.records import SMALL_BYTES, document
from acphold.imports.sources import Home, Source
from acphold.imports.values import Missed, Object, look_up, number, text

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
"""One module each, imported on demand."""

WAVES: Final = (
    frozenset({"acpx"}),
    frozenset(NAMES) - {"acpx", "acphold"},
    frozenset({"acphold"}),
)
"""The order of reading: no two readers of one wave know the same conversation.

acpx recorded live what Claude only wrote down.
"""


class Reader(NamedTuple):
    """Finds and reads the conversations of one agent.

    A `Source` is a conversation on disk: its file, id, size and time. `read` passes it to an
    `EntryWriter`, prompt by prompt and call by call, as a person saw it. At each `yield` the
    entries written so far can be taken away, so that no conversation has to fit into memory.
    `branches` finds parts that a person went back from, if transcripts keep them.
    """

    name: str
    key: str
    find: Callable[[Home], Iterator[Source]]
    read: Callable[[Source, EntryWriter], Iterator[None]]
    branches: Callable[[Source], Iterator[Source]] | None = None


def reader(name: str) -> Reader:
    """Return the reader of this name; raises ModuleNotFoundError if it is not in NAMES."""
    made = import_module(f"acphold.imports.{name}").READER
    assert isinstance(made, Reader)
    return made


class AgentConverter:
    """Passes one conversation to an entry writer; each reader derives its own class from this."""

    def __init__(self, writer: EntryWriter) -> None:
        self._writer = writer
        self._missed = writer.missed
        self._calls: dict[str, tuple[str, Object]] = {}
        """The tool and the arguments of each call that has no result yet."""

    def _call_of(self, call_id: str, result: object) -> tuple[str, str, Object] | None:
        """Return the id, the tool and the arguments of the call that this is the result of.

        None, and the result counted, if there is no such call.
        """
        name, arguments = self._calls.pop(call_id, ("", {}))
        if name:
            return call_id, name, arguments
        self._missed.add("results of unknown calls", result)
        return None

    def _end_call(
        self, call_id: str, *, failed: bool, produced: Sequence[Object] = (), **more: object
    ) -> None:
        """Write how a call ended, with what it produced."""
        fields: Object = {"status": "failed" if failed else "completed"}
        if produced:
            fields["content"] = produced
        self._writer.update(call_id, fields | more)

    def _plan(self, steps: Iterable[Object], words: str = "content") -> None:
        """Write a plan, unless it is a subagent's; `words` names the text of a step."""
        if not self._writer.caller:
            self._writer.plan(
                [plan_entry(text(step, words), text(step, "status")) for step in steps]
            )

    def _absolute(self, path: str) -> str:
        """Return a path in the conversation's folder as an absolute one; empty for none."""
        return os.path.join(self._writer.facts.cwd, path) if path else ""


ANTHROPIC_TOKENS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
"""Names of the counts in a reply of Anthropic's API, in the order of `token_counts`."""


def token_counts(
    usage: object,
    sent: str,
    received: str,
    cache_read: str = "",
    cache_written: str = "",
    thought: str = "",
    *,
    together: bool = False,
) -> dict[str, int | None]:
    """Return an agent's counts of tokens under the protocol's names, for `EntryWriter.tokens`.

    With `together` the tokens sent include those read from a cache.
    """
    names = {
        "inputTokens": sent,
        "outputTokens": received,
        "cachedReadTokens": cache_read,
        "cachedWriteTokens": cache_written,
        "thoughtTokens": thought,
    }
    counts = {field: number(usage, name) for field, name in names.items() if name}
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
        if missed.counts or next(reader(name).find(home), None) is None:
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
