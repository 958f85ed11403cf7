"""An agent of the daemon and the surroundings of the editors that come and go."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.test_shared_daemon import Home, home
from tests.editor import Editor, Refused, introduced, scripted_agent, wrap_command

__all__ = ["home"]

pytestmark = pytest.mark.slow

CODE = {
    "VSCODE_PID": "4242",
    "VSCODE_IPC_HOOK": "/run/user/1000/vscode-1f2e3d4c-1.96-main.sock",
    "VSCODE_CWD": "/home/me",
    "VSCODE_NLS_CONFIG": '{"userLocale":"en","osLocale":"en"}',
    "VSCODE_CRASH_REPORTER_PROCESS_TYPE": "extensionHost",
    "VSCODE_HANDLES_UNCAUGHT_ERRORS": "true",
    "ELECTRON_RUN_AS_NODE": "1",
    "APPLICATION_INSIGHTS_NO_DIAGNOSTIC_CHANNEL": "1",
    "CHROME_DESKTOP": "code.desktop",
    "GIO_LAUNCHED_DESKTOP_FILE": "/usr/share/applications/code.desktop",
    "GIO_LAUNCHED_DESKTOP_FILE_PID": "4242",
}
"""What the extension host of VS Code gives its children."""

ZED = {
    "ZED_TERM": "true",
    "ZED_WINDOW_ID": "12884901889",
    "TERM_PROGRAM": "zed",
    "SHLVL": "1",
    "CLAUDECODE": "",
    "NO_BROWSER": "1",
}
"""What Zed gives an agent server, besides the environment of a login shell."""

SHELL = {
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "SHLVL": "2",
    "WINDOWID": "60817411",
    "SSH_AUTH_SOCK": "/tmp/ssh-XXXXabcdef/agent.4711",
    "_": "/home/me/.local/bin/acphold",
}
"""What an interactive shell has."""


@asynccontextmanager
async def editor_in(home: Home, env: Mapping[str, str], told: Path) -> AsyncIterator[Editor]:
    """An editor with this environment, whose agent writes down its canary at each start, and what
    it is told."""
    can = {"loadSession": True, "sessionCapabilities": {"close": {}}}
    options = {"capabilities": can, "store": f"{told}.store", "log": f"{told}.{env['WHO']}"}
    agent = shlex.join(scripted_agent(**options))
    script = f'echo "$WHO" >> {shlex.quote(str(told))}; exec {agent}'
    command = wrap_command(["sh", "-c", script])
    env = {**home.env, **env}
    async with introduced(command, journal=home.journal, env=env) as one:
        yield one


def asked(told: Path, who: str) -> list[str]:
    """The methods that the agent of an editor was sent."""
    lines = Path(f"{told}.{who}").read_text().splitlines()
    return [method for line in lines if (method := json.loads(line).get("method"))]


async def test_after_the_end_of_an_agent_it_has_the_surroundings_of_the_newest_editor_there(
    home: Home, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    async with editor_in(home, {"WHO": "one"}, told) as one:
        session = await one.talk({"say": "hello"})
        async with editor_in(home, {"WHO": "two"}, told) as two:
            await two.load(session)
            await one.kill()
            with pytest.raises(Refused, match="SIGKILL"):
                await two.prompt(session, {"kill": 9})
            await two.prompt(session, {"say": "again"})
    assert told.read_text().split() == ["one", "two", "two"]


async def test_an_editor_that_restarts_with_another_environment_gets_it_at_once(
    home: Home, tmp_path: Path
) -> None:
    """Also within the time for which its former agent stays."""
    told = tmp_path / "told"
    async with editor_in(home, {"WHO": "before"}, told) as one:
        session = await one.talk({"say": "hello"})
    async with editor_in(home, {"WHO": "after"}, told) as again:
        await again.load(session)
        await again.prompt(session, {"say": "again"})
        assert again.text() == "helloagain"
    assert told.read_text().split() == ["before", "after"]
    assert asked(told, "before")[-1] == "session/close"
    assert asked(told, "after")[-2:] == ["session/load", "session/prompt"]


async def test_editors_that_alternate_in_one_session_restart_nothing(
    home: Home, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    async with (
        editor_in(home, {**CODE, "WHO": "code"}, told) as code,
        editor_in(home, {**ZED, "WHO": "zed"}, told) as zed,
        editor_in(home, {**SHELL, "WHO": "shell"}, told) as shell,
    ):
        session = await code.talk({"say": "begin"})
        for other in (zed, shell):
            await other.load(session)
        for number in range(20):
            by = (code, zed, shell)[number % 3]
            await by.prompt(session, {"say": f"turn {number}"})
        assert "turn 19" in code.text()
    assert sorted(told.read_text().split()) == ["code", "shell", "zed"]  # each its own, once
