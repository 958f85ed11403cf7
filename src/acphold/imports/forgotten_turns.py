"""Turns that a person takes out of a conversation for good, such as one with a pasted secret.

The turn is made void in its session, in copies and origins of that, and in the turns that were
left; the snapshots of files from it go, too. Its identity stays, so that no import tells it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from acp_wire.schema import splice
from acp_wire.schema.splice import json_value
from acphold.conversation.history.entries import (
    AUTHOR,
    BACK,
    FORGOTTEN,
    PARAMS,
    PROMPT,
    QUEUE,
    SENT,
    PastEntry,
    now_ms,
    turn_spans,
)
from acphold.conversation.history.fold import Fold, SessionState
from acphold.conversation.history.prompt_queue import QueueChange, after_moment, content_in
from acphold.conversation.history.raw_update import members, string
from acphold.conversation.history.titles import UNTITLED, title_of_prompt
from acphold.errors import TranscriptError
from acphold.imports.entry_writer import prompt_text
from acphold.imports.forgotten_words import SECRET_CHARACTERS, finder, is_of
from acphold.imports.intake import Intake
from acphold.imports.pieces import failure, losses_in, pieces
from acphold.imports.readers import NAMES, Reader, reader
from acphold.imports.session_writer import IMPORTED, Forgotten, Known, entries_of, read_known
from acphold.imports.sources import Home, Source, searching
from acphold.imports.turns import (
    NOTHING,
    SAID,
    Comparison,
    KnownPart,
    ReadTurn,
    is_like,
    names_of,
    squeeze,
)
from acphold.journal.journal import Journal, history, row_of, rows_of, take_lease
from acphold.journal.rows import ListFilter, RowChange
from acphold.journal.seams import with_numbers

_EVERYTHING = ListFilter(include_unprompted=True, archived="include")


class Forgettable(Struct):
    """A turn, the whole text of its prompt, and the sessions and the files of agents that have the
    turn; `names` are all that it is known by, `waiting` the prompts in queues that may have its
    words: the session, and the number in its queue; `told` the other turns with its words, as
    another agent was handed the conversation: the session, and the number of the prompt; `unread`
    are files of agents that cannot be read, and why."""

    turn: ReadTurn
    prompt: str
    names: set[str]
    sessions: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    waiting: list[tuple[str, int]] = field(default_factory=list)
    told: list[tuple[str, int]] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def part(self, known: Known) -> list[ReadTurn]:
        """Return the turns of a session that are this one."""
        part = KnownPart(forgotten=frozenset(self.names))
        return [known.turns[n] for n in part.taken_out(known.turns)]

    def finder(self, *, surely: bool = False) -> Callable[[str], bool]:
        """Return a function that tells if a text may have words of the prompt: see `finder`."""
        return finder(self.prompt, surely=surely)

    def amid(self) -> Callable[[bytes], bool]:
        """Return a function that tells if another prompt has the words amid others, or a secret."""
        words, has_secret = squeeze(self.prompt), self.finder(surely=True)

        def may_be_in(prompt: bytes) -> bool:
            said = squeeze(text := prompt_text(prompt))
            is_amid = len(words) >= SECRET_CHARACTERS and words in said and words != said
            return is_amid or has_secret(text)

        return may_be_in

    def is_in(self, title: str | None) -> bool:
        """Return True if a title was made of the turn's prompt."""
        return is_of(title, self.prompt)


def has_words(found: Forgettable, typed: str) -> bool:
    """Return True if a person has typed the prompt of this turn, perhaps behind a command."""
    said, words = [typed], found.turn.words
    if typed.startswith("/"):
        behind = "".join(typed.split(maxsplit=1)[1:])
        said += [behind, after_moment(behind)]
    return bool(words) and any(is_like(squeeze(it), words) for it in said)


async def first_entries(journal: Journal, session_id: str) -> list[int]:
    """Return the numbers of the first entries of a session's turns."""
    return [turn.spans[0][0] for turn in (await read_known(journal, session_id)).turns]


async def relatives(journal: Journal, session_id: str, found: Forgettable) -> list[str]:
    """Return the ids of the sessions that a session was copied from, or left in, or that were made
    from one of these, or have its name: one of `--branches` of before has no origins. Where an
    origin is not here, those are that have the turn."""
    kin: dict[str, set[str]] = {}
    made: dict[str, tuple[set[str], tuple[str, str]]] = {}
    after = None
    while rows := await journal.page(_EVERYTHING, after, 500):
        for row in rows:
            origins = {origin.session_id for origin in row.origins}
            made[row.session_id] = origins, (row.agent, row.cwd)
            names = {it.partition("~")[0] for it in (row.session_id, row.downstream_id or "") if it}
            for name in names | origins:
                kin.setdefault(row.session_id, set()).add(name)
                kin.setdefault(name, set()).add(row.session_id)
        after = rows[-1].key
    origins, place = made.get(session_id, (set[str](), ("", "")))
    is_lost = not origins <= made.keys()
    for its_id, (its_origins, its_place) in made.items():
        may_be = not its_origins <= made.keys() or (is_lost and its_place == place)
        if may_be and found.part(await read_known(journal, its_id)):
            kin.setdefault(session_id, set()).add(its_id)
    related, waiting = {session_id}, [session_id]
    while waiting:
        new = kin.get(waiting.pop(), set()) - related
        related |= new
        waiting += new
    return sorted((related & made.keys()) - {session_id})


class SourceSearch:
    """Finds the sources of sessions below a home folder; each reader looks once. `unread` are the
    files that may be of one of them, but cannot be read, with the reasons."""

    def __init__(self, journal: Journal, home: Home) -> None:
        self._journal, self._home = journal, home
        self._intake = Intake(journal)
        self._met: dict[str, list[Source]] = {}
        self.unread: list[str] = []

    def _find(self, reading: Reader) -> list[Source]:
        if reading.name not in self._met:
            with searching() as search:
                self._met[reading.name] = [*reading.find(self._home)]
            self.unread += (failure(error, str(self._home.path)) for error in search.unreadable)
        return self._met[reading.name]

    async def of(self, session_id: str, names: Iterable[str]) -> list[Source]:
        """Return the sources of a session, the newest first."""
        row = await row_of(self._journal, session_id)
        # Another agent that continues it here knows it by an id of its own.
        its_ids = () if row is None else (row.downstream_id or row.session_id, row.session_id)
        found: list[Source] = []
        for reading in map(reader, names):
            for source in self._find(reading):
                if row is None and session_id in (source.session_id, source.default_id):
                    found.append(source)
                elif row is not None and any(
                    it.startswith((source.session_id, source.default_id)) for it in its_ids
                ):
                    ways = [source]
                    if "~" in session_id and reading.branches is not None:
                        try:
                            ways += reading.branches(source)
                        except Exception as error:
                            self.unread.append(failure(error, source.paths[0]))
                    for its in ways:
                        _, its_row = await self._intake.find_session(its, reading)
                        if its_row is not None and its_row.session_id == row.session_id:
                            found.append(its)
        return sorted(found, key=lambda source: -source.changed_at)


async def find_turn(
    journal: Journal, session_id: str, number: int, home: Home
) -> Forgettable | None:
    """Return the turn with this number, from 1, as transcripts count; None if there is none.

    The files of its agents in a home are read: forks have it by the name that these give it.
    """
    turns = (await read_known(journal, session_id)).turns
    if not 0 < number <= len(turns):
        return None
    turn = turns[number - 1]
    entries = [it async for _, it in entries_of(journal, session_id, [turn]) if it.kind == PROMPT]
    prompt = "\n".join(prompt_text(it.raw) for it in entries) or turn.words
    found = Forgettable(turn, prompt, {*names_of(turn, turns)})
    may_be_in, is_amid, search = found.finder(), found.amid(), SourceSearch(journal, home)
    if turn.is_here:  # it has another time in its agent's file
        found.names.add(turn.said)
    for its_id in (session_id, *await relatives(journal, session_id, found)):
        async for row in rows_of(journal, [its_id]):
            known = await read_known(journal, its_id)
            if part := found.part(known):
                found.sessions.append(its_id)
            rest = [turn for turn in known.turns if turn not in part]
            async for n, entry in entries_of(journal, its_id, rest):
                if entry.kind == PROMPT and is_amid(entry.raw):
                    found.told.append((its_id, rest[n].prompt))
            queue = (await journal.summary(its_id)).queue.waiting if row.queued else ()
            for place, waits in enumerate(queue, 1):
                async for segment in history(journal, its_id, waits.seq - 1, waits.seq):
                    if may_be_in(prompt_text(bytes(content_in([segment], waits).prompt))):
                        found.waiting.append((its_id, place))
            agents = {row.agent, "acpx", *(origin.agent for origin in row.origins)}
            names = [name for name in NAMES if reader(name).key in agents]
            for source in await search.of(its_id, names):
                reading = reader(source.reader)
                its_part = replace(known.part(source), forgotten=frozenset(found.names))
                try:
                    compared = next(pieces(source, reading, its_part)).compared or Comparison()
                    if not compared.taken_out and any(
                        it.kind == PROMPT and is_amid(it.raw)
                        for piece in pieces(source, reading, NOTHING)
                        for it in piece.entries
                    ):
                        found.files.append(source.paths[0])
                except (OSError, TranscriptError) as error:
                    search.unread.append(failure(error, source.paths[0]))
                    continue
                if losses_in(compared.missed) and not compared.taken_out:
                    search.unread.append(f"{source.paths[0]}: parts of it are damaged")
                for its in compared.taken_out.values():
                    found.names.update(its)
                    found.files.append(source.paths[0])
    found.unread = search.unread
    return found


def _prompt_of(change: QueueChange) -> str:
    return prompt_text(bytes(change.prompt)) if bytes(change.prompt) else ""


async def _instead(
    journal: Journal, session_id: str, found: Forgettable, turns: Sequence[ReadTurn]
) -> list[tuple[int, bytes]]:
    """Return the entries of the queue that have the prompts of these turns, and those that surely
    have the words and were taken back or edited, as they are without them; and those outside of the
    turns that give the session a title made of these."""
    prompts = {turn.prompt for turn in turns}
    spans = [span for turn in turns for span in turn.spans]
    changes: dict[str, list[tuple[int, QueueChange]]] = {}
    gone: list[tuple[int, QueueChange]] = []
    may_be_in = found.finder(surely=True)
    left: list[tuple[int, bytes]] = []
    begun = ""  # the prompt whose turn comes next
    async for segment in history(journal, session_id):
        for entry in segment.entries():
            if entry.kind == PROMPT and entry.seq in prompts:
                gone += changes.get(begun, ())
            if entry.kind not in (QUEUE, AUTHOR, SENT):
                begun = ""
            if b'"session_info_update"' in (update := entry.update):
                title = string(members(update).get("title"))
                if found.is_in(title) and not any(a <= entry.seq <= b for a, b in spans):
                    raw = splice(update, {"title": None})
                    raw = splice(entry.raw, {"update": raw}) if entry.kind == PARAMS else raw
                    left.append((entry.seq, raw))
            if entry.kind != QUEUE or (it := json_value(entry.raw, QueueChange)) is None:
                continue
            its = changes[it.id] = [] if it.do == "add" else changes.get(it.id, [])
            its.append((entry.seq, it))
            begun = it.id if it.do == "begin" else begun
            if it.do == "drop" and any(may_be_in(_prompt_of(each)) for _, each in its):
                gone += its
            elif bytes(it.prompt):  # in the place of what was there before
                gone += [old for old in its[:-1] if may_be_in(_prompt_of(old[1]))]
    for seq, change in dict(gone).items():
        if change.do == "begin":  # its turn has no end any more
            left.append((seq, msgspec.json.encode(QueueChange("drop", change.id))))
        elif bytes(change.prompt):
            left.append((seq, msgspec.json.encode(replace(change, prompt=msgspec.Raw(b"[]")))))
    return left


async def _left(
    journal: Journal, session_id: str, gone: Sequence[tuple[int, int]], instead: dict[int, bytes]
) -> SessionState:
    """Return the state of a session as it is without these entries."""
    folding = Fold()
    async for segment in history(journal, session_id):
        for entry in segment.entries():
            if raw := instead.get(entry.seq):
                folding.add(replace(entry, raw=raw))
            elif not any(first <= entry.seq <= last for first, last in gone):
                folding.add(entry)
    return folding.state()


async def forget(journal: Journal, found: Forgettable) -> None:
    """Take a turn out of its sessions for good; those made from these remember that.

    If this ends amid its work, the session that a person has named has the turn still, so that the
    next time finds it: there it is noted once all others are rid of it, and goes last.

    Raises HeldElsewhereError if one of them is open somewhere; those before it are done.
    """
    named = found.sessions[0]
    others = await relatives(journal, named, found)
    for session_id in others:
        await _take_out(journal, session_id, found)
    await _take_out(journal, named, found, [named, *others])
    await journal.index.catch_up(1)


async def _take_out(
    journal: Journal, session_id: str, found: Forgettable, noted_in: Sequence[str] = ()
) -> None:
    """Take a turn out of a session; first note for all imports that it is out of these, too."""
    lease = await take_lease(journal, session_id)
    try:
        known = await read_known(journal, session_id)
        turns = found.part(known)
        spans = await turn_spans(history(journal, session_id))
        prompts = {turn.prompt for turn in turns}
        numbers = {it.number for it in spans if any(it.first <= seq <= it.last for seq in prompts)}
        kept = with_numbers(await journal.snapshots.of(session_id), spans)
        await journal.snapshots.drop(session_id, [it.snapshot for it in kept if it.turn in numbers])
        gone = sorted(span for turn in turns for span in turn.spans)
        markers: list[tuple[int, int]] = []
        before = await journal.summary(session_id)
        instead = await _instead(journal, session_id, found, turns)
        for turn in turns:
            found.names.update(names_of(turn, known.turns))
        row = await journal.session(session_id)
        now = now_ms()
        past = [PastEntry(FORGOTTEN, now, msgspec.json.encode(Forgotten(sorted(found.names))))]
        change = RowChange(home=row.home)
        if gone:
            past.append(PastEntry(BACK, now, msgspec.json.encode({"left": gone})))
        # The first prompt is the title of a session that has no other, also in its markers.
        # Its agent may call it so again, from its own copy: a title that is given stays.
        if found.is_in(row.title):
            left = [turn for turn in known.turns if turn not in turns][:1]
            told = [it async for _, it in entries_of(journal, session_id, left)]
            titles = (title_of_prompt(it.raw) for it in told if it.kind == PROMPT)
            title: str | None = next(filter(None, titles), UNTITLED)
            change = replace(change, title=title, given=title)
        its_titles = {title for title in known.titles if found.is_in(title)}
        if known.marker is not None and its_titles:
            markers = known.markers
            its = sorted(known.turns, key=lambda turn: not turn.was_here)
            met = [(turn.prompt, turn.identity) for turn in its if turn.identity]
            title = None if (title := known.marker.title) in its_titles else title
            marker = replace(known.marker, seen={}, turns=met, last=None, title=title)
            marker.recognized = sum(turn.was_here for turn in its)
            past.append(PastEntry(IMPORTED, now, msgspec.json.encode(marker)))
        if gone or markers:
            after = await _left(journal, session_id, gone, dict(instead))
            # The end of a turn may have held what waits behind it.
            queue = before.queue
            if (after.queue.held, after.queue.until_ms) != (queue.held, queue.until_ms):
                hold = QueueChange("hold", why=queue.held, until=queue.until_ms)
                change_back = hold if queue.held else QueueChange("go")
                past.append(PastEntry(QUEUE, now, msgspec.json.encode(change_back)))
            # What its agent called the session in the turn, and said about it.
            was, now_is = before.attributes, after.attributes
            is_its = row.title == was.title and not (row.renamed or change.given)
            if was.title != now_is.title and is_its:
                change = replace(change, title=now_is.title)
            if was.meta != now_is.meta:
                change = replace(change, meta=now_is.meta or b"")
        await journal.take_in(lease, past, change)
        if markers or (gone and instead):
            await journal.withdraw(lease, markers, instead=instead, overwrites=True)
        async for noted in rows_of(journal, noted_in):
            for name in found.names:  # a copy that is a session of its own may have it, too
                kind = f"{FORGOTTEN} {noted.agent}" if SAID.fullmatch(name) else FORGOTTEN
                await journal.links.link(None, kind, name)
        if noted_in:  # an import may have taken it in until now
            for its_id in await relatives(journal, session_id, found):
                if its_id not in noted_in:
                    await _take_out(journal, its_id, found)
        if gone:
            await journal.withdraw(lease, gone, overwrites=True)
    finally:
        await journal.release(lease)
