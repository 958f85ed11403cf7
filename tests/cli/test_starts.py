"""The command of a session is remembered, so that nobody has to repeat it to continue."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acp_wire.surroundings import Surroundings
from acphold.faces.cli.command_line import Exit
from acphold.faces.cli.starts import Start, find_start, start_in, write_start
from acphold.machine import runtime_folder
from tests.cli.place import ACPHOLD, Place
from tests.editor import SCRIPTED, scripted_agent

pytestmark = pytest.mark.slow

MORE = json.dumps([{"say": "more"}])


def held(home: Place, *words: str, cwd: Path | None = None) -> str:
    """Have one session by `ask` with these words; its id."""
    prompt = json.dumps([{"say": "apples"}])
    done = subprocess.run(
        [*ACPHOLD, "ask", prompt, *words], env=home.env, cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return str(only(home)["sessionId"])


def only(home: Place) -> dict[str, Any]:
    """The one session that there is."""
    [line] = home.run("list", "--json").stdout.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def starts(home: Place) -> list[Path]:
    """The files of the starts that are remembered with the journal."""
    return [*Path(f"{home.journal}-state", "starts").iterdir()]


def test_a_session_goes_on_with_the_command_that_it_was_held_with(place: Place) -> None:
    session = held(place, "--", *scripted_agent())
    for words in (["continue", session], ["chat", "--resume", session], ["chat", "--continue"]):
        done = place.run(*words, typed=MORE)
        assert (done.returncode, "more" in done.stdout) == (0, True), done.stderr
    for words in (["--continue"], ["--session", session]):
        done = place.run("ask", MORE, *words)
        assert (done.returncode, done.stdout) == (0, "more\n"), done.stderr
    assert only(place)["messageCount"] == 12


@pytest.mark.parametrize(
    ("journal", "options", "folder"),
    [
        ("own.db", [], "/w"),
        ("/own.db", [], None),
        ("postgresql://me@db/x", [], None),
        ("", ["--log-file", "own.log"], "/w"),
        ("", ["--log-file=own.log"], "/w"),
        ("", ["--log-file", "/own.log"], None),
        ("", ["--name", "own"], None),
    ],
)
def test_the_folder_counts_for_a_journal_or_an_option_that_names_a_file_in_it(
    journal: str, options: list[str], folder: str | None
) -> None:
    within = Surroundings({"ACPHOLD_JOURNAL": journal} if journal else {}, "/w")
    assert start_in(within, "mine", ["agent"], options).folder == folder


def test_a_copy_goes_on_with_the_command_of_the_original(place: Place) -> None:
    session = held(place, "--", *scripted_agent())
    copy = place.run("continue", session, "--from", "last").stdout.strip()
    done = place.run("continue", copy, typed=MORE)
    assert (done.returncode, "more" in done.stdout) == (0, True), done.stderr
    another = scripted_agent(info={"name": "another", "version": "1"})
    other = place.run("continue", session, "--", *another).stdout.strip()
    done = place.run("continue", other, typed=MORE)
    assert (done.returncode, "another, and acphold does not know" in done.stderr) == (2, True)


def test_it_goes_on_in_the_folder_in_which_a_word_of_it_names_a_file(place: Place) -> None:
    (folder := place.folder / "there").mkdir()
    shutil.copy(SCRIPTED, folder / "agent.py")
    shutil.copy(Path(SCRIPTED).with_name("scripted_program.py"), folder)
    held(place, "--name", "mine", "--", sys.executable, "-S", "-E", "agent.py", "{}", cwd=folder)
    assert not os.path.exists("agent.py")
    done = place.run("continue", only(place)["sessionId"], typed=MORE)
    assert (done.returncode, "more" in done.stdout) == (0, True), done.stderr
    assert (only(place)["agent"], only(place)["messageCount"]) == ("mine", 4)


def test_a_name_of_the_settings_means_what_they_say_now_and_else_what_it_meant(
    place: Place,
) -> None:
    settings = place.folder / "config" / "acphold" / "settings.toml"
    settings.parent.mkdir(parents=True)
    said = '[agents.mine]\nname = "{}"\ncommand = {}\n'
    settings.write_text(said.format("mine", json.dumps(scripted_agent())))
    session = held(place, "mine")
    settings.write_text(said.format("mine", json.dumps(["/nowhere/now"])))
    done = place.run("continue", session, typed=MORE)
    assert "mine: cannot start '/nowhere/now'" in done.stderr
    settings.write_text("")
    done = place.run("continue", session, typed=MORE)
    assert (done.returncode, "more" in done.stdout) == (0, True), done.stderr
    assert (only(place)["agent"], only(place)["messageCount"]) == ("mine", 4)


def test_another_agent_is_taken_if_the_person_says_so(place: Place) -> None:
    session = held(place, "--", *scripted_agent())
    done = place.run("chat", "--resume", session, "--", "/nowhere/at/all", typed=MORE)
    assert "/nowhere/at/all" in done.stderr
    assert place.run("continue", session, typed=MORE).returncode == 0


def test_a_journal_from_elsewhere_has_no_command_to_run_and_none_to_read(place: Place) -> None:
    session = held(place, "--", *scripted_agent(memory="/tmp/not/for/others"))
    raw = Path(place.env["ACPHOLD_JOURNAL"]).read_bytes()
    assert b"not/for/others" not in raw
    [file] = starts(place)
    file.write_bytes(file.read_bytes().replace(b"/tmp/not/for", b"/tmp/yes/for"))  # a stranger
    for words in (["continue", session], ["ask", MORE, "--continue"]):
        done = place.run(*words, typed=MORE)
        assert done.returncode == Exit.USAGE
        assert f"acphold chat --resume {session} -- CMD" in done.stderr


def test_it_goes_on_whatever_the_folders_of_the_command_are(place: Place) -> None:
    session = held(place, "--", *scripted_agent())
    for name in ("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "TMPDIR"):
        place.env[name] = str(place.folder / "another")
    done = place.run("ask", MORE, "--session", session)
    assert (done.returncode, done.stdout) == (0, "more\n"), done.stderr
    assert len(starts(place)) == 1


def test_a_start_is_known_on_its_own_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, journal = Start("", ("agent",)), str(tmp_path / "journal.db")
    write_start(start, journal)
    assert find_start(start.mark, journal) == start
    assert find_start(start.mark, str(tmp_path / "other.db")) is None
    (tmp_path / "id").write_text("0123456789abcdef" * 2)
    monkeypatch.setattr(runtime_folder, "MACHINE", str(tmp_path / "id"))
    assert find_start(start.mark, journal) is None
    write_start(start, str(tmp_path / "moved" / "journal.db"))
    assert not (tmp_path / "moved").exists()


def test_a_command_with_a_secret_in_it_is_not_remembered(place: Place) -> None:
    key = "sk-proj-ABCDEFGHijkl0123456789abcd"
    session = held(place, "--", *scripted_agent(), f"--api-key={key}")
    assert place.run("continue", session).returncode == Exit.USAGE
    for found in place.folder.rglob("*.json"):
        assert key not in found.read_text()


def test_what_is_remembered_is_for_the_person_alone(place: Place) -> None:
    held(place, "--", *scripted_agent())
    [file] = starts(place)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_mark_that_names_another_file_is_none() -> None:
    for mark in (None, "", "../settings", "a/b"):
        assert find_start(mark, "/journal.db") is None
    assert Start("", ("a", "b")).mark != Start("a", ("b",)).mark
