"""Folders, processes, and ways to wait for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from acphold.workspace.roots import Roots
from acphold.workspace.workspace import Workspace

Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The session's cwd, an empty folder; `outside` beside it holds a secret."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


@pytest.fixture
async def workspace(project: Path) -> AsyncIterator[Workspace]:
    """A workspace on `project`, closed after the test."""
    workspace = Workspace(Roots(str(project)))
    yield workspace
    await workspace.aclose()


@pytest.fixture
def until() -> Until:
    """`await until(condition)`: return when `condition()` holds, fail after ten seconds."""

    async def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            await asyncio.sleep(0.01)

    return wait
