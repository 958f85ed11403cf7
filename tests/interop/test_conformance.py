"""`acphold check` is right about agents on the official SDKs, and `acphold wrap` mends the rest."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from acp_check.rules import CHECKS
from tests.interop.test_official_sdks import python_agent, ts_agent
from tests.interop.wire import Json

# On a busy machine, with downloads.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ONLY = sorted({check.rule.group for check in CHECKS} - {"mcp", "pressure"})
"""Neither agent knows MCP servers, and floods take a while."""

AGENTS = {"python": python_agent, "typescript": ts_agent}

NO_STORE = "new.unique-over-restarts"
"""Both count their sessions from 0 in every process."""

RELATIVE = "new.relative-folder"
"""Neither looks at the path of a session's folder."""

OWN_FAILURES = {
    # The SDK takes every line for an object.
    "python": {NO_STORE, RELATIVE, "json-rpc.array"},
    "typescript": {NO_STORE, RELATIVE},
}

SEEN_AT_TIMES = {
    # One flag for the cancels of all sessions; most turns are over before it can be seen.
    "python": {"cancel.other-session"},
    "typescript": set[str](),
}


async def failures(command: Sequence[str], home: Path) -> set[str]:
    """The checks that an agent fails."""
    words = [word for group in ONLY for word in ("--only", group)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "acphold", "check", "--json", "--timeout", "30", *words, "--"),
        *command,
        stdout=asyncio.subprocess.PIPE,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "ACPHOLD_JOURNAL": str(home / "journal.db"),
        },
    )
    out, _ = await process.communicate()
    found: Json = json.loads(out)
    assert found["counts"]["pass"] > 60, found["counts"]
    return {check["id"] for check in found["checks"] if check["verdict"] == "fail"}


async def failures_of_each(front: Sequence[str], folder: Path) -> dict[str, set[str]]:
    """What each agent fails behind this front: both at once, for most of it is waiting."""
    found = await asyncio.gather(
        *(failures([*front, *AGENTS[name]()], folder / name) for name in AGENTS)
    )
    return dict(zip(AGENTS, found, strict=True))


async def test_what_agents_on_the_official_sdks_fail_is_their_own(tmp_path: Path) -> None:
    found = await failures_of_each([], tmp_path)
    assert {name: found[name] - SEEN_AT_TIMES[name] for name in found} == OWN_FAILURES


async def test_behind_wrap_they_fail_nothing(tmp_path: Path) -> None:
    found = await failures_of_each([sys.executable, "-m", "acphold", "wrap", "--"], tmp_path)
    assert found == {name: set() for name in AGENTS}
