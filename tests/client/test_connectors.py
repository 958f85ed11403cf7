"""Agents that are programs: started, introduced, lost, started again, ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import acphold
from acphold.errors import AgentExitedError, AgentStartError
from tests.editor import scripted_agent
from tests.plugin import Agent, Until
from tests.watched_processes import lives


async def test_three_lines_talk_to_an_agent_and_leave_nothing_behind(
    until: Until, pid_file: Path, tmp_path: Path
) -> None:
    command = scripted_agent(deaf=True)
    spawn = f'[{{"spawn": "echo $PPID $$ > {pid_file}; exec sleep 1000"}}, {{"until": "cancel"}}]'
    async with acphold.connect(*command, cwd=tmp_path) as agent:
        session = await agent.new_session()
        assert session.cwd == str(tmp_path)
        assert (await session.prompt('[{"say": "hello"}]')).text == "hello"
        session.prompt(spawn)
        until(lambda: len(pid_file.read_text().split()) == 2)
    until(lambda: not any(lives(int(pid)) for pid in pid_file.read_text().split()))


async def test_a_lost_agent_is_an_error_with_its_exit_status_and_last_words() -> None:
    async with acphold.connect(*scripted_agent()) as agent:
        session = await agent.new_session()
        steps = '[{"say": "half"}, {"stderr": "out of memory"}, {"exit": 3}]'
        turn = session.prompt(steps)
        with pytest.raises(AgentExitedError, match=r"exit status 3.*out of memory") as caught:
            await turn
        assert caught.value.status == "exit status 3"
        assert caught.value.stderr.splitlines()[-1] == "out of memory"
        assert turn.text == "half"
        with pytest.raises(AgentExitedError, match="exit status 3"):
            await agent.new_session()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit('no config')", r"ended before it answered `initialize`.*no config"),
        ("print('{}'); sys.stdin.read()", "did not answer `initialize` within 0.5 s"),
        ("print('Usage: x'); sys.exit('no')", 'no.*; it wrote to stdout: "Usage: x"'),
        (
            "print('Usage: x', flush=True); sys.stdin.read()",
            'within 0.5 s; it wrote to stdout: "Usage: x"; is it an ACP agent',
        ),
    ],
)
async def test_a_program_that_is_no_agent_of_this_version_cannot_be_connected_to(
    code: str, said: str, agent: Agent
) -> None:
    timeout = 0.5 if "within" in said else 20.0
    with pytest.raises(AgentStartError, match=said):
        async with acphold.connect(*agent(code), start_timeout=timeout):
            pass


@pytest.mark.parametrize(
    ("program", "way"),
    [("no-such-agent", "install it"), ("no-such-agent --acp", "give its words one by one")],
)
async def test_a_program_that_does_not_exist_cannot_be_connected_to(program: str, way: str) -> None:
    with pytest.raises(AgentStartError, match=f"no such program on PATH; {way}"):
        async with acphold.connect(program):
            pass


async def test_an_option_that_there_is_not_is_refused() -> None:
    misspelt: Any = {"on_permision": lambda question: True}
    with pytest.raises(TypeError, match="has no option 'on_permision'"):
        async with acphold.connect(*scripted_agent(), **misspelt):
            pass


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"journal": "x.db"}, "without durable"),
        ({"name": "x"}, "without durable"),
        ({"token": "x"}, "for an address, not for a command"),
        ({"ca": "x.pem"}, "for an address, not for a command"),
    ],
)
async def test_an_option_that_would_do_nothing_is_refused(option: Any, why: str) -> None:
    with pytest.raises(acphold.DeclarationError, match=why):
        async with acphold.connect(*scripted_agent(), **option):
            pass
