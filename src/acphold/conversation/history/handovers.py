"""A conversation handed over inside a prompt: its mark, and how it is told from the person's words.

A text that is handed over begins like this; the second line is its mark:

    # Earlier in this conversation
    [acphold 1f3870be274f6c49 57 "3c1f…"]

    You have no memory of this conversation. …

The mark survives wherever an agent keeps its prompts: in transcripts, replays and titles. It names
the session, its last entry that was told, and a digest of the text. Anybody can write one; it is
believed only if that session has an entry HANDED_OVER with its digest.
"""

# See docs/decisions.md, 23.

from __future__ import annotations

import re
from _blake2 import blake2b  # hashlib brings OpenSSL, for which an editor would wait
from typing import Final

import msgspec
from msgspec import Struct

from acp_wire.schema import splice
from acp_wire.schema.splice import UNREADABLE
from acphold.conversation.history.raw_update import encode_text, members, string, update_kind

HEADING: Final = "# Earlier in this conversation"
"""The line that a text begins under. Behind a slash command, it ends what the person says."""

BEGINNING: Final = "You have no memory of this conversation. Its earlier part, from a journal"
"""The first words of a text that has the beginning of the conversation."""

MISSING: Final = "You lack a part of this conversation. From a journal, what the user had asked"
"""The first words for an agent that has the beginning of the conversation."""

_BEGINNINGS: Final = (BEGINNING, MISSING, "Your last turn was cut off by a crash. From a journal")
"""The last one is that of earlier releases, whose texts have no mark."""

WORDS_NOW: Final = "# What the user says now"
"""The line that ends the text where a prompt follows it."""

WITH: Final = "/with-history"
WITHOUT: Final = "/without-history"
"""A prompt that begins with one of these hands the conversation over, or goes on without; they are
no words of the person's."""

CUT_TITLE: Final = 12
"""Characters of the heading by which a title that was cut short is known."""

_MARK: Final = re.compile(
    r'\s{1,4}\[acphold ([\da-f]{16}) (\d{1,10}) ("(?:[^"\\\n]|\\[^\n]){1,8000}")\][^\S\n]*(?=\s)'
)
"""The white space may be other than ours: some agents change it."""


class HandOver(Struct, frozen=True):
    """What a mark says: the session, up to its entry `last_seq`, was told in a text of this
    `digest`."""

    session_id: str
    last_seq: int
    digest: str

    def line(self) -> str:
        """Return the mark, without an end of line."""
        named = encode_text(self.session_id).decode()
        return f"[acphold {self.digest} {self.last_seq} {named}]"


class HandedOver(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The content of an entry HANDED_OVER; `left_out` counts what there was no room for.

    The text told entries above `after` up to `last_seq`, to the session `agent_session` of `agent`.
    Without a `digest`, the person has gone on without it.
    """

    session: str
    last_seq: int
    digest: str
    agent: str = ""
    agent_session: str = ""
    left_out: int = 0
    after: int = 0


def text_digest(text: str) -> str:
    """Return the digest of a text that is handed over; white space does not count, as some agents
    change it."""
    squeezed = "".join(text.split()).encode(errors="replace")
    return blake2b(squeezed, digest_size=8).hexdigest()


def with_mark(text: str, mark: HandOver) -> str:
    """Return a text that begins with HEADING, with its mark behind that line."""
    return text.replace(HEADING, f"{HEADING}\n{mark.line()}", 1)


def read_handed_over(text: str) -> tuple[HandOver | None, str, str]:
    """Return the mark in a prompt, the text handed over with it, and the person's own words.

    The mark is None, and the text not empty, for a prompt of an earlier release. The text has no
    mark; it may have been cut, then it has another digest than the mark says. The first line
    WORDS_NOW is ours: no quoted line begins with it.
    """
    before, _, behind = text.partition(HEADING)
    mark = None
    if (found := _MARK.match(behind)) is not None:
        digest, last_seq, named = found.groups()
        session_id = string(named.encode())
        if session_id is not None:
            mark, behind = HandOver(session_id, int(last_seq), digest), behind[found.end() :]
    if not behind.lstrip().startswith(_BEGINNINGS):
        return None, "", text
    told, end, now = behind.partition(f"\n{WORDS_NOW}\n")
    if not end:
        told, _, now = behind.partition(f" {WORDS_NOW} ")
    return mark, f"{HEADING}{told}", before.rstrip() + now.lstrip("\n")


def own_words(text: str) -> str:
    """Return a person's prompt without a conversation that was handed over with it."""
    return without_choice(read_handed_over(text)[2])


def choice_in(text: str) -> str:
    """Return the WITH or WITHOUT that a prompt begins with; "" for none."""
    return next((it for it in (WITHOUT, WITH) if re.match(rf"\s*{it}(?!\S)", text)), "")


def without_choice(text: str) -> str:
    """Return a prompt without the WITH or WITHOUT that it begins with."""
    choice = choice_in(text)
    return text.lstrip()[len(choice) :].lstrip() if choice else text


def is_named_by_it(title: str) -> bool:
    """Return True if an agent made this title from the first words of an earlier conversation."""
    words = " ".join(title.strip("#….").split()).casefold()
    heading = HEADING.strip("# ").casefold()
    if HEADING[:CUT_TITLE].casefold() in words:  # behind words of a model
        return True
    return words.startswith(heading) or (len(words) >= CUT_TITLE and heading.startswith(words))


def without_its_title(update: bytes) -> bytes:
    """Return the agent's update without a title that it made from an earlier conversation."""
    if b'"title"' not in update or update_kind(update) != "session_info_update":
        return update
    title = string(members(update).get("title"))
    return splice(update, {"title": None}) if title and is_named_by_it(title) else update


def handed_over_in(raw: bytes) -> HandedOver | None:
    """Return the content of an entry HANDED_OVER; None if it cannot be read."""
    try:
        return msgspec.json.decode(raw, type=HandedOver)
    except UNREADABLE:
        return None
