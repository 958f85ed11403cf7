"""Limits: a program has those of whoever asks for it, and its starter keeps none of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from acp_wire.processes.exit_status import exit_status
from acp_wire.processes.limits import shortfalls
from acp_wire.processes.program import launch
from acp_wire.surroundings import NO_LIMITS, Limits, Surroundings, limits_here

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prlimit and /proc are of Linux")

TELL = "import json; from acp_wire.processes.limits import *; "

LOWERED = f"""
import os, resource
from acp_wire.surroundings import limits_here
for kind, soft, hard in limits_here()[0]:
    known = {{resource.RLIMIT_CORE: 4096, resource.RLIMIT_STACK: 1 << 22}}
    most = 10**12 if hard == -1 else hard
    resource.setrlimit(kind, (known.get(kind, most // 2), most))
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
os.setpriority(os.PRIO_PROCESS, 0, 7)
open("/proc/self/oom_score_adj", "w").write("900")
{TELL}
"""
"""The beginning of a program that has lowered every limit."""


def told(code: str) -> Limits:
    """The limits that this program tells."""
    out = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    return as_limits(out)


def as_limits(line: str) -> Limits:
    resources, niceness, cpus, oom = json.loads(line)
    return tuple((kind, soft, hard) for kind, soft, hard in resources), niceness, cpus, oom


def test_a_process_frees_itself_of_the_limits_that_it_was_started_with() -> None:
    freed = told(f"{LOWERED}free_self(); print(json.dumps(limits_here()))")
    for kind, soft, hard in freed[0]:
        if kind == resource.RLIMIT_CORE:
            assert soft == 0  # a core file would hold the secrets of all
        elif kind == resource.RLIMIT_STACK:
            assert soft == 1 << 22
        else:
            assert soft == hard, kind
    _, niceness, cpus, oom = freed
    assert cpus == limits_here()[2]
    assert oom == 0
    if os.geteuid() == 0:
        assert niceness == 0


def test_a_program_has_all_limits_of_whoever_asks_for_it(tmp_path: Path) -> None:
    lowered = told(f"{LOWERED}print(json.dumps(limits_here()))")
    kept = tmp_path / "told"
    command = [sys.executable, "-c", f"{TELL} print(json.dumps(limits_here()))"]
    script = f'exec "$@" > {kept}'
    around = Surroundings(os.environ, "/", None, lowered)
    program = launch(["/bin/sh", "-c", script, "sh", *command], around)
    assert exit_status(program.pid) == 0
    program.abandon()
    assert as_limits(kept.read_text()) == lowered


def test_where_a_process_may_use_less_than_another_is_told_in_words() -> None:
    kind, (_, own) = resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)
    _, niceness, cpus, oom = limits_here()
    assert shortfalls(limits_here()) == shortfalls(NO_LIMITS) == ()
    theirs: Limits = ((kind, 1, own * 2),), niceness - 1, cpus | 1 << 999, (oom or 0) - 1
    assert shortfalls(theirs) == (
        f"nofile {own} instead of {own * 2}",
        f"niceness {niceness} instead of {niceness - 1}",
        f"{cpus.bit_count()} processors instead of {cpus.bit_count() + 1}",
        f"oom_score_adj {oom} instead of {(oom or 0) - 1}",
    )
    assert shortfalls((((kind, 1, -1),), niceness - 1, 0, None)) == (
        f"nofile {own} instead of unlimited",
    )
