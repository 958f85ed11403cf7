"""The daemon and its agents in units of systemd, with a user manager of our own."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.cli.test_shared_daemon import Home
from tests.editor import DEADLINE, Editor, introduced, scripted_agent, wrap_command
from tests.watched_processes import lives, until

MOUNTS = Path("/proc/mounts").read_text().splitlines() if sys.platform == "linux" else []

HIERARCHIES = [
    Path(place)
    for _, place, kind, options, *_ in map(str.split, MOUNTS)
    if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options)
]
"""Where the system has its control groups; source: cgroups(7)."""

BEGIN = """
mount -t tmpfs none /run/systemd && mkdir /run/systemd/system
for group; do echo $$ >"$group/cgroup.procs"; done
exec /lib/systemd/systemd --user
"""
"""A user manager refuses to run unless the system was booted by systemd: it sees that it was."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not any(os.access(place, os.W_OK) for place in HIERARCHIES),
        reason="only root can give a user manager of systemd a control group",
    ),
]


class Manager:
    """A user manager, and the home of a person whose runtime folder is its."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def run(self, *command: str) -> str:
        return subprocess.check_output(command, env=self.home.env, text=True, timeout=DEADLINE)

    def scopes(self) -> list[str]:
        """The scopes that run, by name."""
        command = ("systemctl", "--user", "list-units", "--plain", "--no-legend", "--state=running")
        lines = self.run(*command, "--type=scope").splitlines()
        return sorted(line.split()[0] for line in lines if not line.startswith("init."))

    def scope_of(self, pid: int) -> str:
        """The last part of the control group of a process."""
        return Path(f"/proc/{pid}/cgroup").read_text().split()[-1].rpartition("/")[2]

    def editor(self, agent: list[str], *before: str) -> AbstractAsyncContextManager[Editor]:
        """An editor, started by this command."""
        command = [*before, *wrap_command(agent)]
        return introduced(command, journal=self.home.journal, env=self.home.env)


def _is_removed(group: Path) -> bool:
    """Remove a control group once its last process has gone."""
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


@pytest.fixture
async def manager(journal: Path) -> AsyncIterator[Manager]:
    folder = Path(tempfile.mkdtemp(prefix="acphold-"))
    home = Home(folder, journal)
    home.env["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={folder}/bus"
    groups = [place / folder.name for place in HIERARCHIES]
    for group in groups:
        group.mkdir()
    environment = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "PATH": os.environ["PATH"]}
    command = ["unshare", "--mount", "sh", "-ec", BEGIN, "sh", *map(str, groups)]
    running = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        await until(lambda: (folder / "bus").exists() or running.returncode is not None)
        assert running.returncode is None
        yield Manager(home)
    finally:
        for pid in home.daemons():
            os.kill(pid, signal.SIGTERM)
        await until(lambda: not home.daemons())
        running.terminate()
        await asyncio.wait_for(running.wait(), DEADLINE)
        for group in groups:
            for each in sorted(group.rglob("*/"), reverse=True):
                with suppress(OSError):
                    each.rmdir()
            await until(partial(_is_removed, group))
        shutil.rmtree(folder, ignore_errors=True)


IN_A_UNIT = ("systemd-run", "--user", "--scope", "--quiet", "--collect", "--unit=editor")


async def test_when_the_unit_of_the_editor_that_started_the_daemon_is_stopped_others_go_on(
    manager: Manager, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with manager.editor(scripted_agent(), *IN_A_UNIT) as first:
        await first.new()
        [daemon] = manager.home.daemons()
        async with manager.editor(scripted_agent()) as second:
            session = await second.new()
            turn = second.begin_prompt(
                session, {"say": "begun "}, {"until": str(go)}, {"say": "on"}
            )
            await second.until_text("begun ")
            own = f"acphold-{daemon}.scope"
            await until(lambda: [*manager.scopes()][:1] == [own] and len(manager.scopes()) == 4)
            assert manager.scope_of(daemon) == own
            manager.run("systemctl", "--user", "stop", "editor.scope")
            go.touch()
            await turn
            assert second.text() == "begun on"
            assert lives(daemon)


async def test_an_agent_whose_unit_is_stopped_takes_no_other_one_along(
    manager: Manager, tmp_path: Path
) -> None:
    children = tmp_path / "children"
    greedy = ["sh", "-c", f'sleep 1000 & echo $! > {children}; exec "$@"', "sh", *scripted_agent()]
    async with manager.editor(greedy, *IN_A_UNIT) as first, manager.editor(scripted_agent()) as one:
        await first.new()
        session = await one.new()
        [daemon] = manager.home.daemons()
        await until(lambda: len(manager.scopes()) == 4)
        child = int(children.read_text())
        unit = manager.scope_of(child)
        assert unit.startswith("acphold-agent-")
        manager.run("systemctl", "--user", "kill", "--signal=KILL", unit)
        await until(lambda: not lives(child))
        await one.prompt(session, {"say": "still here"})
        assert one.text() == "still here"
        assert lives(daemon)


AS_A_SERVICE = (
    *("systemd-run", "--user", "--pipe", "--quiet", "--collect", "--unit=editor"),
    *("--property=LimitNOFILE=200:300", "--property=LimitFSIZE=1G:2G"),
)


async def test_the_daemon_is_a_service_with_the_limits_of_the_manager_and_not_of_its_starter(
    manager: Manager, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    agent = ["sh", "-c", f'ulimit -Sn > {told}; exec "$@"', "sh", *scripted_agent()]
    env = manager.home.env
    env["PGPASSWORD"] = "hunter2"  # one of those that a daemon gets
    passed = [f"--setenv={name}" for name in env if name.isidentifier()]
    async with manager.editor(agent, *AS_A_SERVICE, *passed) as first:
        session = await first.talk({"say": "hello"})
        [daemon] = manager.home.daemons()
        unit = manager.scope_of(daemon)
        assert unit.startswith("acphold-")
        assert unit.endswith(".service")
        for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE):
            soft, hard = resource.prlimit(daemon, kind)
            assert soft == hard != {resource.RLIMIT_NOFILE: 300}.get(kind, 2 << 30)
        assert told.read_text() == "200\n"
        assert "hunter2" not in manager.run("systemctl", "--user", "show", unit)
        assert b"hunter2" not in environment_of(daemon)
        manager.run("systemctl", "--user", "stop", "editor.service")
        await first.ended()
        assert lives(daemon)
    async with manager.editor(agent, *AS_A_SERVICE, *passed) as again:
        await again.load(session)
        assert again.text() == "hello"
        assert manager.home.daemons() == [daemon]
        manager.run("systemctl", "--user", "stop", "editor.service")
        await again.ended()


def environment_of(pid: int) -> bytes:
    """The variables with which a process was started."""
    return Path(f"/proc/{pid}/environ").read_bytes()


NOTES = 'echo "$*" >>{file}; exec {busctl} "$@"'


async def test_a_daemon_that_began_outside_of_the_manager_stays_there(
    manager: Manager, tmp_path: Path
) -> None:
    # The manager ends with the last logout; what began in a login may be meant to stay.
    calls, programs = tmp_path / "calls", tmp_path / "programs"
    programs.mkdir()
    noting = programs / "busctl"
    noting.write_text(f"#!/bin/sh\n{NOTES.format(file=calls, busctl=shutil.which('busctl'))}\n")
    noting.chmod(0o755)
    manager.home.env["PATH"] = f"{programs}:{manager.home.env['PATH']}"
    async with manager.editor(scripted_agent()) as one:
        await one.new()
        [daemon] = manager.home.daemons()
        before = manager.scope_of(daemon)
        await until(lambda: calls.exists() and "GetUnitByPID" in calls.read_text())
        manager.home.run("agent", "stop")
        await until(lambda: not lives(daemon))
        assert "StartTransientUnit" not in calls.read_text()
        assert not before.startswith("acphold")
