"""The lineage of a session: the mark by which a position is known to be of this history.

A position is the number of an entry, and numbers come again. A journal may go back: a standby that
lagged takes over, somebody puts a backup in its place, the power fails before SQLite's log was on
the disk. Then other entries get the numbers of those that were lost, and a client that was told the
lost ones would be sent the rest, with a gap that nobody sees. So positions travel with the lineage
of their session, and one of another lineage is refused.

A lineage is the *era* of the journal, and the number of the session, which no other session of that
era has. The era is renewed when the journal may have gone back since it began. Nobody need tell
that to the journal: with the era stands *where* it holds, which is another one then. For SQLite
that is the boot of the machine (a killed process loses nothing, the power does) and the inode of
the file (an earlier copy under the same one shows by `sqlite/file_notes.py`); a backup has no era.
For PostgreSQL it is the start of the server (a standby that is promoted was started by itself, and
so was a server with a backup) and the file of a table, which is another one in a dump that was put
back. A restart that lost nothing looks no different from a server whose files were put back from a
copy: neither its identifier nor its timeline changes with that. This errs to one side alone: after
a clean restart, too, a client has to load its session once.

Who looks is whoever becomes the owner of a session, in the same transaction; an append costs
nothing more. While an owner lives it vouches for what it has told: it appends only behind the entry
that it believes to be the last one (`Entries.append`), and where that is gone, it writes it again
or gives the session up and renews the era.
"""

from __future__ import annotations

import os


def new_era() -> str:
    """The mark of an era that begins."""
    return os.urandom(6).hex()


def lineage_of(era: str, number: int) -> str:
    """That of the session which has this number in a journal."""
    return f"{era}.{number:x}"
