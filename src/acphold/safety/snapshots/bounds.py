"""Bounds of kept files: how long git may work, and how much is kept, copied and sent."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# Time.

SNAPSHOT_SECONDS: Final = 60.0
"""Seconds that taking a snapshot may last."""

LAYING_OUT_SECONDS: Final = 600.0
"""Seconds that laying out may take."""

INCLUDING_SECONDS: Final = 60.0
"""Seconds that finding the ignored files may take that are copied as well."""

COMPARISON_SECONDS: Final = 60.0
"""Seconds that a comparison, or reading a file, may take."""

PACK_SECONDS: Final = 300.0
"""Seconds that making or reading a pack may take."""

PROJECTS_SECONDS: Final = 20.0
"""Seconds that looking at repositories may take."""

UNNAMED_SECONDS: Final = 3600.0
"""Seconds in which the journal has to name a snapshot."""

LOCK_PAUSE_SECONDS: Final = 0.01
"""Seconds before a lock is tried again."""

TRIES: Final = 3
"""Attempts at a snapshot while files change."""

NICENESS: Final = 5
"""The priority of git where nobody waits for it; 19 is the lowest."""

LOWEST_NICENESS: Final = 19
"""The priority of git while it reads or packs a whole project."""

REFUSALS: Final = 2
"""After this many refusals in a row because of its content, a folder is left alone."""

GIVEN_UP_SECONDS: Final = 24 * 3600.0
"""Seconds for which it is, unless what it ignores or its index changes."""

FOLDERS_SECONDS: Final = 5.0
"""Seconds that looking at the folders of a work tree may take, apart from git."""

# What is read of a repository.

REFERENCES_BYTES: Final = 16 << 20
"""Largest file that is read of a repository: a list of its references."""

COMING_COMMITS: Final = 200
"""Commits of a branch that are listed before it is merged."""

PERSONAL_BYTES: Final = 1 << 20
"""Largest file of a person's configuration of git that is looked at."""

FOLDERS: Final = 100_000
"""Folders of a work tree that are remembered; of one with more none are."""

FOLDERS_BYTES: Final = 64 << 20
"""Largest file of what is remembered of them."""

FILES_LOOKED_AT: Final = 500
"""Files up to which looking at each is quicker than starting git."""

IGNORED_BYTES: Final = 1 << 20
"""Largest file of ignored names beside those in the folders."""

PATH_BYTES: Final = 8 << 10
"""Largest file that is read for the path of a folder."""

TEXT_BYTES: Final = 16 << 20
"""Longer files are not read as text."""

PROJECTS: Final = 50
"""Repositories that are looked at."""

PROJECT_MARKS: Final = 20
"""First commits and remotes of one project that are told."""

# What is kept, copied and taken.

LOOSE_OBJECTS: Final = 3_000
"""Small files in a store, at most about that many, before its upkeep is due."""

GROWN_BYTES: Final = 32 << 20
"""Bytes that are written into a store before its size is measured again."""

LEFT_OUT_NAMES: Final = 100
"""Names of left-out files that are kept; of the others only their number."""

ABSENT_NAMES: Final = 1000
"""Names without a file that are looked for at each snapshot; more, as in a sparse checkout, only
when the project's index changes."""

FILES_AT_FIRST: Final = 500
"""New files that git reads at first: what it has read stays if it is interrupted. The next call may
read twice as many."""

STEP_SECONDS: Final = 0.3
"""Seconds of a call after which the next one reads no more than that."""

FILES_AT_ONCE: Final = 5_000
"""Most new files that git reads at once: it compares each with all others of one call."""

UNFINISHED_SECONDS: Final = 30 * 24 * 3600.0
"""Seconds for which a first snapshot that was interrupted waits to be continued."""

LOOSE_FILES: Final = 200
"""New files up to which git writes a file for each; of more it writes one pack."""

CHANGED_FILES: Final = 64
"""Changed files up to which they are read without git, which writes its whole index for them."""

CHANGED_BYTES: Final = 2 << 20
"""Most bytes of these files."""

SETTLED_NS: Final = (100_000_000, 2_000_000_000)
"""A file that was changed less than so many ns before it was read is read again the next time, as
its times may not show a change in the same moment: on a disk that counts fractions of a second, and
on others."""

INCLUDED_FILES: Final = 10_000
"""Most ignored files that are copied."""

INCLUDED_BYTES: Final = 500 << 20
"""Most bytes of the ignored files that are copied."""

INCLUDE_LIST_BYTES: Final = 64 << 10
"""Most bytes that are read of the list of ignored files to copy."""


class SnapshotLimits(Struct, frozen=True):
    """Limits, in bytes and files: of one untracked and one tracked file, of all tracked files, of
    new files in one snapshot and their bytes, of a store, and of what has to stay free on the
    disk."""

    untracked_file: int = 5 << 20
    tracked_file: int = 50 << 20
    tracked_files: int = 500_000
    new_files: int = 20_000
    new_bytes: int = 500 << 20
    store: int = 2 << 30
    free: int = 2 << 30


SNAPSHOT_LIMITS: Final = SnapshotLimits()


class PackLimits(Struct, frozen=True):
    """Limits of a stranger's pack: its own bytes, and the files and bytes of its snapshot."""

    pack: int = 256 << 20
    files: int = 200_000
    size: int = 2 << 30


WORK_TREES: Final = 100
"""Most work trees of a repository that are looked at."""

PACK_LIMITS: Final = PackLimits()
