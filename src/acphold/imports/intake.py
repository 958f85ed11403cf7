"""Taking conversations into the journal: each once, and later what came to it.

Behind what was taken stands an entry of kind `imported`: from where, how large the source was,
how many entries its reader told, and a digest of them. When a source has changed, its reader tells
it all again:

- it begins as it did: what follows is new;
- it begins otherwise, or was never imported because the conversation was held through `wrap`: the
  turns behind the last prompt that both know are new;
- no prompt is known to both: the journal's conversation stays as it is.

The session is linked to the agent's own id last. One without a link is what an import left that
was ended in the middle; it is removed and made again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, Literal

import msgspec
from msgspec import Struct

from acphold.errors import UnknownSessionError
from acphold.imports.conversation import Facts, Happening, Reader, Source
from acphold.imports.scribe import Scribe
from acphold.imports.values import text
from acphold.journal import Journal, Lease, Message, NewSession, RowChange, SessionRow, history
from acphold.journal.entries import PROMPT
from acphold.journal.session_rows import now_ms

IMPORTED: Final = "imported"
"""The kind of the entry behind what was taken in; folds and replays pass over it."""

OWNER: Final = "import"
"""Who holds the lease of a session while it is taken in."""

Outcome = Literal["new", "grown", "same", "empty", "elsewhere", "deleted", "busy", "differs"]
"""What became of a source: taken in whole, or what was new of it; nothing new; nothing said in it;
outside the folder asked for; deleted here before; in use by somebody; nothing in common."""

TITLE_CHARACTERS: Final = 80
"""How much of a first prompt is the title of a conversation that has none."""

BATCH_BYTES: Final = 256 << 10
"""How much is appended at once, about."""


class Marker(Struct, rename="camel"):
    """What an entry of kind `imported` says."""

    reader: str
    place: str
    size: int
    changed_at: int
    taken: int
    digest: str
    title: str | None = None


class Selection(Struct, frozen=True):
    """Which conversations are taken, and how much of them.

    With `whole_turns`, the turn that is not over is left for the next time.
    """

    cwd: str | None = None
    whole_turns: bool = False


ALL: Final = Selection()


class Intake:
    """Puts conversations into one journal."""

    def __init__(self, journal: Journal, selection: Selection = ALL) -> None:
        self._journal = journal
        self._selection = selection

    async def expect(self, source: Source, reader: Reader) -> Outcome:
        """What `take` would do, as far as that can be told without reading the source."""
        agent = source.agent or reader.key
        ours = await self._journal.session_of(agent, source.session_id)
        if ours is None:
            gone = await self._journal.is_forgotten(agent, source.session_id)
            return "deleted" if gone else "new"
        row = await self._journal.session(ours)
        return "same" if _is_as_it_was(await self._last_marker(row), source) else "grown"

    async def take(self, source: Source, reader: Reader) -> tuple[Outcome, Facts]:
        """Take in what is new of a conversation; raises OSError when it cannot be read."""
        facts = Facts(source.agent or reader.key, source.session_id)
        expected = await self.expect(source, reader)
        if expected in ("same", "deleted"):
            return expected, facts
        ours = await self._journal.session_of(facts.agent, source.session_id)
        told = Told(source, reader, facts, self._selection)
        if ours is None:
            return await self._take_new(told), facts
        row = await self._journal.session(ours)
        holder = await self._journal.holder(ours)
        if holder.expires_at > now_ms():
            return "busy", facts
        return await self._take_rest(row, told), facts

    async def _take_new(self, told: Told) -> Outcome:
        facts = told.facts
        happenings = iter(told)
        beginning = list(_to_first_prompt(happenings))
        if not beginning or beginning[-1].kind != PROMPT:
            return "empty"
        if self._selection.cwd not in (None, facts.cwd):
            return "elsewhere"
        new = NewSession(
            await self._free_id(told), facts.agent, _folder(facts), created_at=facts.created_at
        )
        lease = await self._journal.create(new, OWNER)
        await self._append(lease, beginning)
        await self._append(lease, happenings)
        await self._append(lease, told.closing())
        await self._finish(lease, told, None)
        await self._journal.link(lease, facts.agent, facts.session_id)
        await self._journal.release(lease)
        return "new"

    async def _free_id(self, told: Told) -> str:
        """The agent's own id, where no other agent has the same."""
        wanted = told.facts.session_id
        try:
            row = await self._journal.session(wanted)
        except UnknownSessionError:
            return wanted
        holder = await self._journal.holder(wanted)
        if row.agent == told.facts.agent and holder.owner == OWNER:
            await self._journal.delete(wanted)
            return wanted
        return f"{told.source.reader}-{wanted}"

    async def _take_rest(self, row: SessionRow, told: Told) -> Outcome:
        marker = await self._newest_marker(row)
        news = _behind(told, marker) if marker else None
        if news is None:
            news = _after_last_common(told, await self._prompts(row))
        if news is None:
            return "differs"
        lease = await self._journal.acquire(row.session_id, OWNER)
        count = await self._append(lease, news)
        renamed = marker is not None and told.facts.title not in (None, marker.title)
        if count or renamed:
            await self._append(lease, told.closing())
        await self._finish(lease, told, row, marker)
        await self._journal.release(lease)
        return "grown" if count or renamed else "same"

    async def _finish(
        self, lease: Lease, told: Told, row: SessionRow | None, before: Marker | None = None
    ) -> None:
        facts = told.facts
        marker = told.marker()
        title = marker.title
        if row is not None and row.title not in (None, before and before.title):
            title = row.title  # a person has named it
        updated_at = max(facts.updated_at or 0, row.updated_at if row else 0) or now_ms()
        change = RowChange(title=title, updated_at=updated_at, prompted=True)
        await self._journal.append(lease, IMPORTED, [msgspec.json.encode(marker)], change)
        await self._journal.settle(lease, lease.next_seq - 1)

    async def _append(self, lease: Lease, happenings: Iterable[Happening]) -> int:
        count = size = 0
        batch: list[Happening] = []
        for happening in happenings:
            count += 1
            if batch and (happening.kind != batch[0].kind or size > BATCH_BYTES):
                await self._journal.append(lease, batch[0].kind, [one.raw for one in batch])
                batch, size = [], 0
            batch.append(happening)
            size += len(happening.raw)
        if batch:
            await self._journal.append(lease, batch[0].kind, [one.raw for one in batch])
        return count

    # -- what the journal has --------------------------------------------------------------

    async def _last_marker(self, row: SessionRow) -> Marker | None:
        """The marker at the very end of a session."""
        segments = await self._journal.read(row.session_id, max(row.last_seq - 1, 0))
        last = segments[-1].entries()[-1] if segments else None
        return _marker(last.raw) if last and last.kind == IMPORTED else None

    async def _newest_marker(self, row: SessionRow) -> Marker | None:
        found: Marker | None = None
        async for segment in history(self._journal, row.session_id):
            if segment.kind == IMPORTED:
                found = _marker(segment.entries()[-1].raw) or found
        return found

    async def _prompts(self, row: SessionRow) -> list[str]:
        state = await self._journal.state(row.session_id)
        users = [item for item in state.timeline if isinstance(item, Message)]
        return [_squeezed(user.text) for user in users if user.role == "user"]


class Told:
    """All that a reader tells of a source; each iteration reads the source anew."""

    def __init__(self, source: Source, reader: Reader, facts: Facts, selection: Selection) -> None:
        self.source = source
        self.facts = facts
        self._reader = reader
        self._whole_turns = selection.whole_turns
        self._digest = blake2b(digest_size=16)
        self._count = 0
        self._first_prompt: bytes | None = None
        self._closing: list[Happening] = []

    def __iter__(self) -> Iterator[Happening]:
        self._digest, self._count = blake2b(digest_size=16), 0
        self.facts.missed.clear()
        scribe = Scribe(self.facts)
        for _ in self._reader.read(self.source, scribe):
            yield from self._counted(scribe.taken(whole_turns=self._whole_turns))
        yield from self._counted(scribe.taken(whole_turns=self._whole_turns))
        scribe.taken()  # a turn that is left for the next time
        if not self._whole_turns:
            scribe.end_turn()
        scribe.title_update()
        self._closing = scribe.taken()

    def _counted(self, happenings: list[Happening]) -> Iterator[Happening]:
        for happening in happenings:
            self._count += 1
            self._digest.update(happening.kind.encode() + happening.raw)
            if self._first_prompt is None and happening.kind == PROMPT:
                self._first_prompt = happening.raw
            yield happening

    def closing(self) -> list[Happening]:
        """The end of a turn, made up because the source ends here, and the title, once all is told.

        They count to no digest: they may be others the next time.
        """
        return self._closing

    @property
    def count(self) -> int:
        """How many have been told so far."""
        return self._count

    def digest(self) -> str:
        """Of all that has been told so far."""
        return self._digest.hexdigest()

    def marker(self) -> Marker:
        """What to leave behind them in the journal, once all are told."""
        source = self.source
        title = self.facts.title or first_line(self._first_prompt or b"[]")
        return Marker(
            source.reader, source.place, source.size, source.changed_at,
            self._count, self.digest(), title,
        )  # fmt: skip


def _folder(facts: Facts) -> str:
    """The folder of a conversation; the home folder where an old transcript does not name it."""
    return facts.cwd if os.path.isabs(facts.cwd) else os.path.expanduser("~")


def _to_first_prompt(happenings: Iterator[Happening]) -> Iterator[Happening]:
    for happening in happenings:
        yield happening
        if happening.kind == PROMPT:
            return


def _behind(told: Told, marker: Marker) -> Iterator[Happening] | None:
    """What is told behind what the marker stands for; None when it begins otherwise now."""
    happenings = iter(told)
    while told.count < marker.taken:
        if next(happenings, None) is None:
            return None
    return happenings if told.digest() == marker.digest else None


def _after_last_common(told: Told, known: list[str]) -> Iterator[Happening] | None:
    """The turns behind the last one that begins with the last known prompt; None without one."""
    prompts = [_squeezed(_words(h.raw)) for h in told if h.kind == PROMPT]
    common = 0
    for place, words in enumerate(prompts, 1):
        before = known[-2:-1] if place > 1 else []
        if (
            known
            and _same(words, known[-1])
            and (not before or _same(prompts[place - 2], before[0]))
        ):
            common = place
    return _from_prompt(told, common) if common else None


def _from_prompt(told: Told, number: int) -> Iterator[Happening]:
    """What begins with the prompt of this number, counted from 0."""
    seen = 0
    for happening in told:
        seen += happening.kind == PROMPT
        if seen > number:
            yield happening


def _same(one: str, other: str) -> bool:
    """Whether two texts are one prompt: agents put things in front of and behind what was sent."""
    return one == other or (bool(one) and bool(other) and (one in other or other in one))


def _squeezed(words: str) -> str:
    return " ".join(words.split())


_decode_blocks: Final = msgspec.json.Decoder(list[dict[str, object]]).decode


def _words(prompt: bytes) -> str:
    """The text of an array of content blocks that a scribe wrote."""
    return "".join(text(block, "text") for block in _decode_blocks(prompt))


def first_line(prompt: bytes) -> str | None:
    """The first line with words in a prompt, for a title; None when it has none."""
    for line in _words(prompt).splitlines():
        if words := " ".join(line.split()):
            cut = len(words) > TITLE_CHARACTERS
            return words[: TITLE_CHARACTERS - 1] + "…" if cut else words
    return None


def _is_as_it_was(marker: Marker | None, source: Source) -> bool:
    if marker is None or source.title not in ("", marker.title):
        return False
    before = marker.place, marker.size, marker.changed_at
    return before == (source.place, source.size, source.changed_at)


def _marker(raw: bytes) -> Marker | None:
    try:
        return msgspec.json.decode(raw, type=Marker)
    except msgspec.MsgspecError:
        return None
