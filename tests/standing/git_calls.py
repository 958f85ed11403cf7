"""Calls of git for tests, without the settings of whoever runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SECONDS = 20


def git(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run git in a folder of a home without settings."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder.parent),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "ada",
        "GIT_AUTHOR_EMAIL": "a@x",
        "GIT_COMMITTER_NAME": "ada",
        "GIT_COMMITTER_EMAIL": "a@x",
    }
    return subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *words],
        cwd=folder,
        env=env,
        timeout=SECONDS,
        capture_output=True,
        text=True,
    )


def commit(folder: Path) -> None:
    """Commit everything in a folder, which becomes a repository."""
    for words in ("init -q -b main --template=", "add -A -f", "commit -q -m sources"):
        assert git(folder, *words.split()).returncode == 0
