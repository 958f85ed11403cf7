"""The import of what agents left on the server's disk, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from tests.web.in_process import site

NOTHING = {"found": {}, "isAll": True, "left": {}, "isRunning": False, "problem": None}


class Disk:
    """Conversations of two agents, and an import that ends when it is let go."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.runs = 0
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()

    async def find(self) -> tuple[Mapping[str, int], bool]:
        return {"claude": 50, "codex": 30}, True

    async def left(self) -> Mapping[str, Mapping[str, int]]:
        return {"pi": {"grown": 2}}

    async def run(self) -> str:
        self.runs += 1
        self.began.set()
        await self.may_end.wait()
        return self.problem


async def test_who_may_manage_all_sessions_is_told_what_is_there_and_imports_it_once(
    tmp_path: Path,
) -> None:
    disk = Disk(problem="the disk is full")
    async with site(tmp_path, importing=disk) as web:
        token = await web.new_token("watch", "manage")
        told = (await web.get("/import", token)).json
        about = {"found": {"claude": 50, "codex": 30}, "left": {"pi": {"grown": 2}}}
        assert told == NOTHING | about
        for _ in range(2):
            assert (await web.post("/import", token)).status == 202
        await disk.began.wait()
        told = (await web.get("/import", token)).json
        assert (told["found"], told["isRunning"], disk.runs) == ({}, True, 1)
        [running] = [task for task in asyncio.all_tasks() if task.get_name() == "import"]
        disk.may_end.set()
        await running
        assert (await web.get("/import", token)).json["problem"] == "the disk is full"


async def test_others_are_told_of_nothing_and_cannot_import(tmp_path: Path) -> None:
    disk = Disk()
    async with site(tmp_path, importing=disk) as web:
        await web.remember("s1", [])
        for token in (
            await web.new_token("watch", "prompt"),
            await web.new_token("watch", "manage", tenant="ann"),
            await web.new_token("watch", "manage", session_id="s1"),
        ):
            assert (await web.get("/import", token)).json == NOTHING
            assert (await web.post("/import", token)).status == 403
        assert disk.runs == 0
        assert (await web.post("/import", await web.new_token("manage"))).status == 202
        await disk.began.wait()
        assert (await web.get("/import")).json == NOTHING  # nor of an import that runs


async def test_an_import_ends_with_the_server(tmp_path: Path) -> None:
    disk = Disk()
    async with asyncio.timeout(30), site(tmp_path, importing=disk) as web:
        assert (await web.post("/import", await web.new_token("manage"))).status == 202
