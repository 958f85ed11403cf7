"""The limits of the editor that starts the daemon are those of its own agent, and nobody else's."""

from __future__ import annotations

import json
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from acp_wire.surroundings import Limits
from tests.cli.test_shared_daemon import Home, home
from tests.editor import Editor, introduced, scripted_agent, wrap_command

__all__ = ["home"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="prlimit and /proc are of Linux"),
]

TELL = "import json; from acp_wire.surroundings import *; print(json.dumps(limits_here()))"

LOWER = """
import os, resource, sys
from acp_wire.surroundings import limits_here
least = {
    resource.RLIMIT_CPU: (2, 600),
    resource.RLIMIT_FSIZE: (500_000, 1 << 30),
    resource.RLIMIT_STACK: (1 << 22, 1 << 30),
}
for kind, soft, hard in limits_here()[0]:
    most = (1 << 40) - 1 if hard == -1 else hard - 1 if hard else 0
    soft, most = least.get(kind, (most - 1 if most else 0, most))
    resource.setrlimit(kind, (soft, most))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + 3)
open("/proc/self/oom_score_adj", "w").write("900")
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Runs a program with every limit lowered, soft and hard."""


def recorded(told: Path) -> list[Limits]:
    """The limits that agents have written down."""
    found = []
    for line in told.read_text().splitlines():
        resources, niceness, cpus, oom = json.loads(line)
        found.append((tuple(map(tuple, resources)), niceness, cpus, oom))
    return found


async def test_an_editor_notices_nothing_of_the_limits_of_the_one_that_started_the_daemon(
    home: Home, tmp_path: Path
) -> None:
    python = shlex.quote(sys.executable)
    agent = shlex.join(scripted_agent())

    def telling(told: Path) -> list[str]:
        tell = f"{python} -c {shlex.quote(TELL)} >> {shlex.quote(str(told))}"
        return wrap_command(["sh", "-c", f"{tell}; exec {agent}"])

    low, high = tmp_path / "low", tmp_path / "high"
    lowered = [sys.executable, "-c", LOWER, *telling(low)]
    env = home.env
    async with (
        introduced(lowered, journal=home.journal, env=env) as first,
        introduced(telling(high), journal=home.journal, env=env) as second,
    ):
        [daemon] = home.daemons()
        await first.talk({"say": "hello"})
        session = await second.new()
        await works_hard(second, session, daemon)
        assert len(home.daemons()) == 1
        shown = " ".join(home.run("agent", "status").stdout.split())
        assert "was started with lower limits than an editor has: " in shown
        assert "cpu 600 instead of unlimited" in shown
        assert "`acphold agent stop` ends it, and that editor starts it anew" in shown
        told = " ".join(home.run("doctor").stdout.split())
        assert "was started with lower limits than an editor has" in told
        assert (resource.prlimit(daemon, resource.RLIMIT_CORE)[0], oom_score_of(daemon)) == (0, 0)
    [ours], [its] = recorded(high), recorded(low)
    assert its[3] == 900
    assert its[2].bit_count() == 1
    assert {kind: soft for kind, soft, _ in its[0]}[resource.RLIMIT_FSIZE] == 500_000
    here = json.loads(home_tells(home))
    assert ours[2:] == tuple(here[2:])
    most = {kind: hard for kind, _, hard in its[0]}
    for got, (kind, soft, hard) in zip(ours[0], here[0], strict=True):  # as far as the daemon may
        assert got in ((kind, soft, hard), (kind, less(soft, most[kind]), less(hard, most[kind])))


def less(one: int, other: int) -> int:
    return max(one, other) if -1 in (one, other) else min(one, other)


def home_tells(home: Home) -> str:
    """The limits of a program that is started as the second editor is."""
    return subprocess.check_output([sys.executable, "-c", TELL], env=home.env, text=True)


async def works_hard(one: Editor, session: str, daemon: int) -> None:
    """Have the daemon write more, and compute for longer, than the first editor may by itself."""
    size = 0
    while size < 2_000_000 or processor_seconds(daemon) < 2.5:
        await one.prompt(session, {"flood": [400, 2000]})
        size += 400 * 2000


def oom_score_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
