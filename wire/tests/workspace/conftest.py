"""Folders, and a workspace on one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from acp_wire.surroundings import Surroundings
from acp_wire.workspace.roots import Roots
from acp_wire.workspace.workspace import Workspace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The session's cwd, an empty folder; `outside` beside it holds a secret."""
    (folder := tmp_path / "project").mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (folder := tmp_path / "outside").mkdir()
    (folder / "secret").write_text("secret")
    return folder


@pytest.fixture
async def workspace(project: Path) -> AsyncIterator[Workspace]:
    """A workspace on `project`, closed after the test."""
    workspace = Workspace(Roots(str(project)), Surroundings.here())
    yield workspace
    await workspace.aclose()
