"""A project folder as the corpora have it: committed sources, a link that leads out, a bare
repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.standing.git_calls import commit

FOLDERS = ("src", "tests", "docs")
FILES = ("src/a.py", "tests/test_a.py", "names.txt", "docs/a.md")


@pytest.fixture(scope="session")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("committed")
    for name in FOLDERS:
        (folder / name).mkdir()
    for name in FILES:
        (folder / name).write_text("x\n")
    commit(folder)
    return folder


@pytest.fixture
def project(tmp_path: Path, committed: Path) -> Path:
    folder = tmp_path.resolve() / "home" / "ada" / "project"
    shutil.copytree(committed, folder)
    for name in (".git/hooks", "nest/objects", "nest/refs"):
        (folder / name).mkdir(parents=True)
    for name in ("nest/HEAD", "args"):
        (folder / name).write_text("x\n")
    (outside := folder.parent / "outside").mkdir()
    (outside / "secret").write_text("s")
    (folder / "out").symlink_to(outside)
    return folder
