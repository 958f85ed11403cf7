"""A process in a sandbox that shares the folder of the sockets only looks."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.cli.test_shared_daemon import Home, begin_question, home
from tests.editor import DEADLINE, introduced, scripted_agent, wrap_command
from tests.screen_terminal import terminal
from tests.watched_processes import until

__all__ = ["home"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells where a process is"),
]

SECCOMP = """
import ctypes, os, struct, sys
allow = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 1, ctypes.addressof(allow)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Runs a program with NoNewPrivs and a Seccomp filter that allows everything; prctl(2)."""

BWRAP = [
    *("bwrap", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
    *("--bind", tempfile.gettempdir(), tempfile.gettempdir()),
]

SANDBOXES = {
    "NoNewPrivs": ["setpriv", "--no-new-privs"],
    "Seccomp": [sys.executable, "-c", SECCOMP],
    "mounts": ["unshare", "--mount"],
    "user namespace": ["unshare", "--user", "--map-root-user"],
    "bwrap": BWRAP,
    "bwrap with processes": [
        *BWRAP,
        *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--new-session"),
    ],
}

CLIENT = """
import json, socket, sys
path, session, capabilities, *wanted = sys.argv[1:]
joined = socket.socket(socket.AF_UNIX)
joined.connect(path)
heard, said = joined.makefile("r"), joined.makefile("w")  # one for both forgets lines
asked, answers = 0, {}

def send(**message):
    said.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    said.flush()

def take():
    global asked
    got = json.loads(heard.readline())
    if got.get("method") == "session/request_permission":
        asked += 1
        send(id=got["id"], result={"outcome": {"outcome": "selected", "optionId": "yes"}})
    if "method" not in got:
        answers[got["id"]] = got.get("error") or got["result"]

def call(method, **params):
    number = len(answers)
    send(id=number, method=method, params=params)
    while number not in answers:
        take()
    return answers[number]

told = [
    call("initialize", protocolVersion=1, clientCapabilities=json.loads(capabilities)),
    call("session/load", sessionId=session, cwd="/", mcpServers=[]),
]
if wanted == ["asked"]:
    while not asked:
        take()
else:
    told.append(call("_acphold/queue", sessionId=session, change={"do": "hold"}))
    told.append(call("_acphold/stop", sessionId=session))
    told.append(call("_acphold/presence"))
    for _ in range(20):  # if it were asked, it would have been by now
        call("_acphold/presence")
print(json.dumps({"asked": asked, "told": told}))
"""
"""A client of the socket that tries to do what a person does, and answers "yes" when asked."""


async def join(
    home: Home, session: str, before: list[str], *wanted: str, **capabilities: Any
) -> tuple[int, list[dict[str, Any]]]:
    """How often that client, started by this command, is asked, and what it is told."""
    words = [home.socket(), session, json.dumps(capabilities), *wanted]
    command = [*before, sys.executable, "-c", CLIENT, *words]
    out = await asyncio.to_thread(
        subprocess.check_output, command, env=home.env, text=True, timeout=DEADLINE
    )
    found = json.loads(out)
    return found["asked"], found["told"]


@asynccontextmanager
async def asking(home: Home) -> AsyncIterator[tuple[str, asyncio.Future[Any]]]:
    """A session of an editor, and its turn, which waits for an answer."""
    async with home.editor() as one:
        session = await one.new(cwd="/")
        yield session, await begin_question(one, session)


PRETENDS = {"_meta": {"acphold/line": True, "acphold/tenant": None, "acphold/scopes": ["answer"]}}


@pytest.mark.parametrize("kind", SANDBOXES)
@pytest.mark.parametrize("capabilities", [{}, PRETENDS], ids=["plain", "a line"])
async def test_it_sees_the_session_and_neither_answers_nor_changes_anything(
    home: Home, kind: str, capabilities: dict[str, Any]
) -> None:
    sandbox = SANDBOXES[kind]
    if shutil.which(sandbox[0]) is None or not starts(sandbox):
        pytest.skip(f"{sandbox[0]} does not start here")
    await only_looks(home, sandbox, **capabilities)


async def only_looks(home: Home, sandbox: list[str], **capabilities: Any) -> None:
    """Assert that a client in this sandbox sees a session that asks, and can do nothing there."""
    async with asking(home) as (session, turn):
        asked, told = await join(home, session, sandbox, **capabilities)
        assert asked == 0
        _, loaded, queue, stop, presence = told
        assert "code" not in loaded
        for refused in (queue, stop):
            assert "runs in another sandbox or container" in refused["message"]
            assert "run on the host: acphold access places allow sandbox-" in refused["message"]
        assert presence["sessions"][0]["waiting"] is True
        assert (presence["fronts"], presence["places"]) == ([], {})
        assert not turn.done()


def starts(sandbox: list[str]) -> bool:
    return subprocess.run([*sandbox, "true"], check=False, capture_output=True).returncode == 0


async def test_the_same_client_outside_of_a_sandbox_answers(home: Home) -> None:
    async with asking(home) as (session, turn):
        asked, _ = await join(home, session, [], "asked")
        assert asked == 1
        assert (await turn)["stopReason"] == "end_turn"


async def test_a_place_may_do_more_once_the_person_has_allowed_it_by_the_name_it_is_told(
    home: Home,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("makes a namespace")
    staying = await asyncio.create_subprocess_exec("unshare", "--mount", "sleep", "1000")
    space = f"/proc/{staying.pid}/ns/mnt"
    inside = ["nsenter", f"--mount={space}"]
    try:
        await until(lambda: os.readlink(space) != os.readlink("/proc/self/ns/mnt"))
        async with asking(home) as (session, turn):
            name = (await join(home, session, inside))[1][3]["message"].rpartition(" ")[2]
            listed = home.run("access", "places").stdout
            assert f"{name}  looks  another mount namespace" in listed
            assert home.run("access", "places", "allow", name).returncode == 0
            assert f"{name}  allowed" in home.run("access", "places").stdout
            asked, _ = await join(home, session, inside, "asked")
            assert asked == 1
            await turn
            home.run("access", "places", "forbid", name)
            _, told = await join(home, session, inside)
            assert "access places allow" in told[3]["message"]
    finally:
        staying.kill()
        await staying.wait()


async def test_the_inbox_in_a_sandbox_says_why_it_cannot_answer(home: Home) -> None:
    command = ["setpriv", "--no-new-privs", sys.executable, "-m", "acphold", "inbox"]

    def look() -> None:
        with terminal(command, home.env | {"TERM": "xterm"}) as one:
            one.until("only be seen from here", "access places allow", "still open")
            assert one.ended() == 0

    async with asking(home) as (_, turn):
        await asyncio.to_thread(look)
        assert not turn.done()


async def test_an_editor_in_a_sandbox_is_told_why_it_cannot_prompt_in_a_session_of_outside(
    home: Home,
) -> None:
    inside = ["setpriv", "--no-new-privs", *wrap_command(scripted_agent())]
    async with home.editor() as one:
        session = await one.talk({"say": "outside"})
        async with introduced(inside, journal=home.journal, env=home.env) as two:
            await two.load(session)
            assert two.text() == "outside"
            prompt = [{"type": "text", "text": "x"}]
            refused = await two.refused("session/prompt", {"sessionId": session, "prompt": prompt})
            assert "run on the host: acphold access places allow sandbox-" in refused.message
            assert await two.talk({"say": "inside"}) != session
        assert len(home.daemons()) == 2
