"""The waits and sizes that keep the screen quick, in one place."""

from __future__ import annotations

# -- drawing ------------------------------------------------------------------------------------

REDRAW_SECONDS = 0.05
"""Seconds between two drawings of a stream: quick for the eye, and little load for a slow line.

Keys are read in between.
"""

TICK_SECONDS = 0.2
"""Seconds between two drawings while a turn runs without updates, to count its seconds."""

FRAME_LETTERS = 16 * 1024
"""Characters laid out and printed in one drawing, which takes a tenth of a second.

Typed keys are then handled within that time, however much arrives at once.
"""

LAST_LETTERS = 64 * 1024
"""Most characters printed at the end, so that it ends soon."""

PIECE_LETTERS = 8192
"""Characters of a block before it is printed in pieces: more than a terminal shows.

Laying out that much takes a tenth of a second for coloured code.
"""

LIVE_LETTERS = PIECE_LETTERS
"""Characters laid out of the end of an unfinished passage: more than a terminal shows.

Laying out a megabyte of code takes ten seconds, and would happen at each drawing.
"""

LIVE_TOOLS = 100
"""Running tool calls that are laid out, the newest ones: more than a terminal shows."""

COLOURED_LETTERS = 50_000
"""Longest coloured block of code, in characters; a megabyte takes five seconds."""

KEPT_CALLS_BYTES = 1 << 20
"""Bytes of tool calls, the newest ones, that are kept to be opened whole."""

# -- the terminal and its keys ------------------------------------------------------------------

BACKGROUND_SECONDS = 0.2
"""Seconds a terminal has to answer; a remote one may take that long. No answer means dark."""

PASTE_SECONDS = 0.1
"""Seconds between two lines of a paste: nobody types one in so short a time."""

QUESTION_SEEN_SECONDS = 0.5
"""Seconds a question is on screen before typed keys can be meant for it.

Nobody reads one and reaches for a key in less.
"""

HINT_SECONDS = 5.0
"""Seconds that a hint is shown, and that a key pressed a second time leaves the chat."""

LONG_TURN_SECONDS = 10.0
"""Seconds after which a finished turn rings the bell: the person may be doing something else."""

# -- checks where there is no event -------------------------------------------------------------

READER_LOOK_SECONDS = 0.5
"""Seconds between two checks that somebody still reads the output: there is no event for it."""

STDERR_LOOK_SECONDS = 0.5
"""Seconds between two reads of the agent's stderr during a sign-in."""

TURN_LOOK_SECONDS = 1.0
"""Seconds between two checks whether another client's turn still runs."""

CLIENTS_LOOK_SECONDS = 5.0
"""Seconds between two checks of who else is connected, while nothing happens."""

OUTCOME_SECONDS = 2.0
"""Seconds to learn how a question was answered that another client had, too."""

OUTCOME_AGAIN_SECONDS = 0.1
"""Seconds until the journal is read again for it."""

RULE_SECONDS = 10.0
"""Seconds to finish making a chosen rule when the person leaves the questions."""

# -- searching ----------------------------------------------------------------------------------

SEARCH_PAUSE_SECONDS = 0.2
"""Seconds without a key before the full-text search starts."""

OFFERED_FILES = 200
"""Files offered at once; in a larger folder, only those that begin with the typed text."""

WALKED_FILES = 20_000
"""Most files and folders looked at when searching for a part of a path."""

WALKED_DEPTH = 100
"""Most folders above them."""
