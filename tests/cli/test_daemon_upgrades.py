"""An upgrade ends no work: a daemon goes on with the code that it has, and makes room when idle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_shared_daemon import Home, home
from tests.distributions import FOLDERS
from tests.watched_processes import until

__all__ = ["home"]

pytestmark = pytest.mark.slow


def install(home: Home, place: Path, release: str) -> None:
    """Install acphold with this release's number, for the programs of `home`."""
    for package, folder in FOLDERS.items():
        source = folder / "src" / package
        ignored = shutil.ignore_patterns("node_modules", "page", "built")
        shutil.copytree(source, place / source.name, ignore=ignored)
    version = place / "acphold" / "version.py"
    version.write_text(f'__version__ = "{release}"\n')
    home.env["PYTHONPATH"] = str(place)


def told(home: Home) -> list[dict[str, Any]]:
    """What `acphold agent status` says, for each process."""
    return [json.loads(line) for line in home.run("agent", "status", "--json").stdout.splitlines()]


async def keeps_its_code(home: Home) -> None:
    await until(lambda: [process["keepsCode"] for process in told(home)] == [True])


async def test_a_turn_and_the_next_prompts_go_on_when_the_files_of_acphold_are_removed(
    home: Home, tmp_path: Path
) -> None:
    place, go = tmp_path / "first", tmp_path / "go"
    install(home, place, "1.9")
    async with home.editor() as one:
        session = await one.new()
        turn = one.begin_prompt(session, {"say": "begun "}, {"until": str(go)}, {"say": "done "})
        await one.until_text("begun ")
        await keeps_its_code(home)
        shutil.rmtree(place)
        go.touch()
        await turn
        await one.prompt(session, {"say": "and again"})  # the first of what it imports is used now
        other = await one.talk({"say": "new"})
        await one.load(other)
        [daemon] = home.daemons()
        install(home, tmp_path / "second", "1.10")
        assert [(each["release"], each["isReplaced"]) for each in told(home)] == [("1.9", True)]
        async with home.editor() as two:  # a busy one serves the next release, too
            await two.load(session)
            assert two.text() == "begun done and again"
            assert home.daemons() == [daemon]


async def test_an_idle_daemon_makes_room_for_a_newer_release_and_never_for_an_older_one(
    home: Home, tmp_path: Path
) -> None:
    install(home, tmp_path / "second", "1.10")
    async with home.editor() as one:
        session = await one.talk({"say": "kept"})
        [second] = home.daemons()
    install(home, tmp_path / "first", "1.9")
    async with home.editor() as older:
        await older.load(session)
        assert home.daemons() == [second]
    install(home, tmp_path / "third", "1.11")
    async with home.editor() as newer:
        await newer.load(session)
        assert newer.text() == "kept"
        [third] = home.daemons()
        assert third != second


async def test_an_idle_daemon_whose_files_were_replaced_makes_room_for_the_same_release(
    home: Home, tmp_path: Path
) -> None:
    place = tmp_path / "first"
    install(home, place, "1.9")
    async with home.editor() as one:
        await one.talk({"say": "kept"})
        [first] = home.daemons()
        await keeps_its_code(home)
    shutil.rmtree(place)
    install(home, place, "1.9")
    async with home.editor() as again:
        await again.new()
        assert home.daemons() != [first]
