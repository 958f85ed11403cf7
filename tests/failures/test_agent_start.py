"""An agent that cannot start, ends at once, or sends nonsense never causes a hang."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Defaults
from tests.editor import Editor, Refused, editor, introduced, scripted_agent
from tests.owners import lone_command
from tests.watched_processes import below, gone, until


async def refused(client: Editor) -> Refused:
    with pytest.raises(Refused) as caught:
        await client.initialize()
    return caught.value


async def serves(client: Editor) -> None:
    session = await client.new()
    assert await client.prompt(session, {"say": "hi"}) == {"stopReason": "end_turn"}
    assert client.text() == "hi"
    assert await client.leave() == 0


async def test_a_program_that_does_not_exist_is_named_and_may_appear_later(
    journal: Path, tmp_path: Path
) -> None:
    program = tmp_path / "agent"
    async with editor(lone_command([str(program)]), journal=journal) as client:
        error = await refused(client)
        assert str(program) in error.message
        assert "the file does not exist" in error.message
        assert str(program) in (await refused(client)).message
        words = " ".join(f"'{word}'" for word in scripted_agent())
        program.write_text(f"#!/bin/sh\nexec {words}\n")
        assert "not executable" in (await refused(client)).message
        program.chmod(0o755)
        await client.initialize()
        await serves(client)


async def test_a_program_that_exits_at_once_is_reported_with_its_last_words(journal: Path) -> None:
    agent = scripted_agent(initialize="exit")
    async with editor(lone_command(agent), journal=journal) as client:
        for _ in range(2):
            error = await refused(client)
            assert "exit status 7" in error.message
            assert error.message.endswith("(exit status 7): no licence found")
            assert error.message.count("ended") == error.message.count("no licence") == 1
        assert await client.leave() == 0


async def test_the_last_words_of_an_agent_that_draws_boxes_are_what_stands_in_them(
    journal: Path,
) -> None:
    box = "╭─ Error ────────╮\n│ There is no    │\n│ key. \x1b[0m         │\n╰────────────────╯"
    code = f"import sys; sys.stderr.buffer.write({box!r}.encode()); sys.exit(7)"
    async with editor(lone_command([sys.executable, "-c", code]), journal=journal) as client:
        error = await refused(client)
        assert error.message.endswith("(exit status 7): There is no key.")


@pytest.mark.parametrize("code", ["", "print('Usage: agent [OPTIONS]')", "raise SystemExit(2)"])
async def test_a_program_that_ends_before_it_is_asked_anything_is_reported(
    journal: Path, code: str
) -> None:
    async with editor(lone_command([sys.executable, "-c", code]), journal=journal) as client:
        assert "ended before it answered `initialize`" in (await refused(client)).message
        assert await client.leave() == 0


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(1000)",
        "import sys\nfor line in sys.stdin: print('What?', flush=True)",
        "while True: print('tick')",
    ],
)
async def test_an_agent_that_never_answers_initialize_is_given_up_after_the_start_timeout(
    journal: Path, code: str, defaults: Defaults
) -> None:
    defaults(start_timeout=0.5)
    command = lone_command([sys.executable, "-c", code])
    async with editor(command, journal=journal) as client:
        agents = await until(lambda: below(client.process.pid))
        error = await refused(client)
        assert "did not answer `initialize` within 0.5 s" in error.message
        await gone(agents)


@pytest.mark.parametrize("more", ["", "; sys.stdout.flush(); sys.stdin.read()"])
async def test_what_a_program_writes_in_place_of_messages_is_quoted(
    journal: Path, more: str, defaults: Defaults
) -> None:
    defaults(start_timeout=1)
    code = f"import sys; print('Usage: agent [OPTIONS]'){more}"
    command = lone_command([sys.executable, "-c", code])
    async with editor(command, journal=journal) as client:
        assert 'it wrote to stdout: "Usage: agent [OPTIONS]"' in (await refused(client)).message


async def test_after_the_start_timeout_the_client_may_try_again(
    journal: Path, tmp_path: Path, defaults: Defaults
) -> None:
    defaults(start_timeout=2)
    flag = tmp_path / "flag"
    code = f"import os, sys, time\nif not os.path.exists({str(flag)!r}): time.sleep(1000)\n"
    code += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    agent = [sys.executable, "-c", code, *scripted_agent()[1:]]
    command = lone_command(agent)
    async with editor(command, journal=journal) as client:
        await refused(client)
        flag.touch()
        await client.initialize()
        await serves(client)


async def test_garbage_on_stdout_has_no_effect(journal: Path) -> None:
    agent = scripted_agent(initialize="garbage")
    async with introduced(lone_command(agent), journal=journal) as client:
        session = await client.new()
        lines = [
            "DEBUG: thinking",
            "[1,2,3]",
            "{}",
            "\x1b[31mred",
            '{"jsonrpc":"2.0","id":77,"result":{}}',
            '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$ID"}}',
            '{"jsonrpc":"2.0","method":"session/update"}',
            '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$ID","update":7}}',
            '{"jsonrpc":"2.0","method":"session/update","params":' + "[" * 990 + "]" * 990 + "}",
            "[" * 100_000,
            "",
        ]
        steps = [{"line": text} for text in lines]
        await client.prompt(session, {"say": "a"}, *steps, {"say": "b"})
        assert client.text() == "ab"
        await client.load(session)
        assert client.text() == "abab"
        assert await client.leave() == 0


@pytest.mark.parametrize("field", ["_meta", "content", "rawOutput", "newer"])
async def test_an_update_nested_as_deep_as_may_be_is_shown_and_replayed(
    journal: Path, field: str
) -> None:
    deep = '{"a":' * 480 + "1" + "}" * 480
    body = f'{{"sessionUpdate":"tool_call","toolCallId":"t","title":"T","{field}":{deep}}}'
    params = f'{{"sessionId":"$ID","update":{body}}}'
    text = f'{{"jsonrpc":"2.0","method":"session/update","params":{params}}}'
    command = lone_command(scripted_agent())
    async with introduced(command, journal=journal) as client:
        session = await client.talk({"line": text}, {"say": "b"})
        assert json.loads(body) in client.updates()
        assert await client.leave() == 0  # settled, too
    async with introduced(command, journal=journal) as client:
        await client.load(session)
        assert json.loads(body) in client.updates()
        assert await client.prompt(session, "and now?") == {"stopReason": "end_turn"}


async def test_megabytes_on_a_stderr_that_nobody_reads_have_no_effect(journal: Path) -> None:
    # The editor reads neither the agent's words nor our own log.
    agent = scripted_agent(initialize="flood")
    command = lone_command(agent, "--log-level", "debug")
    async with introduced(command, journal=journal, read_stderr=False) as client:
        for _ in range(5000):
            client.send_line(b"garbage" * 20)
        await serves(client)


async def test_an_agent_that_speaks_another_version_is_refused_in_words(journal: Path) -> None:
    agent = scripted_agent(initialize="version 2")
    async with editor(lone_command(agent), journal=journal) as client:
        for _ in range(2):
            assert "speaks version 2" in (await refused(client)).message
        await until(lambda: not below(client.process.pid))
        assert await client.leave() == 0


@pytest.mark.parametrize(
    "answer",
    [
        {"result": None},
        {"result": "hello"},
        {"result": []},
        {"result": {}},
        {"result": {"protocolVersion": "one"}},
        {},
    ],
)
async def test_an_answer_that_is_not_one_is_refused_in_words(
    journal: Path, answer: dict[str, Any]
) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 1, **answer})
    async with editor(lone_command(scripted_agent(initialize=line)), journal=journal) as client:
        error = await refused(client)
        assert error.code == -32603
        assert "is it an ACP agent?" in error.message
        with pytest.raises(Refused) as caught:
            await client.new()
        assert caught.value.code == -32600
        assert await client.leave() == 0


async def test_an_agent_that_refuses_initialize_is_heard(journal: Path) -> None:
    line = '{"jsonrpc":"2.0","id":1,"error":{"code":-32099,"message":"not today","data":{"x":1}}}'
    async with editor(lone_command(scripted_agent(initialize=line)), journal=journal) as client:
        for _ in range(2):
            error = await refused(client)
            assert (error.code, error.message, error.data) == (-32099, "not today", {"x": 1})
        assert await client.leave() == 0


async def test_why_the_agent_could_not_be_started_is_in_the_log_too(
    journal: Path, tmp_path: Path
) -> None:
    log = tmp_path / "acphold.log"
    command = lone_command(["/no/such/agent"], "--log-file", str(log))
    async with editor(command, journal=journal) as client:
        with pytest.raises(Refused, match="/no/such/agent"):
            await client.initialize()
        await client.leave()
    with log.open() as file:
        assert "cannot start '/no/such/agent'" in file.read()
