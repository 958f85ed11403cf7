"""A project folder as the corpora have it: sources, a link that leads out, a bare repository."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "home" / "ada" / "project"
    for name in ("src", "tests", "docs", ".git/hooks", "nest/objects", "nest/refs"):
        (folder / name).mkdir(parents=True)
    for name in ("src/a.py", "tests/test_a.py", "names.txt", "nest/HEAD", "args", "docs/a.md"):
        (folder / name).write_text("x\n")
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (folder / "out").symlink_to(outside)
    return folder
