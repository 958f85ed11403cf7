"""The terms of editors behind the daemon: two editors, a kill of the daemon, and no trace."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_shared_daemon import Home, home
from tests.editor import (
    Editor,
    Refused,
    introduced,
    prompt_params,
    received,
    scripted_agent,
    wrap_command,
)

__all__ = ["home"]

pytestmark = pytest.mark.slow

CANARY = "canary-4711"
PROVIDER = {"providerId": "main", "baseUrl": f"https://{CANARY}@gw.example"}
OTHER = {"providerId": "main", "baseUrl": f"https://{CANARY}@other.example"}
SIGN_IN = {"methodId": "gateway", "_meta": {"key": CANARY}}


def editor(home: Home, log: Path, *, plain: bool = False) -> Any:
    """An editor, whose agent writes down what it is asked; known as claude, for its variables."""
    agent = scripted_agent(
        log=str(log),
        store=str(log.with_name("store")),
        capabilities={"loadSession": True, "sessionCapabilities": {"close": {}}},
        replies={"providers/set": [{}]},
        refuses={"authenticate": [f"{log}.refuses", {"code": 1, "message": "no"}]},
    )
    env = {"ANTHROPIC_API_KEY": CANARY, "ANTHROPIC_BASE_URL": f"http://{CANARY}"}
    env = home.env | ({} if plain else env)
    command = wrap_command(agent, "--name", "claude")
    return introduced(command, journal=home.journal, env=env)


def files_with(word: str, home: Home, place: Path) -> tuple[list[Path], bool]:
    """The files that have a word, but for the agents' logs; True if the journal was among all."""
    left = [path for folder in (home.folder, home.journal.parent) for path in folder.rglob("*")]
    files = [path for path in left if path.is_file() and path not in {*place.glob("*.log")}]
    found = [path for path in files if word.encode() in path.read_bytes()]
    return found, any(path.name.startswith(home.journal.name) for path in files)


async def queue(client: Editor, session: str, **change: Any) -> None:
    await client.call("_acphold/queue", {"sessionId": session, "change": change})


async def test_two_editors_a_kill_of_the_daemon_and_no_trace_of_their_terms(
    home: Home, tmp_path: Path
) -> None:
    one_log, two_log = tmp_path / "one.log", tmp_path / "two.log"
    refuses, said = tmp_path / "two.log.refuses", list[str]()
    async with editor(home, one_log) as one, editor(home, two_log) as two:
        await one.call("authenticate", SIGN_IN)
        await one.call("providers/set", PROVIDER)
        session = await one.talk({"say": "hello"})
        await two.call("authenticate", SIGN_IN)
        await two.call("providers/set", OTHER)
        await two.load(session)  # moves it here
        with pytest.raises(Refused, match="terms of another client") as refused:
            await one.prompt(session, {"say": "elsewhere"})
        said.append(str(refused.value))
        await two.prompt(session, {"say": "here"})
        with pytest.raises(Refused, match="SIGKILL"):
            await two.prompt(session, {"kill": 9})
        refuses.touch()
        with pytest.raises(Refused, match="sign in again") as refused:
            await two.prompt(session, {"say": "again"})
        said.append(str(refused.value))
        refuses.unlink()
        await two.prompt(session, {"say": "again"})
        methods = [each["method"] for each in received(two_log)]
        last = len(methods) - methods[::-1].index("initialize")
        assert methods[last : last + 2] == ["providers/set", "authenticate"]
        await queue(two, session, do="set", restarts=True)
        two.begin("session/prompt", prompt_params(session, {"until": "cancel"}))
        await queue(two, session, do="add", prompt=prompt_params(session, "later")["prompt"])
        said += [home.run(*words).stdout for words in (["status", "--json"], ["list", "--json"])]
        [daemon] = home.daemons()
        os.kill(daemon, signal.SIGKILL)
    async with editor(home, tmp_path / "plain.log", plain=True) as plain:
        await plain.load(session)
        inbox = home.run("inbox")
        assert "load it in a client that chooses its provider or sign-in again" in inbox.stdout
        with pytest.raises(Refused, match="continue a copy") as refused:
            await plain.prompt(session, {"say": "mine"})
        said.append(str(refused.value))
        assert "later" not in json.dumps(received(tmp_path / "plain.log"))
    async with editor(home, tmp_path / "again.log") as again:
        await again.call("providers/set", OTHER)
        await again.load(session)
        await again.until(lambda: "later" in json.dumps(received(tmp_path / "again.log")))
    said += [inbox.stdout, home.run("export", session, "--format", "json").stdout]
    assert CANARY not in "".join(said)
    assert files_with(CANARY, home, tmp_path) == ([], True)
