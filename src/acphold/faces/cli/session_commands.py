"""`acphold session`: rename, tag, pin, archive, delete and prune sessions."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import MsgspecError, Struct, json

from acp_wire.state_folder import state_folder, write_private
from acphold.conversation.history.entries import now_ms
from acphold.errors import AmbiguousIdError, JournalUnavailableError, UnknownSessionError
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import Exit, UsageError, command, confirm
from acphold.faces.cli.findings import remove_from_disk
from acphold.faces.cli.front import daemon_address, daemon_lock, journal_of
from acphold.faces.cli.journals import sessions, sessions_here, short_id
from acphold.faces.cli.places import NEWEST, find_session
from acphold.faces.cli.settings import agent_keys
from acphold.faces.cli.terminal_text import (
    age,
    at_work,
    on_one_line,
    quantity,
    tell,
    titled,
)
from acphold.journal.journal import Journal, other_owner, tails_of
from acphold.journal.rows import ListFilter, ListKey, Marks, RowChange, SessionRow, as_tags
from acphold.live.hub.annotations import as_title
from acphold.live.reading.listed_sessions import SHORT_ID
from acphold.live.reading.local_reader import existing_journal
from acphold.live.reading.one_question import telling_owners
from acphold.machine.addresses import unix_address


@command("session rename", "[OPTIONS] ID TITLE...", options.JOURNAL)
async def rename(
    *,
    session_id: str = options.SESSION,
    words: list[str] = options.argument(
        "TITLE", "the new title, quoted or not", nargs="+", type=options.a_text
    ),
) -> int:
    """Rename a session.

    Your title stays, whatever the agent calls the session later. ID may be any unique prefix. A
    running session keeps running, and everybody who has it open sees the new title.
    """
    title = as_title(" ".join(words))
    if title is None:
        raise UsageError("a title needs at least one letter or digit")
    async with sessions_here() as (reader, found):
        row = await find_session(reader, session_id, "renames it")
        await _change(found, [row.session_id], RowChange(given=title))
    print(f"{titled(row.title)}\n  is now {on_one_line(title)}")
    return Exit.OK


async def put_title_back(before: SessionRow) -> None:
    """Give a session the title that it had."""
    change = RowChange(given=None, title=before.title)
    if before.renamed:
        change = RowChange(given=before.title)
    async with existing_journal() as kept:
        await _change(kept, [before.session_id], change)


async def _change(journal: Journal, session_ids: Collection[str], change: RowChange) -> None:
    """Change the rows of sessions, and tell who has them; about one that is live nowhere the
    daemon, whose agent may have it in a list of its own."""
    daemon = daemon_address(daemon_lock(journal_of(())))
    otherwise = [unix_address(daemon)] if daemon else []
    telling = telling_owners(journal, session_ids, archived=change.archived, otherwise=otherwise)
    async with telling:
        for session_id in session_ids:
            await journal.change(session_id, change)


@command("session tag", "[OPTIONS] ID... TAG...", options.JOURNAL)
async def tag(
    *,
    session_id: str = options.SESSION,
    words: list[str] = options.argument("TAG", "words, with or without #", nargs="+"),
    remove: bool = options.flag("take these tags away"),
) -> int:
    """Tag sessions.

    `acphold list '#TAG'` and the searches of the picker and the page find them. Editors see tags in
    the list of sessions. A TAG that could be an ID is written with its #, in quotes. All words
    before the last ID are IDs; of those that cannot be tagged, the others are.
    """
    refused: list[str] = []
    async with sessions_here() as (reader, found):
        ids = [n for n, it in enumerate(words[:-1], 1) if await _is_session(found, it)]
        of, tags = words[: max(ids, default=0)], words[max(ids, default=0) :]
        try:
            given = as_tags(tags)
        except ValueError as exc:
            raise UsageError(str(exc)) from None
        marks = Marks(removed=given) if remove else Marks(added=given)
        for word in (session_id, *of):
            try:
                row = await find_session(reader, word, "tags it")
                now = (await found.mark(row.session_id, marks)).tags
            except (UnknownSessionError, AmbiguousIdError) as error:
                refused.append(str(error))
            except ValueError as error:
                refused.append(f"{on_one_line(word)}: {error}")
            else:
                shown = " ".join(f"#{it}" for it in now or ())
                print(f"{titled(row.title)}\n  {shown or 'has no tags'}")
    for why in refused:
        tell(f"acphold: {why}")
    return Exit.ERROR if refused else Exit.OK


async def _is_session(found: Journal, word: str) -> bool:
    """Return True if a session's id begins with this word, as long as those in a list."""
    if len(word) >= SHORT_ID:
        with suppress(UnknownSessionError, AmbiguousIdError):
            return bool(await found.resolve(word))
    return False


async def tag_all(session_ids: Sequence[str], words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Give sessions these tags, or take those with - before them away; return the tags that each
    of those changed had. What was refused is said."""
    before: dict[str, tuple[str, ...]] = {}
    try:
        marks = Marks(
            added=as_tags(word for word in words if not word.startswith("-")),
            removed=as_tags(word[1:] for word in words if word.startswith("-")),
        )
        async with existing_journal() as kept:
            for session_id in session_ids:
                had = (await kept.session(session_id)).tags
                try:
                    await kept.mark(session_id, marks)
                except ValueError as exc:
                    tell(str(exc))
                else:
                    before[session_id] = had
    except ValueError as exc:
        tell(str(exc))
    return before


async def put_back(before: Mapping[str, tuple[str, ...]]) -> None:
    """Give sessions the tags that they had."""
    async with existing_journal() as kept:
        for session_id, tags in before.items():
            await kept.mark(session_id, Marks(tags))


@command("session pin", "[OPTIONS] ID...", options.JOURNAL)
async def pin(
    *,
    session_ids: list[str] = options.SESSIONS,
    undo: bool = options.flag("take them down again"),
) -> int:
    """Keep sessions on top of your lists: of the picker and of the page."""
    async with sessions_here() as (reader, _):
        does = "takes it down" if undo else "pins it"
        rows = [await find_session(reader, it, does) for it in session_ids]
    await pin_all([row.session_id for row in rows], pinned=not undo)
    print(f"{'Took down' if undo else 'Pinned'} {quantity(len(rows), 'session')}.")
    return Exit.OK


async def pin_all(
    session_ids: Sequence[str], *, pinned: bool | None = None
) -> tuple[list[str], bool]:
    """Pin sessions, or take them down; without `pinned`, down if all are pinned. Return those that
    this changed, and if they are pinned now."""
    async with existing_journal() as kept:
        before = {it: Marks().person in (await kept.session(it)).pins for it in session_ids}
        if pinned is None:
            pinned = not all(before.values())
        changed = [it for it, was_pinned in before.items() if was_pinned is not pinned]
        for session_id in changed:
            await kept.mark(session_id, Marks(pinned=pinned))
    return changed, pinned


@command("session archive", "[OPTIONS] ID...", options.JOURNAL)
async def archive(
    *,
    session_ids: list[str] = options.SESSIONS,
    undo: bool = options.flag("show archived sessions in the list again"),
) -> int:
    """Hide sessions from the list.

    An archived session appears in no list, here or in an editor, until `session archive --undo` or
    its next prompt restores it. Nothing is lost: `list --archived` shows it, and `show`, `search`
    and an editor that knows its id still find it. Clients that have it open are not affected. If
    one of the IDs matches no session or several, nothing changes. With --undo, `-` stands for those
    that you archived last, here or in the picker, whatever their folder.
    """
    async with sessions_here() as (reader, kept):
        does, rows = "restores it" if undo else "archives it", list[SessionRow]()
        for given in session_ids:
            last = await _archived_last(kept) if undo and given in NEWEST else []
            rows += last or [await find_session(reader, given, does, archived=undo)]
    found = {row.session_id: row for row in rows if row.archived is undo}
    await archive_all(found, undo=undo)
    if found:
        some = quantity(len(found), "session")
        print(f"Restored {some} to the list." if undo else f"Archived {some}.")
        for row in found.values() if undo and set(session_ids) & set(NEWEST) else ():
            print(f"  {titled(row.title)}")
    if others := len({row.session_id for row in rows} - found.keys()):
        state = "not archived" if undo else "already archived"
        print(f"{quantity(others, 'session')} {'was' if others == 1 else 'were'} {state}.")
    return Exit.OK


class _LastArchived(Struct):
    """The sessions of a journal that were archived together last; a file in the state folder."""

    journal: str
    session_ids: Sequence[str]


def _last_file() -> str:
    return os.path.join(state_folder(), "archived.json")


async def _archived_last(kept: Journal) -> list[SessionRow]:
    """Return those that were archived last and still are."""
    rows: list[SessionRow] = []
    with suppress(OSError, MsgspecError, UnicodeError):
        last = json.decode(Path(_last_file()).read_bytes(), type=_LastArchived)
        if last.journal == (await kept.identity()).mark:
            for session_id in last.session_ids:
                with suppress(UnknownSessionError):
                    rows.append(await kept.session(session_id))
    return [row for row in rows if row.archived]


async def archive_all(session_ids: Collection[str], *, undo: bool) -> None:
    """Archive sessions, or restore them."""
    async with existing_journal() as kept:
        if session_ids and not undo:  # before all else, which may be interrupted
            last = _LastArchived((await kept.identity()).mark, [*session_ids])
            with suppress(OSError):
                write_private(_last_file(), json.encode(last))
        # If one is live, its next prompt has to bring it back, however soon it comes.
        await _change(kept, session_ids, RowChange(archived=not undo))


@command("session delete", "[OPTIONS] ID...", options.JOURNAL)
async def delete(
    *,
    session_ids: list[str] = options.SESSIONS,
    sure: bool = options.SURE,
    now: bool = options.OVERWRITTEN_NOW,
) -> int:
    """Delete sessions permanently.

    Each ID can be any unique prefix; if one matches no session or several, nothing is deleted. The
    conversation is removed from the journal, from lists and from the search index. The agent's own
    copy stays on disk; `acphold import --session ID` brings that back. Clients that have the
    session open are notified, and a running turn ends with an error. If a session has a work tree
    that acphold has made, you are asked if that goes, too, with its branch; with --yes it stays.
    """
    from acphold.faces.cli.trees import ask_about_trees  # late: it brings git
    from acphold.live.hub.session_trees import trees_of

    async with sessions_here() as (reader, kept):
        found = {
            (row := await find_session(reader, given, "deletes it")).session_id: row
            for given in session_ids
        }
        for row in found.values():
            owner = await other_owner(kept, row.session_id)
            more = "" if owner is None else f"\n  it is running in {on_one_line(str(owner))}"
            short = await short_id(kept, row.session_id)
            tell(f"{_about(row, short)}{more}")
        trees = await trees_of(kept, [*found.values()])
    if not confirm(f"Delete {quantity(len(found), 'session')}?", "deleted", sure=sure):
        return Exit.ERROR
    async with existing_journal() as kept:
        async with _telling_deleted(kept, found), telling_owners(kept, found):
            for session_id in found:
                await kept.delete(session_id, *await tails_of(kept, session_id))
        await remove_from_disk(kept, now=now)
    print(f"Deleted {quantity(len(found), 'session')}.")
    if sys.stdout.isatty():
        its = on_one_line(short) if len(found) == 1 else "ID"
        print(f"`acphold import --session {its}` brings back what its agent's own file still has.")
    ask_about_trees(trees, sure=sure)
    return Exit.OK


def _about(row: SessionRow, short: str) -> str:
    """Return two lines about a session with this `short` id."""
    facts = f"{quantity(row.message_count, 'message')}, {age(row.updated_at, now_ms())}"
    return f"{titled(row.title)}\n  {on_one_line(short)}  {facts}"


@command("session prune", "[OPTIONS]", options.JOURNAL)
async def prune(
    *,
    older_than: int | None = options.value(
        "WHEN", "sessions last active before 2026-01-31, or 12h, 30d, 8w ago"
    ),
    keep: int | None = options.value("N", "keep the newest N of the selected sessions"),
    agent: str | None = options.value("NAME", "only sessions of this agent"),
    cwd: str | None = options.CWD,
    archived: bool = options.flag("include archived sessions"),
    dry_run: bool = options.flag("only print what would be deleted"),
    sure: bool = options.SURE,
    now: bool = options.OVERWRITTEN_NOW,
) -> int:
    """Delete old sessions permanently.

    Nothing is ever pruned automatically. With both --older-than and --keep, a session is deleted if
    it is old and not among the newest. Open sessions are kept, and so are sessions that are used
    while you answer. Pruned sessions are deleted as by `session delete`: neither `import` nor the
    agent's own list brings them back.
    """
    if older_than is None and keep is None:
        raise UsageError("choose sessions with --older-than 90d, --keep 500, or both")
    filter = ListFilter(
        agents=agent_keys(agent),
        cwd=cwd,
        # Sessions that were never prompted may be old, but never count among the newest N.
        include_unprompted=older_than is not None,
        archived="include" if archived else "exclude",
    )
    found, spared = list[SessionRow](), 0
    async with existing_journal() as journal:
        before = now_ms() if older_than is None else min(now_ms(), older_than)
        before += journal.now_ms() - now_ms()  # by its clock
        behind = None if keep else ListKey(before, "")  # of newer ones, only the kept are counted
        async for row in sessions(journal, filter, behind):
            if row.prompted and spared < (keep or 0):
                spared += 1
            elif row.updated_at < before:
                found.append(row)
        kept = await journal.owned([row.session_id for row in found])
        found = [row for row in found if row.session_id not in kept]
        short_ids = await journal.short_ids([row.session_id for row in found], SHORT_ID)
    stream = sys.stdout if dry_run else sys.stderr  # before a question
    most = len(found) if dry_run else bounds.PRUNED_SESSIONS
    for row, short in zip(found[:most], short_ids, strict=False):
        print(_about(row, short), file=stream)
    if (more := len(found) - most) > 0:
        print(f"and {quantity(more, 'more session')}", file=stream)
    if not found:
        print("There is nothing to delete.", file=stream)
        return Exit.OK
    if dry_run:
        print(f"{quantity(len(found), 'session')} would be deleted.", file=stream)
        return Exit.OK
    if not confirm(f"Delete {quantity(len(found), 'session')}?", "deleted", sure=sure):
        return Exit.ERROR
    with at_work():
        async with existing_journal() as journal:
            chosen = [row.session_id for row in found]
            async with _telling_deleted(journal, chosen):
                gone = len(await journal.delete(*chosen, idle_since=before))
            await remove_from_disk(journal, now=now)
    print(f"Deleted {quantity(gone, 'session')}.")
    if stayed := len(found) - gone:
        print(f"Kept {quantity(stayed, 'session')}: open, or used in the meantime.")
    return Exit.OK


@asynccontextmanager
async def _telling_deleted(journal: Journal, chosen: Collection[str]) -> AsyncIterator[None]:
    """Let an error in the block say how many of several sessions are deleted."""
    try:
        yield
    except JournalUnavailableError as error:
        if len(chosen) == 1:
            raise
        # Reading works even on a full disk, and shows which.
        everything = ListFilter(include_unprompted=True, archived="include")
        left = {row.session_id async for row in sessions(journal, everything)}
        gone = sum(session_id not in left for session_id in chosen)
        its = f"{gone} of {quantity(len(chosen), 'session')} were deleted before that"
        if gone:
            its += "; `acphold journal compact` overwrites their remaining data"
        raise JournalUnavailableError(f"{error}; {its}") from error
