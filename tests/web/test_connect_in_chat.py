"""`acphold connect` to a real `acphold serve`, as the agent of a chat, and a bot beside both."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import acphold
from tests.editor import scripted_agent
from tests.examples.test_readers import EXAMPLES
from tests.page.conftest import ask
from tests.screen_terminal import terminal
from tests.web.conftest import ACPHOLD, Served, serving
from tests.web.far_machine import SECONDS, far, laptop
from tests.web.network import own_port

pytestmark = pytest.mark.slow

CONNECT = (*ACPHOLD, "connect")


def snapshots(served: Served, **env: str) -> list[dict[str, object] | None]:
    """What the list says about the kept files of each session on the laptop."""
    rows = far(served, "list", "--json", **env).stdout.splitlines()
    return [json.loads(row)["files"] for row in rows]


def test_a_chat_through_a_server_keeps_no_files_of_here_and_says_whose_folder_it_is(
    served: Served,
) -> None:
    subprocess.run(("git", "init", "-q", served.folder), check=True)
    there = str(served.folder)
    code = f"{served.url}#pair={served.pair}"
    begun = far(served, "chat", "--cwd", there, "--", *CONNECT, code, typed="quick: one\n")
    assert begun.returncode == 0, begun.stderr
    assert "You said: quick: one" in begun.stdout
    assert f"{there} is a folder on {served.url}; its files are not kept here." in begun.stderr
    assert "#pair=" not in begun.stderr
    # From then on the machine's name will do, and the session remembers it.
    again = far(served, "chat", "--cwd", there, "--", *CONNECT, "localhost", typed="quick: two\n")
    assert f"{there} is a folder on localhost; its files are not kept here." in again.stderr
    (row,) = map(json.loads, far(served, "list", "two", "--json").stdout.splitlines())
    far(served, "agent", "stop", "--all")
    on = far(served, "continue", row["sessionId"], typed="quick: three\n")
    assert "You said: quick: three" in on.stdout, on.stderr
    assert "is a folder on localhost" in on.stderr
    assert snapshots(served) == [None, None]
    own = {"ACPHOLD_JOURNAL": str(served.folder / "own.db")}
    far(served, "chat", "--cwd", there, "demo", typed="quick: mine\n", **own)
    assert [*map(bool, snapshots(served, **own))] == [True]  # an agent of this machine
    far(served, "agent", "stop", "--all")
    far(served, "agent", "stop", "--all", **own)


def test_a_folder_that_is_only_there_is_worked_in_and_one_that_is_nowhere_is_said_to_be(
    served: Served, tmp_path: Path
) -> None:
    code = f"{served.url}#pair={served.pair}"
    words = ("--", *CONNECT, code)
    missing = str(tmp_path / "nowhere")
    done = far(served, "chat", "--cwd", missing, *words, typed="quick: one\n")
    assert f"{missing} is a folder on" in done.stderr
    assert "Traceback" not in done.stderr
    far(served, "agent", "stop", "--all")


def test_what_stands_in_the_way_of_a_server_is_said_with_what_to_do(served: Served) -> None:
    nobody = f"http://localhost:{own_port()}"
    for words, why in {
        (served.url,): "has not paired with it",
        (f"{served.url}#pair=WRONG",): "does not accept this code",
        (f"{nobody}#pair=X",): "is `acphold serve` running?",
        ("cellar",): "no server is known as 'cellar'",
        ("https://",): "is not the address of a server",
        (served.url, "--", "some-agent"): "already names the agent",
    }.items():
        done = far(served, "connect", *words)
        assert done.returncode in (1, 2), done
        assert why in done.stderr
        assert "Traceback" not in done.stderr
    far(served, "connect", f"{served.url}#pair={served.pair}")
    tokens = served.run("access", "list")
    served.run("access", "revoke", *(line.split()[0] for line in tokens.splitlines()[1:]))
    until = time.monotonic() + SECONDS  # the server looks at its tokens now and then
    while "the token was revoked" not in (said := far(served, "connect", served.url).stderr):
        assert time.monotonic() < until, said


def test_a_person_who_pairs_in_a_terminal_is_told_how_to_go_on(served: Served) -> None:
    code = f"{served.url}#pair={served.pair}"
    for given in (code, code, served.url, "localhost"):  # the code is used up, and it is known
        with terminal([*CONNECT, given], laptop(served)) as one:
            one.until("is paired with this machine", "acphold chat -- acphold connect http://local")
            assert one.ended() == 0


async def test_a_bot_elsewhere_reads_what_waits_at_a_server_and_answers_it(tmp_path: Path) -> None:
    agent = tuple(scripted_agent(info={"name": "scripted", "version": "1"}))
    with serving(tmp_path, agent=agent) as served:
        token = served.token("--scope", "watch", "--scope", "answer")
        bot = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLES / "far_bot.py"), served.url),
            env={**os.environ, "ACPHOLD_TOKEN": token},
            stdout=asyncio.subprocess.PIPE,
        )
        assert bot.stdout is not None
        try:
            async with asyncio.timeout(SECONDS), served.session(on_permission=_never) as asking:
                await asking.prompt(json.dumps([ask(title="Look at it", kind="read")]))
                assert await bot.stdout.readline() == b"allowed Look at it\n"
                left = asking.prompt(json.dumps([ask("t2", title="Run it", kind="execute")]))
                running = asyncio.ensure_future(left)
                while not served.run("inbox", "--json"):  # noqa: ASYNC110 - it is in another process
                    await asyncio.sleep(0)
                assert not running.done()
                asking.cancel()
                await running
        finally:
            bot.kill()
            await bot.wait()


async def _never(_: acphold.PermissionQuestion) -> bool:
    await asyncio.Event().wait()
    return False
