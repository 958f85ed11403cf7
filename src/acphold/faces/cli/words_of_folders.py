"""Words of a command line that mean other files in another folder.

Nothing is imported here: an editor waits for the pipe in front of a background process.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as typing has it; importing that would take longer than the start
if TYPE_CHECKING:
    from collections.abc import Sequence

FILES = ("ACPHOLD_JOURNAL", "ACPHOLD_SETTINGS")
"""Variables that take a path."""

FILE_OPTIONS = ("--journal", "--log-file")
"""Options of `wrap` that take a path."""


def mean_files_here(own: list[str], command: Sequence[str]) -> bool:
    """Return True if options, variables or command would mean other files in another folder."""
    paths = [os.environ.get(name, "") for name in FILES]
    for option, value in zip(own, [*own, ""][1:], strict=True):
        name, equals, given = option.partition("=")
        if name in FILE_OPTIONS:
            paths.append(given if equals else value)
    if any(path and path[0] not in "/~" and ":////" not in path for path in paths):
        return True
    # The agent's words that name a file which exists here: `./agent`, `--config=agent.toml`.
    values = [value for word in command for value in (word, word.partition("=")[2])]
    return any(value[:1] != "/" and os.path.lexists(value) for value in values)
