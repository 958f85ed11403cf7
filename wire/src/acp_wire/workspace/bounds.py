"""The bounds of files and terminals that somebody might tune: times, sizes and counts."""

from __future__ import annotations

from typing import Final

# -- files ----------------------------------------------------------------------------------------

MAX_READ: Final = 10 * 1024 * 1024
"""Bytes of text returned at once: as JSON, whatever they contain, they fit one message."""

PIECE_BYTES: Final = 256 * 1024
"""Bytes read between two checkpoints."""

WRITTEN_BYTES: Final = 1024 * 1024
"""Bytes written between two checkpoints."""

FILES_AT_ONCE: Final = 8
"""Files of one session that are read or written at the same time."""

ABANDON_SECONDS: Final = 1.0
"""Seconds that a cancelled call waits for its thread to notice."""

SPARE_THREAD_SECONDS: Final = 5.0
"""Seconds that a thread without work waits for more."""

# -- terminals ------------------------------------------------------------------------------------

DEFAULT_OUTPUT: Final = 1024 * 1024
"""Bytes of output kept if the request sets no limit."""

MAX_OUTPUT: Final = 10 * 1024 * 1024
"""Bytes kept at most: as JSON, whatever they contain, they fit one message."""

SLACK_BYTES: Final = 64 * 1024
"""Bytes kept beyond an output's limit, so that not every new piece moves all of the rest."""

MAX_TERMINALS: Final = 256
"""Unreleased terminals of one session."""

TERMINALS_AT_ONCE: Final = 64
"""Terminals that are started or ended at the same time."""

START_SECONDS: Final = 2.0
"""Seconds that closing waits for a start in progress, which a disk may block for ever."""
