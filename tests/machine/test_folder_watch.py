"""A watch over folders tells of what happens in them at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from acphold.machine.folder_watch import CREATED, DELETED, FOLDER_DELETED, FolderWatch
from tests.talker import DEADLINE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no other system tells")


@asynccontextmanager
async def watching(events: int) -> AsyncIterator[FolderWatch]:
    watch = FolderWatch(events)
    try:
        async with asyncio.timeout(DEADLINE):
            yield watch
    finally:
        watch.close()


async def test_the_loss_of_a_name_is_told_and_a_new_one_is_not_unless_asked_for(
    tmp_path: Path,
) -> None:
    async with watching(DELETED) as lost, watching(CREATED) as made:
        assert lost.add([str(tmp_path)])
        assert made.add([str(tmp_path)])
        (tmp_path / "name").touch()
        await made.changed.wait()
        await asyncio.sleep(0)
        assert not lost.changed.is_set()
        (tmp_path / "name").unlink()
        await lost.changed.wait()


async def test_a_folder_that_is_made_anew_can_be_watched_again(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    async with watching(CREATED | FOLDER_DELETED) as watch:
        for _ in range(2):
            assert not watch.add([str(folder)])
            folder.mkdir()
            assert watch.add([str(folder), str(tmp_path)])
            watch.changed.clear()
            folder.rmdir()
            await watch.changed.wait()
