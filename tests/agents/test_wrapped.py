"""A wrapped program: started, spoken to, ended, started again."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from acp_wire.errors import INTERNAL_ERROR
from acp_wire.rpc import NotificationReceived
from acp_wire.rpc.requests import Answer
from acp_wire.surroundings import Surroundings
from acphold.errors import (
    HELD_ELSEWHERE,
    OTHER_AGENT,
    AgentBusyError,
    AgentExitedError,
    AgentStartError,
    RemoteError,
)
from acphold.journal.lineage import identity
from acphold.journal.stores import open_journal
from acphold.live.agents import wrapped
from acphold.live.agents.capabilities import KEEPS_SESSIONS, KEPT_IN_FRONT
from acphold.live.agents.interface import (
    AgentExchange,
    AgentRequest,
    Event,
    Notified,
    Unheard,
    Updates,
    ask,
)
from acphold.live.agents.wrapped import DEFAULTS, ProcessAgent, ProcessOptions
from tests.editor import SCRIPTED, received, scripted_agent

DEADLINE = 20.0


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.updates: list[bytes] = []
        self.order: list[str] = []
        self.asked: list[bytes] = []
        self.notified: list[bytes] = []

    async def hear(self, event: Event) -> None:
        match event:
            case Updates(raws=raws):
                self.updates += raws
                self.order += ["update"] * len(raws)
            case Notified(method=method, params=params):
                self.order.append(method)
                self.notified.append(params)
            case Unheard():
                self.order.append("unheard")

    async def answer(self, asked: AgentRequest) -> bytes:
        self.asked.append(asked.params)
        return b'{"asked":true}'


@asynccontextmanager
async def agent(
    start_timeout: float = 5, **options: Any
) -> AsyncIterator[tuple[ProcessAgent, Heard]]:
    heard = Heard()
    process = ProcessAgent(
        scripted_agent(**options),
        heard,
        Surroundings.here(),
        ProcessOptions(start_timeout=start_timeout),
    )
    try:
        async with asyncio.timeout(2 * DEADLINE):
            yield process, heard
    finally:
        await process.aclose()


async def opened(process: ProcessAgent) -> str:
    """A session of the agent's."""
    result = await ask(process, "session/new", b'{"cwd":"/","mcpServers":[]}')
    return str(json.loads(result)["sessionId"])


@asynccontextmanager
async def in_session() -> AsyncIterator[tuple[ProcessAgent, Heard, str]]:
    """An agent with a session."""
    async with agent() as (process, heard):
        await process.initialize(b"{}")
        yield process, heard, await opened(process)


def prompt(session: str, *steps: Any) -> bytes:
    block = {"type": "text", "text": json.dumps(steps)}
    return json.dumps({"sessionId": session, "prompt": [block]}).encode()


class Into:
    """A call whose answer goes into a queue."""

    def __init__(self, answers: asyncio.Queue[Answer], method: str, params: bytes) -> None:
        self.method = method
        self.params = params
        self._answers = answers

    async def take(self, answer: Answer) -> None:
        self._answers.put_nowait(answer)


async def test_version_1_is_spoken_to_it_whatever_the_client_asked_for(tmp_path: Any) -> None:
    log = tmp_path / "log"
    async with agent(log=str(log)) as (process, _):
        await process.initialize(b'{"protocolVersion":7,"clientInfo":{"name":"e"},"x":1}')
    sent = json.loads(log.read_text().splitlines()[0])["params"]
    assert sent == {"protocolVersion": 1, "clientInfo": {"name": "e"}, "x": 1}


KEY = f"{Path(sys.executable).name} {SCRIPTED}"
"""The key of a scripted agent that does not send its name."""


async def test_it_is_known_by_its_name_and_else_by_its_command() -> None:
    async with agent() as (process, _):
        assert process.key == KEY
        await process.initialize(b"{}")
        assert process.key == "scripted"
    async with agent(info=None) as (process, _):
        await process.initialize(b"{}")
        assert process.key == KEY


async def test_the_shell_that_reads_its_commands_is_that_of_whoever_starts_it() -> None:
    """Not that of this process, which may be in the background for another terminal."""
    around = Surroundings({"SHELL": "/usr/bin/fish"}, "/")
    assert ProcessAgent(scripted_agent(), Heard(), around).shell == "/usr/bin/fish"
    assert ProcessAgent(scripted_agent(), Heard(), Surroundings({}, "/")).shell == ""


async def test_it_starts_again_in_the_newest_surroundings_but_in_its_own_folder(
    tmp_path: Path,
) -> None:
    told = tmp_path / "told"
    script = f'echo "$WHO $(umask) $PWD" >> {told}; exec "$@"'
    command = ["sh", "-c", script, "sh", *scripted_agent()]
    env = {**Surroundings.here().env, "WHO": "one"}
    own = Surroundings(env, str(tmp_path), 0o022)
    process = ProcessAgent(command, Heard(), own, ProcessOptions(cwd=str(tmp_path)))
    async with asyncio.timeout(2 * DEADLINE):
        await process.initialize(b"{}")
        newest = {**env, "WHO": "two", "SHELL": "/usr/bin/fish"}
        process.newest_surroundings = lambda: Surroundings(newest, "/", 0o077)
        await process.ensure()  # a live one keeps what it has
        await process.restart()
        await process.aclose()
    assert told.read_text().splitlines() == [f"one 0022 {tmp_path}", f"two 0077 {tmp_path}"]
    assert process.shell == "/usr/bin/fish"


async def test_a_program_that_was_started_before_is_used_and_not_started_twice(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    async with agent(log=str(log)) as (process, _):
        process.launch()
        await process.initialize(b"{}")
        assert len(log.read_text().splitlines()) == 1


async def test_a_program_that_was_started_before_and_never_used_is_ended() -> None:
    before = psutil.Process().children()
    process = ProcessAgent(scripted_agent(), Heard(), Surroundings.here())
    process.launch()
    started = [it for it in psutil.Process().children() if it not in before]
    assert started
    await process.aclose()
    assert not any(it.is_running() for it in started)


async def test_before_it_runs_it_cannot_be_asked_and_telling_it_is_dropped() -> None:
    async with agent() as (process, _):
        assert not process.alive
        with pytest.raises(AgentExitedError, match="is not running"):
            await ask(process, "session/new", b"{}")
        with pytest.raises(AgentExitedError, match="is not running"):
            process.send(Into(asyncio.Queue(), "session/new", b"{}"))
        await process.tell("session/cancel", b"{}")


async def test_an_answer_comes_after_the_updates_that_came_before_it() -> None:
    async with in_session() as (process, heard, session):
        steps = [{"say": "a"}, {"tell": ["_x", {}]}, {"say": "b"}]
        async with AgentExchange(process, "session/prompt", prompt(session, *steps)):
            heard.order.append("answer")
        assert heard.order == ["update", "_x", "update", "answer"]


async def test_what_only_acphold_may_say_of_itself_is_lost_where_it_comes_in() -> None:
    ours = {"sessionUpdate": "notice", "_meta": {"acphold/notice": {}, "vendor": 1}}
    whole = {"update": ours, "_meta": {"acphold/seq": 7, "vendor": 2}}
    async with in_session() as (process, heard, session):
        steps = [{"update": ours}, {"tell": ["session/update", whole]}]
        async with AgentExchange(process, "session/prompt", prompt(session, *steps)):
            plain, params = map(json.loads, heard.updates)
        kept = {"sessionUpdate": "notice", "_meta": {"vendor": 1}}
        assert plain == kept
        assert (params["update"], params["_meta"]) == (kept, {"vendor": 2})


async def test_a_request_cannot_say_that_a_rule_answered_for_its_call() -> None:
    call = {"toolCallId": "c", "_meta": {"acphold/rule": {"numbers": [1]}, "vendor": 1}}
    async with in_session() as (process, heard, session):
        whole = {"toolCall": call, "options": [], "_meta": {"acphold/seq": 7, "vendor": 2}}
        asks = prompt(session, {"ask": ["session/request_permission", whole]})
        await ask(process, "session/prompt", asks)
        [told] = map(json.loads, heard.asked)
        assert told["toolCall"] == {"toolCallId": "c", "_meta": {"vendor": 1}}
        assert (told["_meta"], told["options"]) == ({"vendor": 2}, [])


async def test_neither_its_answers_nor_its_notifications_have_marks_of_ours() -> None:
    marked = {"acphold/limit": {"words": "pay"}, "acphold/seq": 7, "vendor": 1}
    async with in_session() as (process, heard, session):
        tells = {"tell": ["_x", {"sessionId": session, "_meta": marked}]}
        ends = {"answer": {"stopReason": "end_turn", "_meta": marked}}
        answer = await ask(process, "session/prompt", prompt(session, tells, ends))
        assert json.loads(answer) == {"stopReason": "end_turn", "_meta": {"vendor": 1}}
        [told] = map(json.loads, heard.notified)
        assert told["_meta"] == {"vendor": 1}


async def test_it_neither_calls_nor_tells_what_is_between_acphold_and_its_clients() -> None:
    async with in_session() as (process, heard, session):
        queue = {"sessionId": session, "seq": 1, "queue": {"waiting": []}}
        steps = [{"tell": ["_acphold/queue", queue]}, {"ask": ["_acphold/queue", queue]}]
        await ask(process, "session/prompt", prompt(session, *steps))
        assert (heard.order, heard.asked) == (["update"], [])
        assert "-32601" in heard.updates[0].decode()


@pytest.mark.parametrize("code", [HELD_ELSEWHERE, OTHER_AGENT])
async def test_no_error_of_its_own_sends_a_client_elsewhere(code: int) -> None:
    async with in_session() as (process, _, session):
        error = {"code": code, "message": "go", "data": {"acphold/agent": "x"}}
        with pytest.raises(RemoteError) as refused:
            await ask(process, "session/prompt", prompt(session, {"error": error}))
        assert (refused.value.code, str(refused.value)) == (INTERNAL_ERROR, "go")


async def test_a_request_that_has_begun_is_answered_once_even_when_the_program_dies() -> None:
    async with in_session() as (process, _, session):
        answers: asyncio.Queue[Answer] = asyncio.Queue()
        steps = prompt(session, {"stderr": "ow"}, {"exit": 4})
        process.send(Into(answers, "session/prompt", steps))
        ended = await answers.get()
        assert isinstance(ended, AgentExitedError)
        assert (ended.status, ended.stderr) == ("exit status 4", "ow")
        assert not process.alive
        assert answers.empty()
        generation = process.generation
        await process.ensure()
        await process.ensure()
        assert process.alive
        assert process.generation == generation + 1


async def test_everything_that_waits_learns_how_the_program_ended() -> None:
    async with in_session() as (process, _, session):
        waits = prompt(session, {"until": "cancel"})
        asking = [asyncio.create_task(ask(process, "session/prompt", waits)) for _ in range(5)]
        asking.append(
            asyncio.create_task(ask(process, "session/prompt", prompt(session, {"kill": 9})))
        )
        for task in asking:
            with pytest.raises(AgentExitedError, match="SIGKILL"):
                await task


async def test_restarting_ends_what_waits_at_once() -> None:
    async with in_session() as (process, _, session):
        answers: asyncio.Queue[Answer] = asyncio.Queue()
        for _ in range(5):
            steps = prompt(session, {"until": "cancel"})
            process.send(Into(answers, "session/prompt", steps))
        begun = asyncio.get_running_loop().time()
        await process.restart()
        assert asyncio.get_running_loop().time() - begun < 5
        for _ in range(5):
            assert "was ended" in str(answers.get_nowait())
        assert process.alive


async def test_what_it_asks_is_answered_by_the_listener() -> None:
    async with in_session() as (process, heard, session):
        await ask(process, "session/prompt", prompt(session, {"ask": ["_x/y", {}]}))
        assert b"asked" in heard.updates[0]


async def test_a_refusal_of_initialize_leaves_no_program_and_may_be_tried_again() -> None:
    line = '{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"sign in"}}'
    async with agent(initialize=line) as (process, _):
        for _ in range(2):
            with pytest.raises(RemoteError, match="sign in"):
                await process.initialize(b"{}")
            assert not process.alive
            with pytest.raises(AgentExitedError):
                await ask(process, "session/new", b"{}")


async def test_while_it_lives_a_slow_agent_is_waited_for_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(wrapped, "SLOW_SECONDS", 0.05)
    assert DEFAULTS.start_timeout == 300
    read, write = os.pipe()
    flag = tmp_path / "flag"
    code = f"import os, sys, time\nwhile not os.path.exists({str(flag)!r}): time.sleep(0.01)\n"
    code += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    command = [sys.executable, "-c", code, *scripted_agent()[1:]]
    options = ProcessOptions(called="slow", relay_to=(write,))
    process = ProcessAgent(command, Heard(), Surroundings.here(), options)
    try:
        async with asyncio.timeout(DEADLINE):
            starting = asyncio.create_task(process.initialize(b"{}"))
            said = b""
            while said.count(b"\n") < 2:
                said += await asyncio.to_thread(os.read, read, 4096)
            flag.touch()
            await starting
    finally:
        await process.aclose()
        os.close(read)
        os.close(write)
    first, *_ = said.decode().splitlines()
    assert first.startswith("acphold: waiting for slow, which has not answered `initialize` for 0")


async def test_cancelling_initialize_leaves_no_program() -> None:
    async with agent(0.5, initialize="never") as (process, _):
        starting = asyncio.create_task(process.initialize(b"{}"))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        with pytest.raises(AgentStartError, match="did not answer"):
            await asyncio.wait_for(process.initialize(b"{}"), DEADLINE)


async def test_an_agent_that_does_not_read_is_sent_to_up_to_a_bound_and_then_refused() -> None:
    heard = Heard()
    process = ProcessAgent(
        scripted_agent(reads=2), heard, Surroundings.here(), ProcessOptions(limit=1_000_000)
    )
    await process.initialize(b"{}")
    await opened(process)
    pad = json.dumps({"pad": "x" * 300_000}).encode()
    async with asyncio.timeout(DEADLINE):
        for _ in range(50):
            await process.tell("_x", pad)
    with pytest.raises(AgentBusyError, match="does not read"):
        process.send(Into(asyncio.Queue(), "session/prompt", pad))
    with pytest.raises(AgentBusyError, match="does not read"):
        await ask(process, "session/list", b"{}")
    await process.aclose()


async def test_one_event_that_cannot_be_handled_does_not_take_the_rest_of_its_read_along() -> None:
    class Fails(Heard):
        async def hear(self, event: Event) -> None:
            if isinstance(event, Notified):
                raise RuntimeError("a fault of ours")
            await super().hear(event)

    heard = Fails()
    agent = ProcessAgent(["agent"], heard, Surroundings.here())
    params = b'{"sessionId":"s","update":{"sessionUpdate":"x"}}'
    odd = NotificationReceived("_vendor/odd", b"{}")
    update = NotificationReceived("session/update", params)
    await agent.on_notifications([update, odd, update])
    assert heard.updates == [b'{"sessionUpdate":"x"}'] * 2


async def test_an_update_that_is_longer_than_the_limit_is_told_as_unheard() -> None:
    heard = Heard()
    options = ProcessOptions(limit=100_000)
    process = ProcessAgent(scripted_agent(), heard, Surroundings.here(), options)
    try:
        async with asyncio.timeout(DEADLINE):
            await process.initialize(b"{}")
            session = await opened(process)
            steps = ({"say": "x" * 120_000}, {"say": "short"})
            await ask(process, "session/prompt", prompt(session, *steps))
    finally:
        await process.aclose()
    assert heard.order.count("unheard") == 1
    assert b"short" in heard.updates[-1]


@pytest.mark.parametrize("keeps", [True, False])
async def test_only_an_agent_that_keeps_sessions_too_is_told_in_which_journal_they_are(
    tmp_path: Path, keeps: bool
) -> None:
    journal, log = open_journal(tmp_path / "journal.db"), tmp_path / "log"
    command = scripted_agent(log=str(log), capabilities={"_meta": {KEEPS_SESSIONS: keeps}})
    process = ProcessAgent(command, Heard(), Surroundings.here(), journal=journal)
    try:
        async with asyncio.timeout(DEADLINE):
            await process.initialize(b"{}")
            await opened(process)
            await ask(process, "session/list", b"{}")
        [made], [listed] = received(log, "session/new"), received(log, "session/list")
        told = {KEPT_IN_FRONT: await identity(journal)} if keeps else None
        assert made["params"].get("_meta") == told
        assert "_meta" not in listed["params"]
    finally:
        await process.aclose()
        await journal.aclose()


async def test_a_start_in_newer_surroundings_keeps_the_variables_that_are_terms(
    tmp_path: Path,
) -> None:
    told = tmp_path / "told"
    script = f'echo "$WHO $ANTHROPIC_API_KEY $ANTHROPIC_BASE_URL." >> {told}; exec "$@"'
    command = ["sh", "-c", script, "sh", *scripted_agent()]
    plain = {key: it for key, it in Surroundings.here().env.items() if key[:9] != "ANTHROPIC"}
    own = Surroundings({**plain, "WHO": "one", "ANTHROPIC_API_KEY": "one"}, "/")
    process = ProcessAgent(command, Heard(), own, ProcessOptions(called="claude"))
    assert process.terms.label == "variable ANTHROPIC_API_KEY"
    newest = {"WHO": "two", "ANTHROPIC_API_KEY": "two", "ANTHROPIC_BASE_URL": "two"}
    process.newest_surroundings = lambda: Surroundings({**plain, **newest}, "/")
    async with asyncio.timeout(2 * DEADLINE):
        await process.initialize(b"{}")
        await process.restart()
        await process.aclose()
    assert told.read_text().splitlines() == ["two one ."] * 2
