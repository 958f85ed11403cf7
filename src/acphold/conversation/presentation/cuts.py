"""Most characters of what the page shows in a line, and of what it shows at first.

Nothing is cut where somebody is asked: see `blocks`.
"""

from __future__ import annotations

from typing import Final

from acphold.conversation.presentation.diffs import DIFF_LINES

CUT: Final = {
    "code": 12,
    "short": 40,
    "name": 60,
    "brief": 80,
    "part": 120,
    "title": 240,
    "words": 300,
    "long": 400,
    "most": 1000,
    "offer": 10_000,
}
"""In a line: a code, a name and a short one, parts of a line, a title, words, and longer ones.

Of an offer to allow something nothing that somebody might read is left out.
"""

SHOWN: Final = {
    "text": 20_000,
    "output": 60_000,
    "lastOutput": 4000,
    "diffLines": DIFF_LINES,
    "patchLines": 100,
    "morePatchLines": 5000,
}
"""At first, with a button for the rest: of a text, a command's output (its end), a change."""

PATH: Final = (60, 120)
"""At the beginning and at the end of a path that is cut in its middle."""
