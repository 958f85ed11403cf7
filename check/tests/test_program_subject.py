"""Rules that only a real program can break: how it ends, and what it leaves running."""

from __future__ import annotations

import sys

from acp_check.checks import choose, inspect
from acp_check.rules import CHECKS
from acp_check.stage import CheckSettings
from acp_check.subject import ProgramSubject
from acp_check.verdicts import Finding, Verdict
from tests.faulty_agent import command

AGENT = tuple(command())

LITTERBUG = f"""
import subprocess, sys
subprocess.Popen(["sleep", "60"], start_new_session=True, stdin=subprocess.DEVNULL,
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
sys.argv = ["agent"]
import runpy
runpy.run_path({AGENT[1]!r}, run_name="__main__")
"""
"""An agent that starts something which outlives it."""


async def found(command: tuple[str, ...], rule: str) -> Finding:
    """Run one check of a program and return its finding."""
    checks = choose(CHECKS, [rule])
    (finding,) = (
        await inspect(ProgramSubject(command), checks, CheckSettings(timeout=20))
    ).findings
    return finding


async def test_a_process_that_outlives_the_agent_is_found() -> None:
    finding = await found((sys.executable, "-c", LITTERBUG), "stdio.leaves-nothing")
    assert finding.verdict is Verdict.FAIL, finding


async def test_a_program_that_tidies_up_passes() -> None:
    finding = await found(AGENT, "stdio.leaves-nothing")
    assert finding.verdict is Verdict.PASS, finding


async def test_an_agent_that_dies_is_quoted() -> None:
    dying = (sys.executable, "-c", "import sys; sys.exit('no licence found')")
    finding = await found(dying, "initialize.answer")
    assert finding.verdict is Verdict.FAIL
    assert "exit status 1" in finding.why
    assert "no licence found" in finding.why
