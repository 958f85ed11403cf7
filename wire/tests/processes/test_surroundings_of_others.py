"""The environment and the folder that a program of somebody else is started in."""

from __future__ import annotations

import asyncio
import os
import signal

from acp_wire.processes.process_tree import condition
from acp_wire.surroundings import Surroundings
from tests.watched_processes import until


def test_paths_are_those_of_the_given_folder_and_variables() -> None:
    given = Surroundings({"PATH": "/opt/bin", "HOME": "/home/ada"}, "/work/shop")
    assert (given.path, given.home, given.config_folder) == (
        "/opt/bin",
        "/home/ada",
        "/home/ada/.config",
    )
    assert given.absolute("src/../a.txt") == "/work/shop/a.txt"
    assert given.absolute("/etc/hosts") == "/etc/hosts"
    assert Surroundings({}, "/").path == os.defpath


async def test_a_process_that_is_stopped_is_told_apart_from_one_that_is_busy() -> None:
    process = await asyncio.create_subprocess_exec("/bin/sleep", "1000")
    try:
        assert condition(process.pid) == "busy"
        process.send_signal(signal.SIGSTOP)
        await until(lambda: condition(process.pid) == "stopped")
    finally:
        process.kill()
        await process.wait()
