"""The words of a conversation in a list: its title, made by rule from its first prompt alone, and
its last words.

A title is one sentence, what the person asks for: see `title_rules`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from acphold.conversation.history.entries import PROMPT, UPDATE, Entry
from acphold.conversation.history.raw_update import items, members, string, update_kind

TITLE_LENGTH: Final = 80
"""Characters of a title made from a prompt: what a list of sessions can show."""

UNTITLED: Final = "(no title)"
"""Stands for a title that a person has taken out: only a prompt gives another one."""

LOOKED_AT: Final = 8_192
"""Characters of a prompt that a title is made from; the rest was pasted."""


class _Text(Struct):
    type: str = ""
    text: str = ""


def title_of_prompt(prompt: bytes) -> str | None:
    """Return the title for a conversation that begins with this prompt, an array of content blocks;
    None if it has no words."""
    try:
        blocks = msgspec.json.decode(prompt, type=list[_Text])
    except msgspec.ValidationError:
        return None
    return title_of_words("\n".join(block.text for block in blocks if block.text))


def cut_first_line(prompt: bytes) -> str | None:
    """Return the title that earlier releases made of this prompt."""
    try:
        blocks = msgspec.json.decode(prompt, type=list[_Text])
    except msgspec.ValidationError:
        return None
    lines = (" ".join(line.split()) for block in blocks for line in block.text.splitlines())
    first = next(filter(None, lines), None)
    long = first is not None and len(first) > TITLE_LENGTH
    return f"{first[: TITLE_LENGTH - 1]}…" if first is not None and long else first


def title_of_words(said: str) -> str | None:
    """Return the title for a conversation that begins with these words; None if there are none."""
    from acphold.conversation.history.handovers import WORDS_NOW, own_words  # late: an editor waits
    from acphold.conversation.history.title_rules import title_by_rule

    own = own_words(said)
    said = (own if own or WORDS_NOW in said else said)[:LOOKED_AT]  # a mark may be quoted
    own = "\n".join(line for line in said.splitlines() if not is_command(line))
    title = title_by_rule(own if own.strip() else said)
    return None if title is None else shorten(title)


GREETINGS: Final = frozenset(
    (
        *("hi", "hello", "hey", "hallo", "moin", "bonjour", "hola", "there", "again"),
        *("continue", "go", "on", "proceed", "resume", "next", "ok", "okay", "yes", "please"),
        *("thanks", "test", "testing", "ready", "start"),
    )
)
"""Words that say nothing of a conversation."""


@lru_cache(1)  # an import asks it at each prompt
def says_nothing(title: str | None) -> bool:
    """Return True for a title of such words alone, or a command: the first prompt that says more
    gives another one."""
    words = "".join(it if it.isalnum() else " " for it in title or "").casefold().split()
    return GREETINGS.issuperset(words) or is_command(title or "")


def is_command(line: str) -> bool:
    """Return True for a command to an agent's program: `/clear`, `/model opus`, `! git status`. One
    with a sentence behind it, as `/review the new parser`, says what the person wants."""
    name, *more = line.split() or [""]
    return name == "!" or (len(more) < 3 and name[:1] == "/" and name[1:].count("/") == 0)


def is_own(title: str, prompts: Iterable[str]) -> bool:
    """Return True if an agent's title says more than its program's default, or the beginning of one
    of these prompts."""
    from acphold.conversation.history.title_rules import MADE_UP  # late: an editor waits

    def plain(words: str) -> str:
        return "".join(words[:LOOKED_AT].split()).casefold()

    begun = plain(title.rstrip(" .…"))
    return not MADE_UP.fullmatch(title) and not any(
        plain(prompt).startswith(begun) for prompt in prompts
    )


LAST_WORDS: Final = 160
"""Characters of the last words: a second line in a list."""


def last_words(entries: Iterable[Entry]) -> str:
    """Return the agent's last message from its beginning, as it is drawn, on one line, or a prompt
    behind it; "" without any. `entries` are some at the end of a conversation, the newest first."""
    said: list[str] = []
    speaker = ""
    for entry in entries:
        if entry.kind == PROMPT:
            if not said:
                said = [*map(_text_of, items(entry.raw))]
            break
        if entry.kind != UPDATE or not entry.raw:
            continue
        if update_kind(entry.raw) == "agent_message_chunk":
            parts = members(entry.raw)
            before, speaker = speaker, string(parts.get("messageId")) or ""
            if said and speaker != before:
                break
            said.insert(0, _text_of(parts.get("content", b"")))
        elif said:
            break
    return shorten(drawn("".join(said)[: 4 * LAST_WORDS]), LAST_WORDS)


def drawn(said: str) -> str:
    """Return the text of some Markdown as it is drawn, on one line."""
    from acphold.conversation.history.title_rules import as_drawn  # late: an editor waits

    return as_drawn(said)


def words_below(said: str, title: str | None) -> str:
    """Return last words as they stand below a title; "" where that begins alike, as with a prompt
    that nothing was answered to."""
    begins = (title or "").removesuffix("…")
    if any(mark in begins for mark in "`*_~["):
        begins = " ".join(drawn(begins).split())
    return "" if begins and said.startswith(begins) else said


def _text_of(block: bytes) -> str:
    return string(members(block).get("text")) or ""


def shorten(words: str, width: int = TITLE_LENGTH) -> str:
    """Return words on one line, cut to `width` characters, behind a word if one ends in its last
    third."""
    line = " ".join(words.split())
    if len(line) <= width:
        return line
    cut = line[: width - 1]
    whole = cut.rpartition(" ")[0]
    cut = whole if len(whole) * 3 >= width * 2 else cut
    return (cut.rstrip(" ,;:-") or cut) + "…"
