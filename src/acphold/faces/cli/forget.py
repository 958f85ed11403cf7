"""`acphold forget`: removes a text, such as a pasted secret, wherever it stands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from getpass import getpass
from glob import escape
from pathlib import Path

from acp_wire.workspace.regular_files import contents
from acphold.faces.cli import bounds, options
from acphold.faces.cli.command_line import Exit, UsageError, command, confirm
from acphold.faces.cli.findings import remove_from_disk
from acphold.faces.cli.journals import short_id
from acphold.faces.cli.terminal_text import at_work, folder, on_one_line, quantity, tell
from acphold.journal_location import belongings, default_location
from acphold.live.reading.local_reader import existing_journal


@command("forget", "[OPTIONS]", options.JOURNAL)
async def forget(*, sure: bool = options.SURE) -> int:
    """Remove a text, such as a pasted secret, from all sessions for good.

    It asks for the text, or reads it from a pipe. The text is replaced by a note wherever it
    stands, also encoded as JSON, base64, hexadecimal, for URLs, HTML or a shell: in messages and
    tool calls, titles, queued prompts, the search index, the kept files, and what Up offers in
    `chat` on this machine. Later imports, copies and restored backups come without it: the journal
    keeps its length and a salted digest. Files of agents, logs and replaced journals that have it
    are named.

    Sessions that are open are left and named: run it again when they are closed. Backups and
    exports have it still; rules, browsers, an open chat and other machines may.
    """
    from acphold import imports  # late: each takes long to load
    from acphold.faces.screen.typed import prompt_history
    from acphold.journal.removal import blank_sessions, note
    from acphold.live.hub.kept_stores import rewrite_files
    from acphold.safety.redaction.forgotten import LONGEST, Blanking
    from acphold.safety.redaction.known import SHORTEST, ways_to_write

    text = _read_text()
    if len(text) < SHORTEST:
        raise UsageError(f"a text of fewer than {SHORTEST} characters is part of many others")
    if len(text) > LONGEST:
        raise UsageError(f"a text has at most {LONGEST:,} characters")
    if not confirm(f"Remove these {len(text)} characters everywhere?", "removed", sure=sure):
        return Exit.ERROR
    with at_work():
        async with existing_journal() as journal:
            texts = await note(journal, text)
            with suppress(OSError):
                prompt_history().forget(lambda typed: any(texts.find(typed)))
            done = await blank_sessions(journal, texts)
            snapshots, unsearched = await rewrite_files(journal, Blanking(texts).blank_file)
            await remove_from_disk(journal, now=True)
            left = [(await short_id(journal, its), why) for its, why in done.left.items()]
    where = f"{quantity(done.places, 'place')} in {quantity(done.sessions, 'session')}"
    print(f"Removed it from {where}, and from {quantity(snapshots, 'snapshot')} of files.")
    for its_id, why in left:
        why = why if why != "it is open" else "it is open; close it or run `acphold agent stop`"
        tell(f"{on_one_line(its_id)} still has it: {on_one_line(why)}, then run this again")
    for line in unsearched:
        tell(f"Kept files that were not searched may have it: {on_one_line(folder(line))}")
    ways = sorted({way.encode(errors="surrogatepass") for way in ways_to_write(text)})
    home = imports.Home(Path.home(), dict(os.environ))
    for line in imports.files_with(home, lambda told: any(texts.find(told)), ways):
        tell(on_one_line(line))
    for line in _beside(ways):
        tell(on_one_line(line))
    tell("Other files of agents, and rules, backups, exports, browsers, notifications, an open")
    tell("chat and other machines may have it.")
    return Exit.INCOMPLETE if left or unsearched else Exit.OK


def _read_text() -> str:
    """Return the text that a person types unseen, or a pipe brings."""
    if sys.stdin.isatty():
        return getpass("The text to remove (it is not shown): ")
    return sys.stdin.read(1 << 16).removesuffix("\n")


def _beside(ways: list[bytes]) -> Iterator[str]:
    """Yield a sentence about each log that has the text, and each journal that was replaced."""
    for log in Path(belongings(default_location())).glob("*.log*"):
        try:
            found = contents(log, bounds.SEARCHED_LOG_BYTES)
            if any(way in found for way in ways):
                yield f"A log has it: {folder(str(log))}"
        except FileNotFoundError:  # it was rotated meanwhile
            continue
        except OSError as error:
            yield f"A log may have it: {folder(str(log))}; it cannot be read: {error.strerror}"
    journal = Path(default_location())
    for former in sorted(journal.parent.glob(f"{escape(journal.name)}-before-*[0-9]")):
        yield f"A journal replaced by a restore may still have it: {folder(str(former))}"
