"""`acphold connect HOST`: the command that ssh gets for the other machine."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve as serve_websockets

from acphold.faces.cli import packed_words
from acphold.faces.cli.packed_words import pack, unpack
from acphold.faces.cli.ssh import host_option
from acphold.live.agents.client_methods import may_ask
from tests.cli.command_line import CommandLine
from tests.client.test_hostile_peers import METHODS, SIGN_INS, Machine
from tests.editor import editor

SSH = """\
#!/bin/sh
for word; do echo "$word" >&2; done
"""


@pytest.mark.parametrize(
    ("words", "runs", "typed"),
    [
        (["connect", "me@there", "claude"], ["wrap", "claude"], None),
        (["connect", "me@there", "--", "it", "--acp"], ["wrap", "--", "it", "--acp"], None),
        (["list", "--host", "me@there", "--json"], ["list", "--json"], "me@there"),
    ],
)
def test_only_commands_that_print_commands_learn_how_the_machine_is_called_here(
    acphold: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    runs: list[str],
    typed: str | None,
) -> None:
    """An editor that connects starts agents there, which would inherit the name."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    done = acphold.run_as_process(*words, PATH=f"{tmp_path}:/usr/bin:/bin")
    given = [line for line in done.err.splitlines() if line]
    assert given[given.index("--") + 1] == "me@there"
    with monkeypatch.context() as patch:
        patch.setattr(packed_words, "typed_host", "")
        assert unpack(given[-1].rpartition("' acphold ")[2].split()) == runs
        assert packed_words.typed_host == (typed or "")


def test_the_typed_machine_is_named_whenever_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed_words, "typed_host", "")
    assert host_option() == ""
    assert unpack(pack("me@there", ["list"]).split()) == ["list"]
    assert [host_option(), host_option()] == [" --host me@there"] * 2


@pytest.mark.slow
async def test_a_server_that_asks_for_everything_gets_nothing_of_this_machine(
    tmp_path: Path,
) -> None:
    machine, refused = Machine(tmp_path), dict[str, int]()
    all_answered = asyncio.Event()
    wanted = [it for it in METHODS if not may_ask("network", it)]

    async def attend(connection: ServerConnection) -> None:
        async for raw in connection:
            said = json.loads(raw)
            result: dict[str, Any] = {"sessionId": "s"}
            if said.get("method") == "initialize":
                assert not {"fs", "terminal"} & said["params"]["clientCapabilities"].keys()
                result = {"protocolVersion": 1, "authMethods": SIGN_INS}
            if "method" in said:
                answer = {"jsonrpc": "2.0", "id": said["id"], "result": result}
                await connection.send(json.dumps(answer))
            else:
                refused[said["id"]] = said["error"]["code"]
                if len(refused) == len(wanted):
                    all_answered.set()
            if said.get("method") == "session/new":
                for method in wanted:
                    asked = {"method": method, "params": machine.params(method, "s")}
                    await connection.send(json.dumps({"jsonrpc": "2.0", "id": method, **asked}))

    async with serve_websockets(attend, "127.0.0.1", 0) as server, asyncio.timeout(60):
        url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/acp"
        words = [sys.executable, "-m", "acphold", "connect", url]
        state = {"XDG_STATE_HOME": str(tmp_path / "state")}
        async with editor(words, journal=tmp_path / "journal.db", env=state) as one:
            files = {"readTextFile": True, "writeTextFile": True}
            hello = await one.initialize(fs=files, terminal=True)
            assert [it["id"] for it in hello["authMethods"]] == ["plain", "typed"]
            await one.new(tmp_path)
            await all_answered.wait()
            assert [it for it in one.messages if "method" in it] == []
    assert {*refused.values()} == {-32601}
    assert (machine.written.exists(), machine.ran.exists()) == (False, False)
