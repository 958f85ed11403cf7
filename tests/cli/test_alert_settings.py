"""The alerts of the settings file: their syntax, when they are read, and running them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from acphold.errors import SettingsError
from acphold.faces.cli import bounds
from acphold.faces.cli.alert_settings import AlertFile, alert_rules
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.settings import read_settings
from acphold.live.hub.alerts import Alert, AlertRules
from acphold.web.running_servers import Running, noted
from tests.cli.command_line import CommandLine
from tests.editor import introduced, scripted_agent, wrap_command
from tests.watched_processes import until


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file of the test; it is not there yet."""
    path = tmp_path / "settings.toml"
    monkeypatch.setenv("ACPHOLD_SETTINGS", str(path))
    return path


def replaced(file: Path, text: str) -> None:
    """Write it as editors do: a new file takes the name."""
    new = file.with_suffix(".new")
    new.write_text(text)
    os.replace(new, file)


def test_the_file_is_read_again_when_it_has_changed(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ALERT_RULES_SECONDS", 0)
    rules = AlertFile(None).rules
    assert rules() == AlertRules()
    replaced(file, '[alerts]\non_waiting = ["~/tell", "~"]\nwaiting_seconds = 0.5')
    assert rules() == AlertRules((os.path.expanduser("~/tell"), "~"), 0.5)
    assert rules() is rules()
    replaced(file, '[alerts]\non_turn_end = ["tell"]\nturn_seconds = 0')
    assert rules() == AlertRules(on_turn_end=("tell",), turn_seconds=0)
    replaced(file, "[alerts]\non_wating = []")
    assert rules() == AlertRules()
    assert rules() == AlertRules()
    assert caplog.text.count("no alerts") == 1
    file.unlink()
    assert rules() == AlertRules()


def test_the_file_is_looked_at_once_in_a_while(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ALERT_RULES_SECONDS", 3600)
    rules = AlertFile(None).rules
    assert rules() == AlertRules()
    replaced(file, '[alerts]\non_waiting = ["tell"]')
    assert rules() == AlertRules()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alerts = 3", ["[alerts] must be a table"]),
        ("[alerts]\non_wating = []", ["[alerts] has an unknown key 'on_wating' (`on_waiting`?)"]),
        ("[alerts]\non_waiting = []", ["[alerts] on_waiting: must be a list of words"]),
        ('[alerts]\non_turn_end = "say x"', ["[alerts] on_turn_end", '["say", "x"]']),
        ("[alerts]\nwaiting_seconds = -1", ["[alerts] waiting_seconds: a number of seconds"]),
        ("[alerts]\nturn_seconds = true", ["[alerts] turn_seconds: a number of seconds"]),
        ("[alerts]\nturn_seconds = inf", ["[alerts] turn_seconds: a number of seconds"]),
        ("[titles]\ncomand = 3", ["[titles] has an unknown key 'comand' (`command`?)"]),
        ('[titles]\ncommand = "llm -s x"', ["[titles] command", '["llm", "-s", "x"]']),
    ],
)
def test_a_mistake_is_told_with_file_and_key(file: Path, text: str, words: list[str]) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        alert_rules(read_settings(str(file)) or {}, str(file))
    assert str(caught.value).startswith(str(file))
    assert all(word in str(caught.value) for word in words)


def test_doctor_shows_the_commands_and_says_which_are_not_there(
    file: Path, acphold: CommandLine
) -> None:
    file.write_text('[alerts]\non_waiting = ["true", "a b"]\non_turn_end = ["no-such-program"]')
    done = acphold.run("doctor")
    assert done.code == Exit.ERROR
    found = "".join(done.out.split())
    assert "✓on_waiting,after20s:true'ab'" in found
    assert "✗on_turn_end,of60sormore:theprogram'no-such-program'wasnotfound" in found
    file.write_text("[alerts]\nturn_second = 3")
    assert "turn_seconds`?)" in "".join(acphold.run("doctor").out.split())


CODE = """
import json, os, sys
with open(sys.argv[1] + ".new", "w") as file:
    json.dump([os.environ["ACPHOLD_EVENT"], json.load(sys.stdin)], file)
os.replace(sys.argv[1] + ".new", sys.argv[1])
"""


@pytest.fixture
def told(file: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The files that the commands of both alerts write. Both alerts are set to run at once."""
    waits, ends = tmp_path / "waits", tmp_path / "ends"
    commands = {
        "on_waiting": [sys.executable, "-S", "-c", CODE, str(waits)],
        "on_turn_end": [sys.executable, "-S", "-c", CODE, str(ends)],
    }
    lines = [f"{key} = {json.dumps(command)}" for key, command in commands.items()]
    file.write_text("\n".join(["[alerts]", *lines, "waiting_seconds = 0", "turn_seconds = 0"]))
    return waits, ends


async def test_wrap_runs_them_for_a_question_that_waits_and_for_the_end_of_a_turn(
    told: tuple[Path, Path], journal: Path, tmp_path: Path
) -> None:
    waits, ends = told
    async with introduced(wrap_command(scripted_agent()), journal=journal) as client:
        session = await client.new(tmp_path)

        async def answered_when_it_is_told(_: object) -> dict[str, object]:
            await until(waits.exists)
            return {"outcome": {"outcome": "selected", "optionId": "y"}}

        client.answers["session/request_permission"] = answered_when_it_is_told
        asked = {
            "toolCall": {"toolCallId": "t", "title": "Run make"},
            "options": [{"optionId": "y", "name": "Allow", "kind": "allow_once"}],
        }
        await client.prompt(session, {"ask": ["session/request_permission", asked]})
        await until(ends.exists)
        assert await client.leave() == 0
    event, about = json.loads(waits.read_text())
    assert (event, about["question"], about["options"]) == ("waiting", "Run make", ["Allow"])
    assert (about["sessionId"], about["cwd"]) == (session, str(tmp_path))
    event, about = json.loads(ends.read_text())
    assert (event, about["outcome"]) == ("turn_end", "completed")


def test_the_link_of_an_alert_opens_the_question_at_a_server_of_its_journal(
    journal: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    alert = Alert("waiting", "a/b@c", "claude", "/w", "T", 20.0, seq=7)
    link = AlertFile(journal).link
    assert link(alert) == ""
    desk = Running(str(journal), "http://localhost:1", "https://desk", "http://localhost:1")
    with noted(desk):
        assert link(alert) == "https://desk/#/session/a%2Fb%40c@7"
        assert AlertFile(tmp_path / "other.db").link(alert) == ""
    assert link(alert) == ""
