"""The person's commands for alerts: their input and limits, and that they leave nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from acp_wire.surroundings import Surroundings
from acphold.conversation.history.prompt_queue import moment
from acphold.errors import JournalUnavailableError
from acphold.live.hub.alerts import Alert
from acphold.live.server import bounds
from acphold.live.server.alert_commands import AlertCommands, stdin_json, variables
from tests.watched_processes import gone, lives, until

WAITING = Alert(
    "waiting",
    "s1",
    "claude",
    "/work",
    "Mend $(it)\n now",
    20.4,
    "rm -rf '`x`'",
    ("Allow", "Reject"),
)
ENDED = Alert("turn_end", "s1", "claude", "/work", "Mend it", 61.2, outcome="failed")

REPORT = """
import json, os, sys
told = {name: value for name, value in os.environ.items() if name.startswith("ACPHOLD_")}
with open(sys.argv[1] + ".new", "w") as file:
    json.dump([told, sys.stdin.read()], file)
os.replace(sys.argv[1] + ".new", sys.argv[1])
"""


def pids(file: Path) -> set[int]:
    """The processes that a file names."""
    return {int(pid) for pid in file.read_text().split()}


def python(code: str, *arguments: str) -> tuple[str, ...]:
    """A command that runs this code."""
    return (sys.executable, "-S", "-E", "-c", code, *arguments)


async def finished(commands: AlertCommands) -> None:
    """Wait until none runs any more."""
    await until(lambda: not commands._running)


@pytest.fixture(autouse=True)
def _all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "acphold.live.server.alert_commands")


async def test_a_command_gets_variables_and_json_and_no_shell_sees_them(tmp_path: Path) -> None:
    class Linked(AlertCommands):
        def link(self, alert: Alert) -> str:
            return f"https://desk/#/session/{alert.session_id}"

    commands = Linked(Surroundings.here())
    for alert, name in ((WAITING, "waiting"), (ENDED, "ended")):
        commands.tell(python(REPORT, str(tmp_path / name)), alert)
    await finished(commands)
    told, given = json.loads((tmp_path / "waiting").read_text())
    assert {name: told[name] for name in variables(WAITING)} == {
        "ACPHOLD_EVENT": "waiting",
        "ACPHOLD_SESSION": "s1",
        "ACPHOLD_AGENT": "claude",
        "ACPHOLD_CWD": "/work",
        "ACPHOLD_TITLE": "Mend $(it) now",
        "ACPHOLD_QUESTION": "rm -rf '`x`'",
        "ACPHOLD_OUTCOME": "",
        "ACPHOLD_SECONDS": "20",
        "ACPHOLD_URL": "https://desk/#/session/s1",
    }
    assert json.loads(given) == {
        "event": "waiting",
        "sessionId": "s1",
        "agent": "claude",
        "cwd": "/work",
        "title": "Mend $(it)\n now",
        "seconds": 20.4,
        "url": "https://desk/#/session/s1",
        "question": "rm -rf '`x`'",
        "options": ["Allow", "Reject"],
    }
    told, given = json.loads((tmp_path / "ended").read_text())
    assert told["ACPHOLD_OUTCOME"] == "failed"
    assert json.loads(given)["outcome"] == "failed"
    assert "question" not in json.loads(given)


async def test_the_words_of_a_question_may_be_looked_up_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def found() -> str:
        return "Edit main.py"

    async def lost() -> str:
        raise JournalUnavailableError("the journal is gone")

    commands = AlertCommands(Surroundings.here())
    commands.tell(python(REPORT, str(tmp_path / "found")), WAITING, found)
    commands.tell(python(REPORT, str(tmp_path / "lost")), WAITING, lost)
    await finished(commands)
    told, _ = json.loads((tmp_path / "found").read_text())
    assert told["ACPHOLD_QUESTION"] == "Edit main.py"
    assert "the journal is gone" in caplog.text


def test_prompts_that_are_held_are_said_in_words_and_in_numbers() -> None:
    held = Alert("held", "s1", "claude", "/", "Mend", 20, queued=2, held="limited", until=4_102_444)
    told = variables(held)
    assert (told["ACPHOLD_EVENT"], told["ACPHOLD_OUTCOME"]) == ("held", "limited")
    until = moment(4_102_444)
    words = f"2 queued prompts, paused: a limit was reached, until {until}"
    assert told["ACPHOLD_QUESTION"] == words
    told = json.loads(stdin_json(held))
    assert {"queued": 2, "held": "limited", "until": 4_102_444}.items() <= told.items()


def test_what_no_variable_can_hold_is_left_out() -> None:
    odd = Alert("waiting", "s", "a", "/", "a\0b\ud800c", 1, "x" * 9999)
    told = variables(odd)
    assert told["ACPHOLD_TITLE"] == "ab?c"
    assert len(told["ACPHOLD_QUESTION"]) == bounds.ALERT_VALUE_CHARACTERS
    os.fsencode(told["ACPHOLD_TITLE"])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028"])
def test_every_variable_is_one_line_whoever_made_it_up(end: str) -> None:
    text = f"a  b{end}Bcc: c"
    told = variables(Alert("waiting", text, text, text, text, 1.0, text, (text,), text), url=text)
    assert all(len(value.splitlines()) == 1 for value in told.values())
    assert told["ACPHOLD_CWD"] == "a  b Bcc: c"  # spaces are part of a path


async def test_what_it_prints_and_how_it_fails_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    commands = AlertCommands(Surroundings.here())
    commands.tell(python("import sys; print('out'); print('err', file=sys.stderr)"), WAITING)
    commands.tell(python("import sys; print('why'); sys.exit(3)"), ENDED)
    commands.tell(("no-such-program",), ENDED)
    await finished(commands)
    lines = sorted((record.levelname, record.getMessage()) for record in caplog.records)
    assert [level for level, _ in lines] == ["INFO", "WARNING", "WARNING"]
    said = "\n".join(message for _, message in lines)
    assert "exit status 0; its output: out err" in said
    assert "exit status 3; its output: why" in said
    assert "no such program on PATH" in said


async def test_a_command_that_does_not_end_is_ended_with_all_that_it_started(
    pid_file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "with open(sys.argv[1], 'a') as file: file.write(f'{os.getpid()} {child.pid} ')\n"
        "time.sleep(1000)\n"
    )
    monkeypatch.setattr(bounds, "ALERT_SECONDS", 1.0)
    commands = AlertCommands(Surroundings.here())
    commands.tell(python(code, str(pid_file)), WAITING)
    await finished(commands)
    assert "did not end within 1 s" in caplog.text
    await gone(pids(pid_file), 20)


async def test_what_a_command_leaves_running_is_ended_with_it(pid_file: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "with open(sys.argv[1], 'a') as file: file.write(f'{child.pid} ')\n"
    )
    commands = AlertCommands(Surroundings.here())
    commands.tell(python(code, str(pid_file)), WAITING)
    await finished(commands)
    assert pids(pid_file)
    await gone(pids(pid_file), 20)


async def test_a_command_that_reads_nothing_and_prints_much_is_no_harm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    large = Alert("waiting", "s", "a", "/", "t", 1, "x" * 1_000_000)
    commands = AlertCommands(Surroundings.here())
    commands.tell(python("print('y' * 1_000_000)"), large)
    await finished(commands)
    assert "exit status 0" in caplog.text
    assert len(caplog.text) < 10_000


async def test_no_more_than_a_few_run_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = tmp_path / "go on"
    code = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
    commands = AlertCommands(Surroundings.here())
    for _ in range(bounds.ALERTS_AT_ONCE + 1):
        commands.tell(python(code, str(go_on)), WAITING)
    assert len(commands._running) == bounds.ALERTS_AT_ONCE
    assert "alert: dropped" in caplog.text
    go_on.touch()
    await finished(commands)


async def test_at_the_end_they_get_a_moment_and_are_then_ended(
    pid_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LAST_ALERTS_SECONDS", 0.1)
    code = (
        "import os, sys, time\n"
        "with open(sys.argv[1], 'a') as file: file.write(f'{os.getpid()} ')\n"
        "time.sleep(1000)\n"
    )
    async with aclosing(AlertCommands(Surroundings.here())) as alerts:
        alerts.tell(python(code, str(pid_file)), WAITING, None)
        await until(lambda: pids(pid_file))
    assert not any(map(lives, pids(pid_file)))


async def test_one_that_is_about_to_start_at_the_end_does_not_stay(
    pid_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LAST_ALERTS_SECONDS", 0.0)
    commands = AlertCommands(Surroundings.here())
    commands.tell(("sleep", "1000"), WAITING)
    await asyncio.sleep(0)
    await commands.aclose()
    assert not commands._running
