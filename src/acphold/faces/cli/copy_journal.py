"""`acphold copy-journal`: copies all sessions of a journal into another one, of any store."""

from __future__ import annotations

import os
import sys
from contextlib import aclosing

from acphold.faces.cli import bounds
from acphold.faces.cli.command_line import Exit, Parser, UsageError
from acphold.faces.cli.terminal_text import counted, progress_bars, visible
from acphold.record.journal.stores import open_journal
from acphold.record.journal.whole_copy import Became, copy_all

NOT_COPIED: dict[Became, str] = {
    "left": "is open, so its end was not copied",
    "differs": "differs in TO and was left unchanged there",
    "damaged": "cannot be read to its end and was left out; see `acphold doctor --deep`",
}


def parser() -> Parser:
    """The arguments of `copy-journal`."""
    made = Parser(copy_journal, "copy-journal", "FROM TO")
    made.add_value("source", "FROM", "the journal to copy: a path or a URL")
    made.add_value("target", "TO", "the journal to copy to; created if missing")
    return made


async def copy_journal(*, source: str, target: str) -> int:
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
        progress = _CopyProgress()
        with progress.bar:
            became = await copy_all(read, written, progress.told, progress.expect)
        for session_id, told in [*progress.not_copied.items()][: bounds.UNCOPIED_SESSIONS]:
            print(visible(f"{session_id} {told}"), file=sys.stderr)
        if (more := len(progress.not_copied) - bounds.UNCOPIED_SESSIONS) > 0:
            print(f"and {counted(more, 'session')} more", file=sys.stderr)
    new, grown, same = became["new"], became["grown"], became["same"]
    print(f"{counted(new, 'session')} copied, {grown} brought up to date, {same} unchanged.")
    if left := became["left"]:
        print(
            f"Not copied completely: {counted(left, 'open session')}; run the command again for "
            "the rest."
        )
    if became["differs"] or became["damaged"]:
        return Exit.ERROR
    return Exit.INCOMPLETE if left else Exit.OK


class _CopyProgress:
    """A bar on a terminal; also keeps why sessions were not copied."""

    def __init__(self) -> None:
        self.not_copied: dict[str, str] = {}
        self.bar = progress_bars()
        self._task = self.bar.add_task("sessions", total=None)

    def expect(self, sessions: int) -> None:
        """Expect this many sessions."""
        self.bar.update(self._task, total=sessions)

    def told(self, session_id: str, became: Became) -> None:
        """Note that one session is done."""
        self.not_copied.pop(session_id, None)  # one that went on meanwhile is reported again
        if became in NOT_COPIED:
            self.not_copied[session_id] = NOT_COPIED[became]
        self.bar.advance(self._task)
