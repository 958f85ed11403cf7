"""aider: `.aider.chat.history.md` in the folder of each project, a log in Markdown of its chats.

A chat begins with a line that has its time, behind an empty one. Each line of a prompt begins with
`#### `, each line of aider itself with `> `, and both end in two spaces; all other lines are the
model's answer. An edit is in the answer, and a line of aider's says if it was made. The times of
prompts are in `.aider.input.history` beside it. aider gives its chats no names: a chat is known by
its start time and the first line of its first prompt, wherever its folder lies, and whatever that
is called; its session is called after the path.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from acp_wire.workspace.regular_files import contents
from acphold.imports.content_blocks import EditMarks, diff, read_edits, text_blocks
from acphold.imports.entry_writer import BY_WORDS, EntryWriter
from acphold.imports.readers import AgentConverter, Reader
from acphold.imports.records import DAMAGED, DOCUMENT_BYTES, lines
from acphold.imports.salvage import ZEROS, RecordLine
from acphold.imports.sources import Home, Source, beside, files_of_projects, note, source_of
from acphold.imports.values import Missed, Object, digest_of, milliseconds, squeeze

HISTORY: Final = ".aider.chat.history.md"
TYPED: Final = ".aider.input.history"

_BEGUN: Final = re.compile(rb"# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*")
_PROMPT, _SAID, _BREAK = "#### ", "> ", "  "
_NOTHING: Final = "<blank>"
_MODEL: Final = re.compile(r"(?:Main model|Models?): (\S+?),? with ")
_TOKENS: Final = re.compile(r"Tokens: ([\d.,]+[kM]?) sent,.*?([\d.,]+[kM]?) received\.")
_CACHED: Final = re.compile(r"([\d.,]+[kM]?) cache hit")
_COST: Final = re.compile(r"Cost: \$([\d.]+) (?:message|request)")
_EDITED: Final = re.compile(r"Applied edit to (.+)")
_MARKS: Final = EditMarks(
    *map(re.compile, (r"<{5,9} SEARCH>?\s*", r"={5,9}\s*", r">{5,9} REPLACE\s*"))
)


# -- found ---------------------------------------------------------------------------------


def find(home: Home) -> Iterator[Source]:
    """Yield the chats of each project, and of the file that the environment names."""
    paths = list(files_of_projects(home, HISTORY))
    if moved := home.variable("AIDER_CHAT_HISTORY_FILE"):
        named = Path(moved)
        paths += [named] if named.is_absolute() and named not in paths else []
    for path in paths:
        try:
            chats = _chats(str(path), os.stat(path).st_mtime_ns)
        except OSError as error:
            note(error)
            continue
        found = [*source_of("", [path, path.with_name(TYPED)])]
        for source, chat in product(found, chats):
            # The author of the file may have put any time into it, so the chat's id is not trusted.
            yield replace(
                source,
                session_id=chat.name,
                kept_as=chat.name_here,
                size=chat.size,
                changed_at=chat.ended,
                item=str(chat.offset),
                given=True,
            )


class _AiderChat(NamedTuple):
    """One of the chats in a file: its place, and the time (ns) of its end."""

    name: str
    name_here: str
    offset: int
    size: int
    ended: int


@lru_cache(maxsize=64)
def _chats(file: str, changed_at: int) -> list[_AiderChat]:
    """Return the chats of a file, cached for all of them; raises OSError."""
    begun: list[tuple[int, int, str]] = []
    asked: list[bytes] = []
    end = 0
    for line in lines(Path(file), Missed(), as_written=True):
        end = line.offset + len(line.raw)
        if found := _BEGUN.fullmatch(line.raw):
            words = found[1].decode()
            begun.append((line.offset, (milliseconds(words) or 0) * 1_000_000, words))
            asked.append(b"")
        elif asked and not asked[-1] and line.raw.startswith(_PROMPT.encode()):
            asked[-1] = line.raw.strip()
    chats: list[_AiderChat] = []
    twins = Counter[str]()
    for place, (offset, _, words) in enumerate(begun):
        twin = twins[words]  # two may have begun within one second
        twins[words] += 1
        first = asked[place].decode(errors="replace")
        at = words.replace(" ", "T").replace(":", "")
        name, name_here = (
            f"{at}-{digest_of(it, 6)}"
            for it in (f"{first}\n{words}\n{twin}", f"{file}\n{words}\n{twin}")
        )
        is_last = place + 1 == len(begun)
        until = end if is_last else begun[place + 1][0]
        ended = changed_at if is_last else begun[place + 1][1]
        chats.append(_AiderChat(name, name_here, offset, until - offset, ended))
    return chats


# -- read ----------------------------------------------------------------------------------


def read(source: Source, writer: EntryWriter) -> Iterator[None]:
    """Read the chat; raises OSError if its file cannot be read."""
    path = source.path
    writer.facts.cwd = str(path.parent)
    converter = _AiderConverter(writer, _typing_times(beside(path, TYPED, writer.missed)))
    its = lines(path, writer.missed, begin=int(source.item), as_written=True)
    begun = _BEGUN.fullmatch(first.raw) if (first := next(its, None)) else None
    writer.clock(milliseconds(begun[1].decode()) if begun else None)
    for line, following in pairwise(chain(its, [None])):
        if line is None or _BEGUN.fullmatch(line.raw):
            break
        # The line of a process that was killed amid it ends where the next chat begins.
        is_cut = following is not None and _BEGUN.fullmatch(following.raw) is not None
        converter.line(line, is_cut=is_cut)
        yield
    converter.end()
    writer.clock(source.changed_at // 1_000_000)


def _typing_times(path: Path) -> dict[str, list[int]]:
    """Return the times (ms) when each text was typed, as far as known.

    In the file, a line with the time precedes the text.
    """
    try:
        history = contents(path, DOCUMENT_BYTES).decode(errors="replace")
    except OSError:
        return {}
    found: dict[str, list[int]] = {}
    for entry in history.split("\n# "):
        at, *typed = entry.removeprefix("# ").split("\n")
        words = "\n".join(line[1:] for line in typed if line.startswith("+"))
        if when := milliseconds(at.strip()):
            found.setdefault(squeeze(words), []).append(when)
    return found


class _AiderConverter(AgentConverter):
    """Converts one chat, line by line."""

    def __init__(self, writer: EntryWriter, typed: dict[str, list[int]]) -> None:
        super().__init__(writer)
        self._typed = typed
        self._told: dict[str, int] = {}
        """The number of times of each text that are over."""
        self._kind = ""
        self._lines: list[str] = []
        self._changes: dict[str, list[tuple[str, str]]] = {}
        self._model = ""
        self._count = 0

    def line(self, line: RecordLine, *, is_cut: bool) -> None:
        """Take the next line: lines of one kind belong together."""
        raw = line.raw.replace(b"\0", b"")
        if zeros := len(line.raw) - len(raw):
            self._missed.add(ZEROS, zeros)
            self.end()  # they may have come in the place of a prompt
        words = raw.decode(errors="replace").rstrip("\r\n")
        is_cut = is_cut and not words.endswith(_BREAK)
        if (is_cut or not raw.endswith(b"\n")) and words.startswith((_PROMPT[0], _SAID[0])):
            self._missed.add(DAMAGED, raw)  # it was cut, maybe within its mark
            return
        kind = ""
        for mark in (_PROMPT, _SAID):
            # A heading or a quote in an answer begins the same way.
            if words.startswith(mark) and words.endswith(_BREAK):
                kind, words = mark, words.removeprefix(mark).rstrip()
        if not kind and words.startswith(_PROMPT) and not self._writer.in_turn:
            self._missed.add("prompts without the two spaces behind them", raw)
        if kind != self._kind:  # an empty line ends a prompt as well
            self.end()
            self._kind = kind
        self._lines.append(words)

    def end(self) -> None:
        """Write the lines gathered so far."""
        lines, self._lines = self._lines, []
        words = "\n".join(lines).strip()
        if self._kind == _PROMPT and words != _NOTHING:
            times = self._typed.get(typed := squeeze(words), [])
            over = self._told.get(typed, 0)
            place = bisect_left(times, self._writer.facts.updated_at or 0, min(over, len(times)))
            self._told[typed] = place + 1
            at = times[place] if place < len(times) else None
            self._writer.clock(at)
            self._writer.prompt(text_blocks(words), turn=BY_WORDS if at is None else "")
            self._writer.model(self._model)
        elif self._kind == _SAID:
            self._report(lines)
        elif not self._kind and words:
            self._changes = {}
            for above, old, new in read_edits(lines, _MARKS):
                pair = "\n".join(old), "\n".join(new)
                self._changes.setdefault(above.strip().strip("*`:# "), []).append(pair)
            self._count += 1
            self._writer.say(words, f"said-{self._count}")
        self._kind = ""

    def _report(self, lines: list[str]) -> None:
        """Write aider's own lines: its edits, its cost, and everything else as a quote."""
        quoted: list[str] = []
        for line in lines:
            if not self._writer.in_turn:  # the way it was started
                if found := _MODEL.match(line):
                    self._model = found[1]
            elif found := _TOKENS.match(line):
                cached = _CACHED.search(line)
                self._writer.tokens(
                    inputTokens=_parse_number(found[1]),
                    outputTokens=_parse_number(found[2]),
                    cachedReadTokens=_parse_number(cached[1]) if cached else None,
                )
                if cost := _COST.search(line):
                    self._writer.spend(float(cost[1]) if cost[1].count(".") < 2 else None)
            elif found := _EDITED.match(line):
                self._count += 1
                name = found[1].strip()
                path = self._absolute(name)
                fields: Object = {"title": f"Edit {name}", "kind": "edit", "status": "completed"}
                fields["locations"] = [{"path": path}]
                if changes := self._changes.pop(name, []):
                    fields["content"] = [diff(path, old or None, new) for old, new in changes]
                self._writer.call(f"edit-{self._count}", fields)
                self._writer.finish_answer()
            elif line.strip():
                quoted.append(f"> {line}")
        if quoted:
            self._count += 1
            self._writer.say("\n".join(quoted), f"said-{self._count}")


def _parse_number(words: str) -> int | None:
    """Return a number as aider writes it: `137`, `7,214`, `4.6k`."""
    times = {"k": 1_000, "M": 1_000_000}.get(words[-1:], 1)
    try:
        return int(float(words.rstrip("kM").replace(",", "")) * times)
    except (ValueError, OverflowError):
        return None


READER: Final = Reader("aider", "aider", find, read)
