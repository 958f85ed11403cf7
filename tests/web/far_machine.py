"""Another machine of a test: one without a journal, and with a folder for state of its own."""

from __future__ import annotations

import subprocess

from tests.web.conftest import ACPHOLD, Served

SECONDS = 60


def laptop(served: Served) -> dict[str, str]:
    """Its variables."""
    home = served.folder / "laptop"
    return served.env | {
        "ACPHOLD_JOURNAL": str(home / "journal.db"),
        "XDG_STATE_HOME": str(home),
        "TERM": "xterm",
    }


def far(
    served: Served, *words: str, typed: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """A command there, in a pipe."""
    return subprocess.run(
        [*ACPHOLD, *words],
        input=typed,
        env=laptop(served) | env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
