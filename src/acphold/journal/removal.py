"""Removal of a text, such as a pasted secret, from all sessions: `acphold forget`.

The journal gets a mark of the text first: whatever is taken in from then on comes without it, and a
removal that is cut off is finished by the next one. Sessions that are open somewhere are left, and
named. See `safety.redaction.forgotten`.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from acphold.conversation.history.entries import FORGOTTEN_TEXT, Entry
from acphold.conversation.history.message_chunks import Messages
from acphold.errors import HeldElsewhereError, TranscriptError, UnknownSessionError
from acphold.journal.forgotten_texts import marks_in
from acphold.journal.journal import Journal, history, take_lease
from acphold.journal.rows import ListFilter, ListKey, RowChange, SessionRow
from acphold.safety.errors import OutOfStepsError
from acphold.safety.redaction.forgotten import KIND, Blanking, ForgottenTexts, mark_of

ROWS_AT_ONCE = 500


async def note(journal: Journal, text: str) -> ForgottenTexts:
    """Note for all time that a text is to be nowhere, and return what finds it."""
    for mark in await marks_in(journal):
        if any((texts := ForgottenTexts([mark])).find(text)):
            break
    else:
        mark = mark_of(text)
        await journal.links.link(None, FORGOTTEN_TEXT, mark)
        texts = ForgottenTexts([mark])
    texts.add(text, KIND)  # its beginning, where another text was cut
    return texts


class BlankedSessions(Struct):
    """The outcome: the number of sessions that had a text, and of their entries, titles and tags;
    those that are `left` may have it still, with the reasons."""

    sessions: int = 0
    places: int = 0
    left: dict[str, str] = {}


async def blank_sessions(journal: Journal, texts: ForgottenTexts) -> BlankedSessions:
    """Take texts out of all sessions, of whatever tenant: of their entries, which have the prompts
    that wait, their titles and tags, and the index."""
    done = BlankedSessions()
    after: ListKey | None = None
    everything = ListFilter(include_unprompted=True, archived="include")
    while rows := await journal.page(everything, after, ROWS_AT_ONCE):
        for row in rows:
            try:
                if places := await _blank_session(journal, row, texts):
                    done.sessions += 1
                    done.places += places
            except HeldElsewhereError:
                done.left[row.session_id] = "it is open"
            except (OutOfStepsError, TranscriptError) as error:
                done.left[row.session_id] = str(error)
            except UnknownSessionError:
                continue  # it was deleted meanwhile
        after = rows[-1].key
    await journal.index.catch_up(1)
    return done


async def _blank_session(journal: Journal, row: SessionRow, texts: ForgottenTexts) -> int:
    """Return the number of places in which a session had the texts."""
    if row.unread is not None and any(texts.find(row.unread.decode(errors="replace"))):
        await journal.complete(row.session_id)  # its source is noted in the row until then
    if not (_row_change(row, texts)[1] or await _found(journal, row.session_id, texts)):
        return 0
    lease = await take_lease(journal, row.session_id)
    try:
        await journal.settle(lease, lease.next_seq - 1)
        change, count = _row_change(await journal.session(row.session_id), texts)
        if count:
            await journal.change(lease, change)
        instead = await _found(journal, row.session_id, texts)
        # Also for a title alone: what was read together with it has it, too.
        await journal.withdraw(lease, [], instead=instead, overwrites=True)
    finally:
        await journal.release(lease)
    return len(instead) + count


async def _found(
    journal: Journal, session_id: str, texts: ForgottenTexts
) -> list[tuple[int, bytes]]:
    """Return the entries that have one of the texts, with what comes in their place."""
    blanking = Blanking(texts, Messages)
    async for segment in history(journal, session_id):
        for entry in segment.entries():
            blanking.look(entry)
    blanking.is_done()
    found: list[tuple[int, bytes]] = []
    place = 0
    if not blanking.places:
        return found
    async for segment in history(journal, session_id):
        for entry in segment.entries():
            if place in blanking.places and entry.raw:
                found.append((entry.seq, blanking.redact(place, entry) or b"{}"))
            place += 1
    return found


def _row_change(row: SessionRow, texts: ForgottenTexts) -> tuple[RowChange, int]:
    """Return the change of a row that has the texts, and the number of places in it. Its agent may
    give it the old title again, from its own copy: the new one stays as if a person had."""
    blanking = Blanking(texts)
    change, count = RowChange(), 0
    if row.title and (title := blanking.blank(row.title)) != row.title:
        change, count = RowChange(title=title, given=title), 1
    if (tags := tuple(map(blanking.blank, row.tags))) != row.tags:
        change, count = replace(change, tags=tags), count + 1
    if row.meta and (meta := blanking.blank_record(Entry(0, "", 0, row.meta))) is not None:
        change, count = replace(change, meta=meta), count + 1
    return change, count
