"""The words of entries, prepared for the index.

The index keeps no copy of these texts, and needs them to remove a document: for bytes that are
indexed `document` must never change its result. A change here needs a migration that empties the
index and starts it at 0 again.

SQLite's tokenizer takes consecutive letters and digits for a word, so that `snake_case` and
`dotted.path` are words in a row, which a phrase finds. It cannot see where a word begins in
`camelCase` or in Chinese; the text that it is given makes up for this. Its trigram tokenizer finds
any part of a word, but makes an index three times as large in five times the time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct

from acphold.conversation.history.children import child_change
from acphold.conversation.history.display_terminals import output_in
from acphold.conversation.history.entries import PROMPT, Entry
from acphold.conversation.history.raw_update import (
    ROLES,
    TOOL_KINDS,
    items,
    members,
    string,
    update_kind,
    values_in,
)

TEXT_CHARACTERS: Final = 64 << 10
"""Most characters of one entry that are searched, of each part."""


class Document(Struct, frozen=True):
    """The words of an entry, by part.

    `messages` are the words of people and agents, and thoughts; `tools` the titles, inputs and
    outputs of tool calls, and the titles and tasks of sub-agents; `diffs` the paths and both sides
    of changes.
    """

    messages: str = ""
    tools: str = ""
    diffs: str = ""

    def __bool__(self) -> bool:
        return bool(self.messages or self.tools or self.diffs)


def document(entry: Entry) -> Document:
    """Return the words of an entry; an empty document if it has none."""
    if entry.kind == PROMPT:
        return Document(messages=_join(_blocks_text(entry.raw)))
    raw = entry.update
    kind = update_kind(raw)
    parts = members(raw)
    if kind in ROLES or kind == "session_message_chunk":
        return Document(messages=_join(_block_text(parts.get("content", b""))))
    if kind == "session_message":
        return Document(messages=_join(_blocks_text(parts.get("content", b""))))
    if (child := child_change(kind, parts)) is not None:
        names = (child.changes.get(name) or "" for name in ("title", "description"))
        return Document(tools=_join(names))
    if kind not in TOOL_KINDS:
        return Document()
    produced = [members(item) for item in items(parts.get("content", b""))]
    return Document(
        tools=_join(
            chain(
                [string(parts.get("title")) or ""],
                _strings(parts.get("rawInput")),
                *(_block_text(item.get("content", b"")) for item in produced),
                output_in(parts.get("_meta", b"")),
                _strings(parts.get("rawOutput")),
            )
        ),
        diffs=_join(
            string(item.get(name)) or ""
            for item in produced
            for name in ("path", "newText", "oldText")
        ),
    )


REPEATED_CHARACTERS: Final = 200
"""From this length on, a text that repeats part of an earlier one is left out: a tool's output is
often sent twice, for people and raw."""


def _join(texts: Iterator[str]) -> str:
    found: list[str] = []
    size = 0
    for text in texts:
        is_long = len(text) >= REPEATED_CHARACTERS
        if text and not (is_long and any(text in known for known in found)):
            found.append(text)
            before, size = size, size + len(text)
            # Megabytes of output are looked at no further if enough of their beginning is left.
            if before <= _LOOKED_AT < size and len(said := _beginning(found)) >= TEXT_CHARACTERS:
                return said[:TEXT_CHARACTERS]
    joined = "\n".join(found)
    if "\x1b" in joined:
        joined = _CONTROL.sub("", joined)
    return joined[:TEXT_CHARACTERS]


_LOOKED_AT: Final = 8 * TEXT_CHARACTERS
"""Characters in which there are nearly always enough besides the escapes."""


def _beginning(texts: Sequence[str]) -> str:
    """Return a beginning of the texts in a row, without escapes."""
    looked_at = "\n".join(text[:_LOOKED_AT] for text in texts)[:_LOOKED_AT]
    # The last escape may go on behind it; none of those before the last one does.
    end = looked_at.rfind("\x1b")
    return looked_at if end < 0 else _CONTROL.sub("", looked_at[:end])


_CONTROL: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
"""Escapes that colour a terminal, or set its title: with them, the `32m` of a colour would begin a
word. Source: ECMA-48, control sequences and strings."""


def _blocks_text(blocks: bytes) -> Iterator[str]:
    for block in items(blocks):
        yield from _block_text(block)


def _block_text(block: bytes) -> Iterator[str]:
    parts = members(block)
    # In links and embedded resources people search for these; `data` and `blob` are base64.
    if "resource" in parts:
        parts |= members(parts["resource"])
    for name in ("text", "title", "name", "uri"):
        if name in parts:
            yield string(parts[name]) or ""


def _strings(raw: bytes | None) -> Iterator[str]:
    """Yield all strings in a JSON value, in their order, without the names of members."""
    return (value for value in values_in(raw) if isinstance(value, str))


# -- words that the tokenizer does not see --------------------------------------------------

_EDGE: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z][A-Z][a-z]")
_CAMEL_PART: Final = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+")

_UNSPACED: Final = (
    "([\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\uff66-\uff9d\U00020000-\U000323af])"
)
"""Characters of Chinese, Japanese and Korean (kana, ideographs, syllables of Hangul): each is a
word of its own here, and a word of several is a phrase."""


def indexable(text: str) -> str:
    """Return a part of a document for the tokenizer, with words that it would miss at its end."""
    spaced = with_spaces(text)
    parts = camel_parts(text)
    return f"{spaced}\n{parts}" if parts else spaced


def with_spaces(text: str) -> str:
    """Return `text` with spaces around each character that is a word of its own."""
    # Compiled at first use: that takes four milliseconds, and an editor waits for the import.
    return text if text.isascii() else re.sub(_UNSPACED, r" \1 ", text)


def camel_parts(text: str) -> str:
    """Return the parts of the words in `camelCase` and `PascalCase`, each word once: `camel Case
    …`."""
    found: list[str] = []
    for word in dict.fromkeys(text.split()):
        if not word.islower() and _EDGE.search(word):
            found += _CAMEL_PART.findall(word)
    return " ".join(found)
