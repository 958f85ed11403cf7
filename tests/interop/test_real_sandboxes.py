"""What an agent runs in the sandbox of its vendor joins no session, or only looks at it."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cli.test_other_places import CLIENT, PRETENDS, asking, only_looks, starts
from tests.cli.test_shared_daemon import Home, home
from tests.editor import DEADLINE
from tests.npm import NODE, installed

__all__ = ["home"]

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells where a process is"),
]


def codex(folder: Path, *, may_connect: bool) -> list[str]:
    """Runs a command as codex does for its model in `workspace-write`.

    It is bubblewrap, then Seccomp, which forbids to connect unless the person allows a network.
    """
    package = installed("@agentclientprotocol/codex-acp@2.6.0") / "node_modules/@openai/codex"
    own, other = folder / "codex", folder / "tmp"
    for each in (own, other):
        each.mkdir(exist_ok=True)
    network = f"sandbox_workspace_write.network_access={json.dumps(may_connect)}"
    return [
        *("env", "-C", str(folder), f"CODEX_HOME={own}"),
        f"TMPDIR={other}",  # it links its programs in its home, unless that is in such a folder
        *(NODE, str(package / "bin" / "codex.js"), "sandbox"),
        *("-c", 'sandbox_mode="workspace-write"', "-c", network, "--"),
    ]


def claude(folder: Path, *, may_connect: bool) -> list[str]:
    """Runs a command as Claude Code does in its sandbox, whose settings a person can change."""
    package = installed("@anthropic-ai/sandbox-runtime@0.0.83") / "node_modules"
    settings = folder / "settings.json"
    network = {"allowedDomains": [], "deniedDomains": [], "allowAllUnixSockets": may_connect}
    files = {"denyRead": [], "allowWrite": [str(folder)], "denyWrite": []}
    settings.write_text(json.dumps({"network": network, "filesystem": files}))
    script = package / "@anthropic-ai" / "sandbox-runtime" / "dist" / "cli.js"
    return ["env", "-C", str(folder), NODE, str(script), "--settings", str(settings), "--"]


NEEDED = {codex: ["bwrap"], claude: ["bwrap", "socat", "rg"]}


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sockets are in a folder that a sandbox leaves as it is: not /dev/shm."""
    monkeypatch.setattr(tempfile, "tempdir", "/var/tmp")


@pytest.fixture(params=NEEDED, ids=lambda sandbox: sandbox.__name__)
def sandbox(request: pytest.FixtureRequest, home: Home) -> Callable[..., list[str]]:
    """Gives the command of a sandbox that starts here."""
    made: Callable[..., list[str]] = request.param
    (project := home.folder / "project").mkdir()
    missing = [name for name in NEEDED[made] if shutil.which(name) is None]
    if missing or not starts(made(project, may_connect=True)):
        pytest.skip(f"the sandbox of {made.__name__} does not start here; missing: {missing}")
    return partial(made, project)


@pytest.mark.parametrize("capabilities", [{}, PRETENDS], ids=["plain", "a line"])
async def test_where_it_may_connect_it_sees_the_session_and_neither_answers_nor_changes_anything(
    home: Home, sandbox: Callable[..., list[str]], capabilities: dict[str, object]
) -> None:
    await only_looks(home, sandbox(may_connect=True), **capabilities)


async def test_as_it_comes_it_cannot_even_connect(
    home: Home, sandbox: Callable[..., list[str]]
) -> None:
    async with asking(home) as (_, turn):
        client = [sys.executable, "-c", CLIENT, home.socket(), "", "{}"]
        command = [*sandbox(may_connect=False), *client]
        run = partial(subprocess.run, timeout=DEADLINE, check=False, text=True)
        done = await asyncio.to_thread(run, command, env=home.env, capture_output=True)
        assert "PermissionError" in done.stderr
        assert not turn.done()
