"""The files that are kept with the sessions of a copied database: no upkeep takes another's."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from acphold.faces.cli.findings import check_files
from acphold.journal.lineage import family, identity
from acphold.journal.stores import open_journal
from acphold.journal_location import VARIABLE
from acphold.live.hub.kept_stores import relatives, stores_of, tidy
from acphold.machine import runtime_folder
from acphold.machine.program_group import ProgramGroup
from tests.hub.moving import Machine, origin
from tests.postgresql import Databases
from tests.raw_entries import CONVERSATION

pytestmark = pytest.mark.postgresql


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_folder, "_account_home", lambda: str(tmp_path / "home"))


@contextmanager
def copied(databases: Databases, url: str) -> Iterator[str]:
    with databases.new(urlsplit(url).path[1:]) as copy:
        yield copy


async def kept(machine: Machine, session_id: str) -> bool:
    """True if all files of a session are in the stores of its journal."""
    [row] = await machine.journal.snapshots.of(session_id)
    store = (await stores_of(machine.journal)).find(row.store)
    if store is None:
        return False

    def look() -> bool:
        deadline = time.monotonic() + 60
        with store.used(deadline), ProgramGroup(deadline) as group:
            git = store.git(group)
            listed = git.run("ls-tree", "-r", "--name-only", row.tree)
            return all(
                git.run("cat-file", "blob", f"{row.tree}:{name}")
                for name in listed.decode().split()
            )

    return await asyncio.to_thread(look)


async def test_upkeep_of_a_copy_and_of_its_original_leaves_the_files_of_the_other(
    tmp_path: Path, databases: Databases
) -> None:
    project = origin(tmp_path)
    with databases.new() as url:
        one = Machine(tmp_path / "one", "one", project)
        await one.journal.aclose()
        one.journal = open_journal(url)
        for name in ("both", "original's"):
            await one.remember(name, *CONVERSATION)
            one.project.write("a.txt", f"{name}\n")
            await one.keep(name)
        await one.journal.aclose()  # nobody may use a database that is copied
        with copied(databases, url) as copy:
            one.journal = open_journal(url)
            other = Machine(tmp_path / "other", "other")
            await other.journal.aclose()
            other.journal, other.clone = open_journal(copy), one.clone
            assert await family(one.journal) == await family(other.journal)
            assert await identity(one.journal) != await identity(other.journal)
            assert await kept(other, "both")
            # Each deletes a session that only the other needs, and keeps a new one.
            await other.journal.delete("original's")
            await other.remember("copy's", *CONVERSATION)
            other.project.top = one.clone
            other.project.write("a.txt", "copy's\n")
            await other.keep("copy's", cwd=one.clone)
            await one.journal.delete("both")
            for machine in (one, other, one):
                await tidy(machine.journal)
            assert await kept(one, "original's")
            assert await kept(other, "both")
            assert await kept(other, "copy's")
            [of_copy] = relatives(await stores_of(one.journal))
            assert of_copy.folder == (await stores_of(other.journal)).folder
            with pytest.MonkeyPatch.context() as changed:
                changed.setenv(VARIABLE, url)
                told = [it.text for it in await check_files()]
            assert any("to a copy of this journal" in text for text in told), told
            for machine in (one, other):
                await machine.journal.aclose()


async def test_files_kept_before_copies_had_their_own_are_kept_still(
    tmp_path: Path, databases: Databases
) -> None:
    with databases.new() as url:
        one = Machine(tmp_path / "one", "one", origin(tmp_path))
        await one.journal.aclose()
        one.journal = open_journal(url)
        await one.remember("s1", *CONVERSATION)
        await one.keep("s1")
        folder = (await stores_of(one.journal)).folder
        shutil.move(folder, Path(folder).with_name(await family(one.journal)))
        assert await kept(one, "s1")
        await one.journal.aclose()
