"""Commands of a turn: in the client's terminal where it has one, else here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import acphold
from acp_wire.schema import ClientCapabilities
from acphold.library.bounds import LIVE_CHARACTERS
from acphold.library.workspace import CommandExit
from acphold.testing import Received, WatchedAgent, connect
from tests.library.test_turn import agent_that, one_turn, opened


async def until_it_prints(running: acphold.RunningCommand) -> str:
    """Return the output of a command as soon as there is any."""
    async with asyncio.timeout(10):
        while not (output := await running.output()).text:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.01)
    return output.text


async def test_a_command_runs_here_in_the_cwd_with_its_environment(work: Path) -> None:
    async def run(turn: acphold.Turn) -> None:
        command = "pwd; echo $WHAT; exit 3"
        async with turn.terminal("/bin/sh", "-c", command, env={"WHAT": "ever"}) as running:
            ended = await running.wait()
            output = await running.output()
            assert not running.in_client
        await turn.say(f"{output.text}{ended.code} {output.exit == ended} {output.truncated}")

    result = await one_turn(run, cwd=work)
    assert result.text.split() == [str(work), "ever", "3", "True", "False"]


async def test_a_command_can_be_awaited_killed_and_read_afterwards() -> None:
    async def run(turn: acphold.Turn) -> None:
        running = await turn.terminal("/bin/sh", "-c", "echo begun; sleep 600")
        await until_it_prints(running)
        await running.kill()
        ended = await running.wait()
        await turn.say(f"{(await running.output()).text} {ended.signal}")

    result = await one_turn(run)
    assert result.text.split() == ["begun", "SIGTERM"]


@pytest.mark.parametrize(
    ("command", "cwd", "why"),
    [
        ("no-such-program", None, "no such program"),
        ("true", "/", "outside the folders"),
        ("true", "missing", "there is no folder"),
    ],
)
async def test_what_cannot_run_raises_with_the_reason(
    command: str, cwd: str | None, why: str
) -> None:
    async def run(turn: acphold.Turn) -> None:
        with pytest.raises(acphold.WorkspaceError, match=why):
            await turn.terminal(command, cwd=cwd)
        await turn.say("told")

    assert (await one_turn(run)).text == "told"


WAITS = "echo one; until [ -e go ]; do sleep 0.02; done; echo two"
"""A command that prints, and prints again once there is a file `go`."""


async def run_shown(turn: acphold.Turn) -> None:
    async with (
        turn.tool("Run", kind="execute") as call,
        turn.terminal("/bin/sh", "-c", turn.text) as running,
    ):
        await call.terminal(running)
        await running.wait()


def shown(told: Received) -> list[str]:
    """The present content of each tool call, as text."""
    return [b"".join(call.content).decode() for call in told.tool_calls]


async def test_the_output_of_a_command_is_shown_while_it_runs(work: Path) -> None:
    async with opened(agent_that(run_shown), work) as (client, session):
        turn = session.prompt(WAITS)
        told = await session.until(lambda told: "one" in "".join(shown(told)))
        assert "two" not in shown(told)[0]
        (work / "go").touch()
        result = await turn
        replayed = (await client.load_session(session.id)).received
    assert shown(result.received) == shown(replayed)
    assert "```\\none\\ntwo\\n```" in shown(result.received)[0]


async def test_what_was_shown_of_a_command_stays_when_it_is_cancelled(work: Path) -> None:
    async with opened(agent_that(run_shown), work) as (_, session):
        turn = session.prompt(WAITS)
        await session.until(lambda told: "one" in "".join(shown(told)))
        session.cancel()
        result = await turn
    [call] = result.tool_calls
    assert (call.status, "one" in shown(result.received)[0]) == ("failed", True)


async def test_a_command_that_prints_a_lot_is_shown_in_few_small_pieces(work: Path) -> None:
    command = (
        "i=0; while [ $i -lt 4000 ]; do echo line $i of many that are printed; i=$((i+1)); done"
    )
    result = await one_turn(run_shown, prompt=command, cwd=work)
    *live, last = [
        update for update in result.received.of("tool_call_update") if update.get("content")
    ]
    assert len(live) < 40
    assert all(len(json.dumps(update)) < 2 * LIVE_CHARACTERS for update in live)
    assert "line 3999 of" in json.dumps(last)


@pytest.mark.parametrize("by_line", [False, True])
async def test_the_output_of_a_command_can_be_iterated_over(work: Path, by_line: bool) -> None:
    async def run(turn: acphold.Turn) -> None:
        async with turn.terminal(
            "/bin/sh", "-c", f"printf 'zero\\r\\n'; {WAITS}; printf three"
        ) as running:
            async for piece in running.lines() if by_line else running:
                await turn.say(f"<{piece}>")
                if "one" in piece:
                    (work / "go").touch()

    result = await one_turn(run, cwd=work)
    if by_line:
        assert result.text == "<zero><one><two><three>"
    else:
        assert result.text.replace("><", "") == "<zero\r\none\ntwo\nthree>"


class Screen:
    """A client's terminals, which run nothing."""

    def __init__(self, *, never_ends: bool = False, prints: Sequence[str] = ("seen",)) -> None:
        self.made: list[dict[str, Any]] = []
        self.never_ends = never_ends
        self.prints = list(prints)
        self.printed = asyncio.Event()

    async def create(self, params: dict[str, Any]) -> dict[str, Any]:
        self.made.append(params)
        return {"terminalId": "t1"}

    async def output(self, params: dict[str, Any]) -> dict[str, Any]:
        output = self.prints.pop(0) if len(self.prints) > 1 else self.prints[0]
        if len(self.prints) == 1:
            self.printed.set()
        return {"output": output, "truncated": True, "exitStatus": {"exitCode": 0}}

    async def wait(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.never_ends:
            await asyncio.Event().wait()
        await self.printed.wait()
        return {"exitCode": None, "signal": "SIGINT"}

    async def release(self, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    @asynccontextmanager
    async def facing(self, agent: acphold.Agent) -> AsyncIterator[WatchedAgent]:
        answers = {
            "terminal/create": self.create,
            "terminal/output": self.output,
            "terminal/wait_for_exit": self.wait,
            "terminal/release": self.release,
        }
        capabilities = ClientCapabilities(terminal=True)
        async with connect(agent, capabilities=capabilities, handlers=answers) as client:
            yield client


def methods(client: WatchedAgent) -> list[str]:
    return [method.removeprefix("terminal/") for method, _ in client.requests]


async def test_a_client_with_terminals_runs_and_shows_it(work: Path) -> None:
    async def run(turn: acphold.Turn) -> None:
        async with (
            turn.tool("Run", kind="execute") as call,
            turn.terminal("make", "test", env={"A": "b"}, output_bytes=100) as running,
        ):
            await call.terminal(running)
            assert await running.wait() == CommandExit(None, "SIGINT")
        await turn.say(str(running.in_client))

    screen = Screen()
    screen.printed.set()
    async with screen.facing(agent_that(run)) as client:
        result = await (await client.new_session(work)).prompt("go")
        assert methods(client) == ["create", "wait_for_exit", "output", "release"]
    [made] = screen.made
    del made["sessionId"]
    assert made == {
        "command": "make",
        "args": ["test"],
        "env": [{"name": "A", "value": "b"}],
        "cwd": str(work),
        "outputByteLimit": 100,
    }
    [call] = result.tool_calls
    assert call.content == [b'{"type":"terminal","terminalId":"t1"}']
    assert b'"output":"seen"' in (call.raw_output or b""), "for a replay knows no terminal"


async def test_what_runs_in_the_client_is_released_when_the_turn_is_cancelled() -> None:
    async def run(turn: acphold.Turn) -> None:
        running = await turn.terminal("sleep", "600")
        await turn.say("waiting")
        await running.wait()

    async with Screen(never_ends=True).facing(agent_that(run)) as client:
        session = await client.new_session()
        turn = session.prompt("go")
        await session.until_said("waiting")
        session.cancel()
        assert (await turn).stop_reason == "cancelled"
        assert methods(client)[-1] == "release"


async def test_a_command_of_the_client_can_be_iterated_over_though_its_beginning_is_dropped() -> (
    None
):
    async def run(turn: acphold.Turn) -> None:
        async with turn.terminal("make") as running:
            async for piece in running:
                await turn.say(f"<{piece}>")

    prints = ["", "one two", "one two", "two three", "all new"]
    async with Screen(prints=prints).facing(agent_that(run)) as client:
        result = await (await client.new_session()).prompt("go")
    assert result.text == "<one two>< three><all new>"


async def test_the_output_of_a_command_of_the_client_is_there_after_its_release() -> None:
    async def run(turn: acphold.Turn) -> None:
        async with turn.terminal("make") as running:
            pass
        await turn.say((await running.output()).text)

    async with Screen().facing(agent_that(run)) as client:
        assert (await (await client.new_session()).prompt("go")).text == "seen"
