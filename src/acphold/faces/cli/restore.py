"""`acphold restore`: replaces the journal with a backup."""

from __future__ import annotations

import asyncio
import os

from acphold.faces.cli.command_line import Exit, Parser, UsageError
from acphold.faces.cli.journals import opened
from acphold.faces.cli.stop import stop_all_of
from acphold.faces.cli.terminal_text import folder, visible
from acphold.journal_location import scheme_of
from acphold.record.journal import stores
from acphold.record.journal.access import held_words


def parser() -> Parser:
    """The arguments of `restore`."""
    made = Parser(restore, "restore", "[OPTIONS] FILE")
    made.add_value("path", "FILE", "the backup file")
    made.add_flag("--stop", "first stop the background agents of this journal")
    made.add_flag("--keep-access", "keep the tokens, shares and rules of the backup as they were")
    made.add_journal()
    return made


def restore(*, path: str, stop: bool, keep_access: bool, journal: str | None) -> int:
    """Replace the journal with a backup.

    The journal must not be open anywhere. --stop stops background agents, as `acphold stop` does;
    close editors and stop `acphold serve` yourself. FILE is not changed: acphold copies it, checks
    the copy, and replaces the journal if the copy is intact. The previous journal is kept beside
    it, under another name.

    Tokens, shares and rules that were revoked since the backup stay revoked. If the previous
    journal is missing, or cannot tell, all tokens and shares of the backup open nothing until you
    accept them: `acphold token keep`, or --keep-access at once. Rules wait until you have switched
    them on again: `acphold rules on`.
    """
    if scheme_of(stores.named(journal)) is not None:
        raise UsageError(
            "restore needs a journal in a file, which this one is not: restore it like your other "
            "databases, or copy a file into it with `acphold copy-journal`"
        )
    if stop and (code := asyncio.run(stop_all_of(journal))) != Exit.OK:
        return code
    # In an event loop a Ctrl-C would come only when the journal has been replaced.
    backup = os.path.abspath(os.path.expanduser(path))
    done = stores.restore(journal, backup, carries_over=not keep_access)
    words = asyncio.run(_accept(journal, all_=keep_access or done.is_known))
    print(visible(f"Restored the journal from {folder(path)}."))
    if words:
        print(f"Nobody can tell what was revoked since the backup: {words}.")
    if done.former is not None:
        former = folder(done.former)
        print(visible(f"The previous one is {former}; delete it when you no longer need it."))
    return Exit.OK


async def _accept(journal: str | None, *, all_: bool) -> str:
    """Make the tokens and shares of the restored journal good, or say that they are held."""
    async with opened(journal) as restored:
        if all_:
            await restored.access.accept()
        return await held_words(restored.access)
