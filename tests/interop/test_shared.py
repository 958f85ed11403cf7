"""Sessions that several clients hold, and that outlive them: programs of others at both ends."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.editor import scripted_agent
from tests.interop.client import Client, introduction, opening, prompt
from tests.interop.conversation import text
from tests.interop.model_endpoint import ModelEndpoint
from tests.interop.place import Place
from tests.interop.real_agents import CODEX
from tests.interop.test_official_sdks import python_agent, python_client, ts_client
from tests.web.network import own_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

ACPHOLD = (sys.executable, "-m", "acphold")
PROGRAMS = Path(sys.executable).parent


def by_daemon(agent: list[str]) -> list[str]:
    return [*ACPHOLD, "wrap", "--", *agent]


@asynccontextmanager
async def stopped(place: Place, **env: str) -> AsyncIterator[None]:
    """Stop all daemons at the end of the block."""
    try:
        yield
    finally:
        stopping = await asyncio.create_subprocess_exec(
            *ACPHOLD, "agent", "stop", "--all", "--yes", env=place.environment(**env)
        )
        assert await stopping.wait() == 0


async def test_both_official_clients_hold_one_session_and_see_the_same(place: Place) -> None:
    acphold = by_daemon(python_agent())
    async with (
        stopped(place),
        place.client(python_client(acphold)) as one,
        place.client(ts_client(acphold)) as other,
    ):
        for client in (one, other):
            await client.call("initialize", introduction())
        session_id = (await one.call("session/new", opening(place.work)))["sessionId"]
        turn = one.begin("session/prompt", prompt(session_id, "slow words"))
        await one.until(lambda: "tick3 " in said(one, session_id))
        await other.call("session/load", opening(place.work, session_id))
        other.tell("session/cancel", {"sessionId": session_id})
        assert (await one.answer(turn))["stopReason"] == "cancelled"
        await other.call("session/prompt", prompt(session_id, "from the other"))
        await one.until(lambda: "from the other" in text(one.updates(session_id)))
        await one.until(lambda: said(one, session_id) == said(other, session_id))
        assert said(one, session_id).count("tick3 ") == 1


def said(client: Client, session_id: str) -> str:
    """The agent's text, as shown to this client."""
    return "".join(
        update["content"].get("text", "")
        for update in client.updates(session_id)
        if update["sessionUpdate"] == "agent_message_chunk"
    )


async def test_a_real_agent_goes_on_when_its_editor_is_killed(
    place: Place, model: ModelEndpoint
) -> None:
    acphold = by_daemon(CODEX.command())
    env = CODEX.prepare(place.home, model.url)
    async with stopped(place, **env):
        async with place.client(acphold, **env) as editor:
            await editor.call("initialize", introduction())
            session_id = (await editor.call("session/new", opening(place.work)))["sessionId"]
            editor.begin("session/prompt", prompt(session_id, "SLOW now"))
            await editor.until(lambda: "tick3 " in said(editor, session_id))
        # The block has killed it, in the middle of the turn.
        async with place.client(acphold, **env) as other:
            await other.call("initialize", introduction())
            await other.call("session/load", opening(place.work, session_id))
            assert "tick3 " in said(other, session_id)
            await other.until(lambda: "tick199 " in said(other, session_id))
            assert said(other, session_id).count("tick100 ") == 1


async def test_an_editor_reaches_an_agent_over_a_real_ssh(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {
        "PATH": f"{PROGRAMS}:/usr/bin:/bin",
        **{
            name: value
            for name, value in place.environment().items()
            if name.startswith(("ACPHOLD_", "XDG_"))
        },
    }
    with ssh_server(tmp_path, there) as programs:
        path = f"{programs}:{os.environ['PATH']}"
        command = [*ACPHOLD, "connect", "there", "--", *python_agent()]
        async with place.client(command, PATH=path) as editor:
            await editor.call("initialize", introduction())
            session_id = (await editor.call("session/new", opening(place.work)))["sessionId"]
            editor.begin("session/prompt", prompt(session_id, "slow words"))
            await editor.until(lambda: "tick3 " in said(editor, session_id))
        # The connection has broken; the agent there has not.
        async with place.client(command, PATH=path) as editor:
            await editor.call("initialize", introduction())
            await editor.call("session/load", opening(place.work, session_id))
            await editor.until(lambda: "tick9 " in said(editor, session_id))
        monkeypatch.setenv("PATH", path)
        listed = await asyncio.to_thread(run, place, *ACPHOLD, "list", "--host", "there")
        assert "slow words" in listed
        await asyncio.to_thread(
            run, place, "ssh", "there", shlex.join([*ACPHOLD, "agent", "stop", "--all", "--yes"])
        )


async def test_over_a_real_ssh_an_agent_edits_and_runs_commands_on_its_own_machine(
    place: Place, tmp_path: Path
) -> None:
    names = ("ACPHOLD_", "XDG_")
    there = {
        **{key: value for key, value in place.environment().items() if key.startswith(names)},
        **{"PATH": f"{PROGRAMS}:/usr/bin:/bin", "ACPHOLD_MACHINE": "far"},
    }
    edited, secret = place.work / "edited", tmp_path / "secret"
    (place.work / "read").write_text("of the far machine")
    secret.write_text("of the near machine")
    printed = {"command": "sh", "args": ["-c", "echo $ACPHOLD_MACHINE >ran"]}
    steps = [
        {"ask": ["fs/write_text_file", {"path": str(edited), "content": "by the agent"}]},
        {"ask": ["fs/read_text_file", {"path": str(place.work / "read")}]},
        {"ask": ["fs/read_text_file", {"path": str(secret)}]},
        {"ask": ["terminal/create", printed | {"cwd": str(place.work)}]},
        {"ask": ["_vendor/run", printed]},
    ]
    with ssh_server(tmp_path, there) as programs:
        path = f"{programs}:{os.environ['PATH']}"
        command = [*ACPHOLD, "connect", "there", "--", *scripted_agent()]
        async with place.client(command, PATH=path) as editor:
            await editor.call("initialize", introduction(terminal=True))
            session_id = (await editor.call("session/new", opening(place.work)))["sessionId"]
            await editor.call("session/prompt", prompt(session_id, json.dumps(steps)))
            answers = said(editor, session_id)
            assert editor.asked == []
            ran = place.work / "ran"
            await editor.until(lambda: ran.exists() and ran.read_text() == "far\n")
        await asyncio.to_thread(
            run,
            place,
            str(programs / "ssh"),
            "there",
            shlex.join([*ACPHOLD, "agent", "stop", "--all", "--yes"]),
        )
    assert edited.read_text() == "by the agent"
    assert "of the far machine" in answers
    assert "of the near machine" not in answers
    assert "terminalId" in answers
    assert "-32601" in answers


def run(place: Place, *command: str) -> str:
    """Run a command, which must succeed, and return its output."""
    return subprocess.run(
        command, env=place.environment(), stdout=subprocess.PIPE, text=True, check=True, timeout=60
    ).stdout


@contextmanager
def ssh_server(folder: Path, there: Mapping[str, str]) -> Iterator[Path]:
    """An `sshd` on loopback that lets us in, with these variables; a folder with an `ssh` that
    knows it as `there`."""
    server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert server, "no sshd: install openssh-server"
    for name in ("host", "ours"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(keygen, check=True)
    port = own_port()
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/ours.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
        f"SetEnv {' '.join(f'{name}={value}' for name, value in there.items())}\n"
    )
    (folder / "ssh_config").write_text(
        f"Host there\n HostName 127.0.0.1\n Port {port}\n IdentityFile {folder}/ours\n"
        "IdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        "LogLevel ERROR\n"
    )
    (programs := folder / "programs").mkdir()
    ssh = programs / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    ssh.chmod(0o755)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd of root goes before anybody is known
    log = folder / "sshd.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [server, "-D", "-e", "-f", str(folder / "sshd_config")],
            stderr=stderr,
        )
    try:
        until_it_listens(port, process, log)
        yield programs
    finally:
        process.terminate()
        process.wait()


LISTENS_WITHIN = 30.0  # seconds: making its first keys takes a loaded machine a while


def until_it_listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LISTENS_WITHIN
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)  # a port that nobody listens at refuses at once
    raise AssertionError(f"sshd does not listen: {log.read_text()}")
