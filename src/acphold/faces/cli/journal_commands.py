"""`acphold journal`: back up, restore, copy and compact the journal."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from datetime import datetime

from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import Exit, UsageError, command
from acphold.faces.cli.findings import remove_from_disk
from acphold.faces.cli.journals import file_of, short_id
from acphold.faces.cli.process_commands import stop_all_of
from acphold.faces.cli.terminal_text import (
    at_work,
    folder,
    progress_bars,
    quantity,
    say,
    size,
    tell,
)
from acphold.journal import stores
from acphold.journal.access import describe_held
from acphold.journal.copies import Became, copy_all
from acphold.journal.forgotten_texts import marks_in
from acphold.journal.stores import open_journal
from acphold.journal_location import scheme_of
from acphold.live.reading.local_reader import existing_journal


@command("journal backup", "[OPTIONS] FILE", options.JOURNAL)
async def backup(
    *,
    path: str = options.argument("FILE", "the backup file, or a folder for one named by date"),
    force: bool = options.flag("replace FILE if it exists"),
) -> None:
    """Back up the journal while sessions run.

    The copy is a snapshot of one moment. acphold checks it before it replaces FILE, and only you
    can read it. To use it, name it with --journal.
    """
    target = os.path.abspath(os.path.expanduser(path))
    if os.path.isdir(target):
        target = os.path.join(target, f"journal-{datetime.now():%Y-%m-%d-%H%M%S}.db")
    elif path.endswith("/"):
        raise UsageError(f"the folder {path} does not exist; create it or name another")
    async with existing_journal() as found:
        instead = (
            "back it up like your other databases, or copy it to a file with `acphold journal copy`"
        )
        file = file_of(found, "backup", instead)
        if os.path.exists(target) and os.path.samefile(target, file.path):
            raise UsageError(f"{path} is the journal itself; name another file")
        if os.path.exists(target) and not os.path.isfile(target):
            raise UsageError(f"{path} is not a file; choose another place")
        if os.path.lexists(target) and not force:
            raise UsageError(f"{path} already exists; choose another file or use --force")
        with at_work():
            copied = await file.copy_to(target)
    say(f"Copied the journal to {folder(target)}, {size(copied)}.")


@command("journal restore", "[OPTIONS] FILE", options.JOURNAL)
def restore(
    *,
    path: str = options.argument("FILE", "the backup file"),
    stop: bool = options.flag("first stop the daemon of this journal"),
    keep_access: bool = options.flag(
        "keep the tokens, shares and rules of the backup as they were"
    ),
) -> int:
    """Replace the journal with a backup.

    The journal must not be open anywhere. --stop stops the daemon, as `acphold agent stop`
    does; close editors and stop `acphold serve` yourself. FILE is not changed: acphold copies it,
    checks the copy, and replaces the journal if the copy is intact. The previous journal is kept
    beside it, under another name.

    Texts that `acphold forget` has removed are removed from it, too.

    Tokens, shares and rules that were revoked since the backup stay revoked. If the previous
    journal is missing, or cannot tell, all tokens and shares of the backup open nothing until you
    accept them: `acphold access keep`, or --keep-access at once. Rules wait until you have switched
    them on again: `acphold rules on`.
    """
    if scheme_of(stores.journal_name()) is not None:
        raise UsageError(
            "restore needs a journal in a file, which this one is not: restore it like your other "
            "databases, or copy a file into it with `acphold journal copy`"
        )
    if stop and (code := asyncio.run(stop_all_of())) != Exit.OK:
        return code
    # In an event loop a Ctrl-C would come only when the journal has been replaced.
    backup = os.path.abspath(os.path.expanduser(path))
    with at_work():
        done = stores.restore(backup, carries_over=not keep_access)

    async def accept() -> str:
        """Make the tokens and shares of the restored journal good, or say that they are held."""
        async with existing_journal() as restored:
            if keep_access or done.is_known:
                await restored.access.accept()
            if marks := await marks_in(restored):
                from acphold.journal.removal import blank_sessions  # late: redaction loads slowly
                from acphold.safety.redaction.forgotten import ForgottenTexts

                await blank_sessions(restored, ForgottenTexts(marks))
                await remove_from_disk(restored, now=True)
            return await describe_held(restored.access)

    words = asyncio.run(accept())
    say(f"Restored the journal from {folder(path)}.")
    if words:
        print(f"Nobody can tell what was revoked since the backup: {words}.")
    if done.former is not None:
        former = folder(done.former)
        say(f"The previous one is {former}; delete it when you no longer need it.")
    return Exit.OK


NOT_COPIED: dict[Became, str] = {
    "left": "is open, so its end was not copied",
    "differs": "differs in TO and was left unchanged there",
    "damaged": "cannot be read to its end and was left out; see `acphold doctor --deep`",
}


@command("journal copy", "FROM TO")
async def copy(
    *,
    source: str = options.argument("FROM", "the journal to copy: a path or a URL"),
    target: str = options.argument("TO", "the journal to copy to; created if missing"),
) -> int:
    """Copy all sessions into another journal.

    Use it to move from a file to a PostgreSQL database, back, or from file to file, while sessions
    run. acphold reads every copied session back and compares it. Run the command again to continue
    after an interruption, or to copy new sessions. An open session is copied up to the end of its
    last turn. Sessions that exist only in TO stay. Tokens and the audit log are not copied.

    The exit code is 1 if a session differs in TO (it is left unchanged there) or is damaged (it is
    left out); otherwise 10 if an open session could not be copied to its end.
    """
    if source == target:
        raise UsageError("FROM and TO are the same journal")
    async with (
        aclosing(open_journal(source, create=False)) as read,
        aclosing(open_journal(target)) as written,
    ):
        paths = {os.path.realpath(it.file.path) for it in (read, written) if it.file}
        if len(paths) == 1 and read.file and written.file:
            raise UsageError("FROM and TO are the same journal")
        not_copied: dict[str, str] = {}
        with progress_bars() as bars:
            task = bars.add_task("sessions", total=None)

            def note_done(session_id: str, became: Became) -> None:
                not_copied.pop(session_id, None)  # one that went on meanwhile is reported again
                if became in NOT_COPIED:
                    not_copied[session_id] = NOT_COPIED[became]
                bars.advance(task)

            try:
                became = await copy_all(
                    read, written, note_done, lambda count: bars.update(task, total=count)
                )
            except asyncio.CancelledError:
                tell("Interrupted; what was copied stays. Run the command again to continue.")
                raise
        shown = [*not_copied.items()][: bounds.UNCOPIED_SESSIONS]
        for session_id, told in shown:
            tell(f"{await short_id(read, session_id)} {told}")
        if (more := len(not_copied) - bounds.UNCOPIED_SESSIONS) > 0:
            tell(f"and {quantity(more, 'session')} more")
    new, grown, same = became["new"], became["grown"], became["same"]
    print(f"{quantity(new, 'session')} copied, {grown} brought up to date, {same} unchanged.")
    if left := became["left"]:
        print(
            f"Not copied completely: {quantity(left, 'open session')}; run the command again for "
            "the rest."
        )
    if became["differs"] or became["damaged"]:
        return Exit.ERROR
    return Exit.INCOMPLETE if left else Exit.OK


@command("journal compact", "[OPTIONS]", options.JOURNAL)
async def compact() -> None:
    """Reclaim disk space from deleted sessions.

    Deleted sessions leave free space in the file, for new ones. This command makes the file shorter
    by it, while sessions run. It also finishes what is otherwise done gradually: it packs old
    turns, and overwrites the remains of deleted sessions.
    """
    async with existing_journal() as found:
        file = file_of(found, "compact", "a database reclaims space by itself (VACUUM)")
        path, before = file.path, os.path.getsize(file.path)
        with at_work():
            await file.sweep()  # on a full disk, this makes room for the rest
            while await found.index.tidy(bounds.INDEX_STEP_SECONDS):
                pass
            given = await file.give_back()
    after = os.path.getsize(path)
    if not given:
        print(f"The journal takes {size(after)}; there is nothing to reclaim.")
    elif after >= before:  # somebody still reads it
        print(f"The file gets {size(given)} shorter as soon as running sessions let go of that.")
    else:
        print(f"The file is {size(given)} shorter now; it takes {size(after)}.")
