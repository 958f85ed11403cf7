"""The client in plain calls."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import pytest

import acphold
import acphold.sync
import acphold.types
from acp_wire.processes.own_python import own_python
from acp_wire.schema import AgentMessageChunk
from acphold.client import PermissionQuestion
from acphold.errors import (
    AgentExitedError,
    AgentStartError,
    AgentTimeoutError,
    CapabilityError,
    ConnectionLostError,
)
from tests.editor import scripted_agent
from tests.plugin import Until
from tests.watched_processes import lives

PERMISSION = """[{"ask": ["session/request_permission", {"toolCall": {"toolCallId": "t"},
  "options": [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]}]}]"""


def threads() -> list[str]:
    """The names of all threads of ours."""
    return [thread.name for thread in threading.enumerate() if thread.name == "acphold.sync"]


def test_three_lines_talk_to_an_agent_and_leave_no_thread_behind() -> None:
    with acphold.sync.connect(*scripted_agent()) as agent:
        session = agent.new_session()
        assert session.prompt('[{"say": "hello"}]').wait().text == "hello"
        assert threads() == ["acphold.sync"]
    assert threads() == []


def test_a_prompt_is_an_iterator_of_all_its_updates() -> None:
    with acphold.sync.connect(*scripted_agent()) as agent:
        session = agent.new_session()
        turn = session.prompt('[{"flood": [20000, 10]}, {"stop": "max_tokens"}]')
        assert sum(isinstance(update, AgentMessageChunk) for update in turn) == 20000
        assert (turn.stop_reason, turn.is_over) == ("max_tokens", True)
        assert len(turn.items) == 3


def test_the_session_has_its_state(tmp_path: Path) -> None:
    with acphold.sync.connect(*scripted_agent(), cwd=tmp_path) as agent:
        session = agent.new_session()
        plan = {"content": "Look", "priority": "high", "status": "pending"}
        step = f'[{{"update": {{"sessionUpdate": "plan", "entries": [{plan}]}}}}]'
        session.prompt(step.replace("'", '"')).wait()
        assert [entry.content for entry in session.plan] == ["Look"]
        assert (session.title, session.usage, session.commands, session.modes) == (
            None,
            None,
            (),
            (),
        )
        assert session.mode is None
        assert session.state.turns == 1
        assert session.cwd == str(tmp_path)
        assert session.config_options == ()


def test_durable_sessions_are_listed_loaded_and_deleted(journal: Path, tmp_path: Path) -> None:
    command = scripted_agent()
    for number in (1, 2):
        with acphold.sync.connect(*command, durable=True, journal=journal, cwd=tmp_path) as agent:
            agent.new_session().prompt(f'[{{"say": "{number}"}}]').wait()
    with acphold.sync.connect(*command, durable=True, journal=journal, cwd=tmp_path) as agent:
        two, one = list(agent.sessions(tmp_path))
        session = agent.load_session(one.session_id)
        assert isinstance(session.replay[1], AgentMessageChunk)
        session.close()
        agent.resume_session(two.session_id).prompt('[{"say": "on"}]').wait()
        agent.delete_session(one.session_id)
        assert [info.session_id for info in agent.sessions()] == [two.session_id]


def test_a_turn_is_cancelled_between_two_updates() -> None:
    with acphold.sync.connect(*scripted_agent()) as agent:
        session = agent.new_session()
        turn = session.prompt('[{"say": "a"}, {"until": "cancel"}, {"stop": "cancelled"}]')
        for _ in turn:
            session.cancel()
        assert turn.stop_reason == "cancelled"


THINKS = '[{"say": "a"}, {"until": "cancel"}, {"stop": "cancelled"}]'


def test_a_turn_may_have_a_deadline() -> None:
    with acphold.sync.connect(*scripted_agent()) as agent:
        session = agent.new_session()
        with pytest.raises(AgentTimeoutError):
            session.prompt(THINKS, timeout=0.01).wait()
        assert session.prompt('[{"say": "on"}]').wait().text == "on"


def test_ctrl_c_cancels_the_turn_that_is_waited_for() -> None:
    main = threading.main_thread().ident
    assert main is not None

    def interrupt_once_it_waits() -> None:
        looks: list[tuple[FrameType, int]] = []
        while True:
            innermost = sys._current_frames()[main]
            frame: FrameType | None = innermost
            while frame is not None and frame.f_code is not acphold.sync.SyncTurn.wait.__code__:
                frame = frame.f_back
            if frame is not None and innermost.f_code is threading.Condition.wait.__code__:
                # Python notices no signal that comes just before it sleeps: it has to sleep.
                looks = [*looks[-4:], (innermost, innermost.f_lasti)]
                if len(looks) == 5 and looks.count(looks[0]) == 5:
                    signal.pthread_kill(main, signal.SIGINT)
                    return
            time.sleep(0.005)  # it is in another thread

    with acphold.sync.connect(*scripted_agent()) as agent:
        session = agent.new_session()
        turn = session.prompt(THINKS)
        interrupting = threading.Thread(target=interrupt_once_it_waits)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            turn.wait()
        interrupting.join()
        assert turn.stop_reason == "cancelled"
        assert not session.state.open_tools


def test_errors_are_raised_where_they_are_waited_for() -> None:
    with acphold.sync.connect(*scripted_agent()) as agent:
        with pytest.raises(CapabilityError):
            list(agent.sessions())
        session = agent.new_session()
        live = session.updates()
        with pytest.raises(AgentExitedError, match="exit status 3"):
            session.prompt('[{"say": "half"}, {"exit": 3}]').wait()
        assert isinstance(next(live), AgentMessageChunk)
        with pytest.raises(AgentExitedError, match="exit status 3"):
            next(live)
        assert agent.is_lost
    with pytest.raises(ConnectionLostError, match="was closed"):
        agent.new_session()
    with pytest.raises(AgentStartError), acphold.sync.connect("no-such-agent"):
        pass
    assert threads() == []


def test_callbacks_are_asked_and_cannot_wait_for_themselves() -> None:
    refused: list[Exception] = []

    def permit(question: PermissionQuestion) -> bool:
        try:
            agent.new_session()
        except RuntimeError as error:
            refused.append(error)
        return True

    with acphold.sync.connect(*scripted_agent(), on_permission=permit) as agent:
        text = agent.new_session().prompt(PERMISSION).wait().text
        assert '"optionId": "y"' in text
    assert "would wait for itself" in str(refused[0])


def test_two_connections_share_a_thread_and_may_be_used_from_any() -> None:
    with (
        acphold.sync.connect(*scripted_agent()) as one,
        acphold.sync.connect(*scripted_agent()) as two,
    ):
        said: dict[int, str] = {}

        def talk(number: int, agent: acphold.sync.SyncAgent) -> None:
            said[number] = agent.new_session().prompt(f'[{{"say": "{number}"}}]').wait().text

        workers = [
            threading.Thread(target=talk, args=(number, agent))
            for number, agent in enumerate((one, two, one))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
        assert said == {0: "0", 1: "1", 2: "2"}
        assert threads() == ["acphold.sync"]


def test_leaving_in_the_middle_of_a_turn_ends_the_agent_within_seconds(
    until: Until, pid_file: Path
) -> None:
    spawn = f'[{{"spawn": "echo $PPID $$ > {pid_file}; exec sleep 1000"}}, {{"until": "cancel"}}]'
    with acphold.sync.connect(*scripted_agent(deaf=True)) as agent:
        agent.new_session().prompt(spawn)
        until(lambda: len(pid_file.read_text().split()) == 2, 30)
    assert not any(lives(int(pid)) for pid in pid_file.read_text().split())


# -- without a block ---------------------------------------------------------------------------


def test_a_connection_can_be_closed_without_a_block() -> None:
    agent = acphold.sync.connect(*scripted_agent())
    session = agent.new_session()
    turn = session.prompt('[{"say": "hello"}]').wait()
    assert turn.text == "hello"
    agent.close()
    agent.close()
    assert threads() == []
    assert repr(turn) == "<RemoteTurn end_turn: 'hello'>"
    assert repr(session) == f"<RemoteSession {session.id!r} in {session.cwd!r}>"
    assert "that is lost" in repr(agent)
    with pytest.raises(ConnectionLostError, match="was closed"):
        agent.new_session()


@pytest.mark.parametrize("options", ["", ", durable=True"])
def test_a_program_that_closes_nothing_leaves_nothing_behind(
    options: str, journal: Path, tmp_path: Path
) -> None:
    if options:
        options += f", journal={str(journal)!r}"
    command = [*scripted_agent()]
    script = f"""
import acphold.sync
steps = '[{{"say": "hello"}}]'
with acphold.sync.connect(*{command!r}{options}) as agent:
    agent.new_session().prompt(steps).wait()
agent = acphold.sync.connect(*{command!r}{options})
print(agent.new_session().prompt(steps).wait().text)
"""
    ended = subprocess.run(
        [*own_python(), "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("hello\n", "", 0)


@pytest.mark.parametrize(
    ("awaited", "plain"),
    [
        (acphold.RemoteAgent, acphold.sync.SyncAgent),
        (acphold.RemoteSession, acphold.sync.SyncSession),
        (acphold.types.RemoteQueue, acphold.sync.SyncQueue),
        (acphold.RemoteTurn, acphold.sync.SyncTurn),
    ],
)
def test_the_plain_client_has_the_same_names(awaited: type, plain: type) -> None:
    def names(kind: type) -> set[str]:
        return {it for it in dir(kind) if not it.startswith("_")}

    assert names(awaited) <= names(plain)
    assert names(plain) - names(awaited) <= {"close", "wait"}


def test_the_plain_client_takes_the_same_options() -> None:
    assert (
        inspect.signature(acphold.connect).parameters.keys()
        == inspect.signature(acphold.sync.connect).parameters.keys()
    )
